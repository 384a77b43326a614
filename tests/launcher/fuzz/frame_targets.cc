// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "base/error.h"
#include "base/job/job_protocol.h"
#include "launcher/channel/wire.h"
#include "launcher/controller/ranks/store_server.h"
#include "launcher/mpi/mpi_exchange.h"
#include "launcher/pmi1/pmi1_command.h"
#include "launcher/staging/preload_wire.h"
#include "launcher/tree/shared_texts.h"
#include "launcher/tree/tunnel_wire.h"
#include "tests/launcher/fuzz/fuzz_targets.h"
#include "tests/ops/fuzz/peer_link_target.h"
#include "tests/ops/fuzz/sealed_stream_target.h"

namespace chainmail::launch {
namespace {

using internal::BodyReader;
using internal::BodyWriter;
using internal::Frame;
using internal::FrameReader;
using internal::JobMessage;

std::span<const std::byte> as_bytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

// Whatever bytes come: frames or a SystemError, the same however the bytes are cut.
std::vector<Frame> frames_in(std::string_view bytes, std::size_t piece) {
  FrameReader reader;
  std::vector<Frame> frames;
  try {
    for (std::size_t at = 0; at < bytes.size(); at += piece) {
      reader.append(as_bytes(bytes.substr(at, piece)));
      while (auto frame = reader.next()) frames.push_back(*std::move(frame));
    }
  } catch (const SystemError&) {
  }
  return frames;
}

void run_frames(std::string_view bytes) {
  const std::vector<Frame> frames = frames_in(bytes, std::max<std::size_t>(bytes.size(), 1));
  const std::vector<Frame> again = frames_in(bytes, 7);
  promise(frames.size() == again.size(), "the same frames in pieces");
  for (std::size_t i = 0; i < frames.size(); ++i) {
    promise(frames[i].body == again[i].body, "the same body in pieces");
    promise(frames[i].body.size() <= internal::kMaxFrameBytes, "a bounded body");
    promise(bytes.find(frames[i].body) != std::string_view::npos, "a body of the bytes");
  }
}

// A decoder whose encoder gives the same bytes back, up to what it does not keep apart.
template <typename Decode, typename Encode>
FuzzTarget body_target(const std::string& name, Decode decode, Encode encode, std::string seed) {
  return {name,
          [decode, encode](std::string_view bytes) {
            try {
              const std::string once = encode(decode(bytes));
              promise(encode(decode(once)) == once, "encode and decode belong together");
            } catch (const SystemError&) {
            }
          },
          {std::move(seed)},
          ""};
}

// The store as ranks reach it: frames, one after the other, of changing ranks.
void run_store(std::string_view bytes) {
  std::size_t replies = 0;
  StoreServer store([&](std::uint32_t rank, JobMessage type, const std::string& body) {
    promise(rank < 4 && type == JobMessage::kReply, "a reply to a rank that asked");
    promise(internal::encode_frame({type, 0, body}).size() > body.size(), "a reply fits a frame");
    BodyReader reader(body);
    (void)reader.u32();
    promise(reader.u8() <= StoreServer::kRefused, "a known status");
    (void)reader.text();
    promise(reader.at_end(), "nothing behind the value");
    ++replies;
  });
  std::uint32_t rank = 0;
  std::size_t requests = 0;
  for (const Frame& frame : frames_in(bytes, std::max<std::size_t>(bytes.size(), 1))) {
    if (!StoreServer::handles(frame.type)) {
      store.forget(rank);
      continue;
    }
    rank = (rank + 1) % 4;
    ++requests;
    try {
      store.handle(rank, frame);
    } catch (const SystemError&) {
      store.forget(rank);
    }
  }
  promise(replies <= requests, "at most one reply per request");
}

std::string store_seed() {
  const auto frame = [](JobMessage type, std::string body) {
    return internal::encode_frame({type, 0, std::move(body)});
  };
  return frame(JobMessage::kStoreSet, BodyWriter().text("key").text("1").take()) +
         frame(JobMessage::kStoreGet, BodyWriter().u32(1).text("key").take()) +
         frame(JobMessage::kStoreGet, BodyWriter().u32(2).text("later").take()) +
         frame(JobMessage::kStoreTryGet, BodyWriter().u32(3).text("none").take()) +
         frame(JobMessage::kStoreAdd, BodyWriter().u32(4).text("key").i64(41).take()) +
         frame(JobMessage::kStoreCompareSet,
               BodyWriter().u32(5).text("key").text("42").text("x").take()) +
         frame(JobMessage::kStoreAppend, BodyWriter().text("later").text("end").take()) +
         frame(JobMessage::kStoreDelete, BodyWriter().u32(6).text("key").take()) +
         frame(JobMessage::kStoreCount, BodyWriter().u32(7).take()) +
         frame(JobMessage::kStep, BodyWriter().u32(2).u64(3).u64(4).u64(5).take());
}

internal::Welcome welcome_seed() {
  internal::Welcome welcome;
  welcome.rank = 1;
  welcome.job_id = "job";
  welcome.secret = std::string(32, 's');
  welcome.node_of_rank = {0, 0, 1};
  welcome.addresses = {"10.0.0.1", ""};
  return welcome;
}

StartOrder order_seed() {
  StartOrder order;
  order.world_size = 4;
  order.ranks = {{0, 0, true}, {3, 1, false}};
  order.programs = {{"/tmp", {"./program", "--epoch", "1"}, {{"A", "b"}, {"OMP_NUM_THREADS", "1"}}},
                    {"/", {"./other"}, {}}};
  order.ignored_signals = {2, 10};
  return order;
}

// What helpers of three nodes say, one after the other.
void run_mpi_exchange(std::string_view bytes) {
  MpiExchange exchange({0, 0, 1, 2}, [](std::uint32_t node, const MpiMessage& message) {
    promise(node < 3, "an answer to a node that there is");
    promise(decode_mpi(encode_fields(message)).op == message.op, "an answer that can be read");
  });
  std::uint32_t node = 0;
  for (const Frame& frame : frames_in(bytes, std::max<std::size_t>(bytes.size(), 1))) {
    try {
      exchange.handle(node++ % 3, decode_mpi(frame.body));
    } catch (const SystemError&) {
    }
  }
}

std::string mpi_exchange_seed() {
  std::string bytes;
  for (const MpiOp op : {MpiOp::kGather, MpiOp::kGather, MpiOp::kGather, MpiOp::kFetch,
                         MpiOp::kAnswer, MpiOp::kLookup, MpiOp::kPublish, MpiOp::kUnpublish}) {
    const bool is_gather = op == MpiOp::kGather;
    MpiMessage message{op, 1, op == MpiOp::kLookup ? 1 : 0, "fence", {}, {{"name", "v"}}, "data"};
    if (!is_gather) message.ranks = {2};
    bytes += internal::encode_frame(make_frame(AgentMessage::kMpi, encode_fields(message)));
  }
  return bytes;
}

// One launcher's words; what is refused ends it.
void run_shared_texts(std::string_view bytes) {
  SharedTexts shared;
  try {
    for (const Frame& frame : frames_in(bytes, std::max<std::size_t>(bytes.size(), 1))) {
      shared.on_frame(frame);
      const std::uint32_t number = decode_tunnel_text(frame.body).tunnel;
      if (type_of(frame) == AgentMessage::kSharedDrop) continue;
      try {
        const std::string text = shared.text(number);
        promise(text.size() <= bytes.size(), "no more than was sent");
        promise(!shared.frames(number).empty(), "frames of what is whole");
      } catch (const SystemError&) {
      }
    }
  } catch (const SystemError&) {
  }
}

std::string shared_texts_seed() {
  std::string bytes;
  for (const std::uint32_t number : {1U, 2U}) {
    for (const auto& frame : cut_shared(number, "text")) bytes += *frame;
  }
  return bytes + internal::encode_frame(
                     make_frame(AgentMessage::kSharedDrop, encode_fields(TunnelText{1, ""})));
}

void run_pmi1(std::string_view line) {
  try {
    const auto words = parse_pmi1(line);
    promise(words.contains("cmd") || words.contains("mcmd"), "a command");
    for (const auto& [name, value] : words) {
      promise(line.find(name + "=" + value) != std::string_view::npos, "a word of the line");
    }
  } catch (const SystemError&) {
  }
}

void run_peer_link(std::string_view bytes) {
  try {
    ops::run_peer_link(bytes);
  } catch (const std::logic_error& broken) {
    promise(false, broken.what());
  }
}

void run_sealed_stream(std::string_view bytes) {
  try {
    ops::run_sealed_stream(bytes);
  } catch (const std::logic_error& broken) {
    promise(false, broken.what());
  }
}

}  // namespace

std::vector<FuzzTarget> frame_fuzz_targets() {
  std::vector<FuzzTarget> targets;
  targets.push_back(
      {"frame_reader",
       run_frames,
       {store_seed(), internal::encode_frame(make_frame(AgentMessage::kHeartbeat, ""))},
       ""});
  targets.push_back(body_target("agent_hello", decode_hello, encode_fields<AgentHello>,
                                encode_fields(AgentHello{"n1", 17, 4, "10.0.0.1,fd00::1", 40000})));
  targets.push_back(body_target("start_order", decode_order, encode_fields<StartOrder>,
                                encode_fields(order_seed())));
  targets.push_back(body_target("rank_exit", decode_exit, encode_fields<RankExit>,
                                encode_fields(RankExit{3, true, 9})));
  targets.push_back(body_target("welcome", internal::decode_welcome, internal::encode_welcome,
                                internal::encode_welcome(welcome_seed())));
  targets.push_back(
      body_target("mpi_message", decode_mpi, encode_fields<MpiMessage>,
                  encode_fields(MpiMessage{
                      MpiOp::kPublish, 7, 0, "fence", {0, 1}, {{"name", "value"}}, "data"})));
  targets.push_back(body_target(
      "mpi_order", decode_mpi_order, encode_fields<MpiOrder>,
      encode_fields(MpiOrder{MpiMode::kAuto, "chainmail-0123", 1, {0, 0, 1}, {"n1", "n2"}})));
  targets.push_back(body_target(
      "preload_list", decode_preload_list,
      [](const std::vector<PreloadedFile>& files) { return encode_preload_list(files).substr(1); },
      encode_preload_list({{"program", 7, 0755, 1}, {"data", 0, 0600, 0}}).substr(1)));
  targets.push_back(body_target("tunnel_order", decode_tunnel_order, encode_fields<TunnelOrder>,
                                encode_fields(TunnelOrder{7, {"ssh", "-T", "n9", "/bin/sh"}})));
  targets.push_back(body_target("tunnel_output", decode_tunnel_output, encode_fields<TunnelOutput>,
                                encode_fields(TunnelOutput{7, TunnelStream::kError, "bytes"})));
  targets.push_back(
      body_target("tunnel_end", decode_tunnel_end, encode_fields<TunnelEnd>,
                  encode_fields(TunnelEnd{7, TunnelEnd::How::kNotStarted, 1, "why"})));
  targets.push_back(body_target("tunnel_text", decode_tunnel_text, encode_fields<TunnelText>,
                                encode_fields(TunnelText{7, "text"})));
  targets.push_back(body_target("job_table", decode_table, encode_fields<JobTable>,
                                encode_fields(JobTable{welcome_seed(), {"n1", "n2"}})));
  targets.push_back({"shared_texts", run_shared_texts, {shared_texts_seed()}, ""});
  targets.push_back({"mpi_exchange", run_mpi_exchange, {mpi_exchange_seed()}, ""});
  targets.push_back({"pmi1",
                     run_pmi1,
                     {"cmd=put kvsname=job key=card value=tcp#1$2", "mcmd=spawn nprocs=1"},
                     ""});
  targets.push_back({"peer_link", run_peer_link, ops::peer_link_seeds(), ""});
  targets.push_back({"sealed_stream", run_sealed_stream, ops::sealed_stream_seeds(), ""});
  targets.push_back({"store", run_store, {store_seed()}, ""});
  return targets;
}

}  // namespace chainmail::launch
