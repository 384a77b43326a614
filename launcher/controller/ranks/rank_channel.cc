// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/controller/ranks/rank_channel.h"

#include <cerrno>
#include <utility>

#include "base/error.h"

namespace chainmail::launch {
namespace {

using internal::BodyReader;
using internal::BodyWriter;
using internal::Frame;
using internal::JobMessage;

// Of groups that end by one failure, and of ranks that are lost, each of which goes to every node:
// enough to end whatever waits.
constexpr int kMostFailuresTold = 64;
// Longer news would travel in pieces, between which urgent messages may come.
constexpr std::size_t kMostNewsBytes = std::size_t{192} << 10;
// Each rank that waits asks for all of it.
constexpr std::size_t kMostEndedBytes = std::size_t{128} << 10;

// The rank that failed first by what `announcer` says, or -1 where it blames nobody: `peer` of a
// PeerError, which is itself when it ends the group for a reason of its own.
std::int64_t who_failed(ErrorCode code, std::uint32_t announcer, std::int64_t peer) {
  switch (code) {
    case ErrorCode::kPeer:
      return peer;
    case ErrorCode::kSystem:
    case ErrorCode::kMpi:
    case ErrorCode::kNccl:
    case ErrorCode::kCuda:
    case ErrorCode::kCheckpoint:
    case ErrorCode::kInvalidArgument:
      return announcer;
    case ErrorCode::kMismatch:
    case ErrorCode::kTimeout:
      break;
  }
  return -1;
}

}  // namespace

RankChannel::RankChannel(JobState& job, Callbacks callbacks, std::function<Time()> now)
    : job_(job),
      callbacks_(std::move(callbacks)),
      store_([this](std::uint32_t rank, JobMessage type, std::string body) {
        send(rank, type, std::move(body));
      }),
      now_(std::move(now)) {}

// Every node is reached as it will be from here on.
void RankChannel::send_table(const std::vector<std::string>& mpi_node_names) {
  job_.agents.settle();
  JobTable all = table();
  all.mpi_node_names = mpi_node_names;
  job_.agents.send_shared_to_all(AgentMessage::kTable, encode_fields(all));
}

void RankChannel::send_table_to(std::uint32_t node) {
  job_.agents.settle();
  job_.agents.send_shared({node}, AgentMessage::kTable, encode_fields(table()));
}

JobTable RankChannel::table() const {
  JobTable table;
  table.welcome.job_id = job_.id;
  table.welcome.secret = job_.secret;
  table.welcome.node_of_rank = job_.ranks.nodes();
  for (const Agents::Node& node : job_.agents) {
    const bool is_up = node.link && node.link->hello();
    table.welcome.addresses.push_back(is_up ? node.link->hello()->addresses : "");
  }
  table.welcome.is_elastic = job_.options.elastic.has_members();
  if (table.welcome.is_elastic) {
    // Any number of members may be gone by now, and nobody asks where those were.
    std::vector<std::uint32_t>& nodes = table.welcome.node_of_rank;
    for (std::uint32_t rank = 1; rank < nodes.size(); ++rank) {
      if (job_.ranks[rank].is_gone) nodes[rank] = nodes[rank - 1];
    }
    table.welcome.grace_ms = static_cast<std::uint32_t>(elastic_grace(job_.options).count());
  }
  return table;
}

void RankChannel::tell_member(std::uint32_t rank, const membership::LauncherWord& word) {
  send(rank, JobMessage::kToMember, membership::encode(word));
}

void RankChannel::forget_world(membership::Generation generation) {
  for (const std::string& prefix : membership::key_prefixes(generation)) store_.erase_all(prefix);
  // Of those that ended earlier none is in a world that somebody can still be in.
  store_.erase_all(internal::kEndedRanksKey);
  append_ended(std::exchange(ended_lately_, {}));
}

void RankChannel::on_bytes(std::uint32_t node, const Frame& frame) {
  BodyReader body(frame.body);
  const std::uint32_t number = job_.ranks.checked(node, body.u32());
  const std::string bytes = body.text();
  RankTable::Rank& rank = job_.ranks[number];
  try {
    rank.requests.append(std::as_bytes(std::span(bytes.data(), bytes.size())));
    while (auto request = rank.requests.next()) on_message(number, *request);
  } catch (const Error& error) {
    // It must not take the agent's channel down.
    rank.requests = {};
    const char* what = dynamic_cast<const StoreFull*>(&error) != nullptr
                           ? "has asked for too much: "
                           : "sent what cannot be understood: ";
    callbacks_.fail({number, exit_code::kLauncherError, what + std::string(error.what())});
  }
}

void RankChannel::on_message(std::uint32_t rank, const Frame& frame) {
  if (frame.generation != job_.generation) return;  // a late word of a world that is gone
  if (StoreServer::handles(frame.type)) return store_.handle(rank, frame);
  switch (frame.type) {
    case JobMessage::kHello:
      if (!std::exchange(has_listeners_, true) && callbacks_.on_first_word) {
        callbacks_.on_first_word();
      }
      return job_.agents.send(job_.ranks[rank].node, AgentMessage::kWelcomeRank,
                              BodyWriter().u32(rank).take());
    case JobMessage::kGroupFailed:
      return on_group_failed(rank, frame);
    case JobMessage::kFromMember:
      if (!callbacks_.on_member) throw SystemError("this job is not elastic", EPROTO);
      return callbacks_.on_member(rank, membership::decode_member_message(frame.body));
    case JobMessage::kFixedSize:
      if (!callbacks_.on_fixed_size) throw SystemError("this job is not elastic", EPROTO);
      return callbacks_.on_fixed_size(rank);
    case JobMessage::kStep: {
      BodyReader body(frame.body);
      const membership::Generation world = body.u32();
      const std::uint64_t steps = body.u64();
      const std::uint64_t operations = body.u64();
      const std::chrono::microseconds shard_time(body.u64());
      callbacks_.on_step(rank, {steps, operations, world});
      if (shard_time.count() > 0 && callbacks_.on_shard_time) {
        callbacks_.on_shard_time(rank, shard_time);
      }
      return;
    }
    default:  // a number from outside, any value
      throw SystemError("message of type " + std::to_string(static_cast<unsigned>(frame.type)) +
                            " is not for the launcher",
                        EPROTO);
  }
}

// From now on other ranks that fail have heard of this, by themselves or by the news.
void RankChannel::on_group_failed(std::uint32_t rank, const Frame& frame) {
  BodyReader body(frame.body);
  (void)body.text();
  const std::uint32_t code = body.u32();
  const std::string message = body.text();
  const std::int64_t peer = body.i64();
  EventLog::Members members = job_.ranks.about(rank);
  members["error"] = message;
  job_.events.record("group_failed", members);
  const std::int64_t first = who_failed(static_cast<ErrorCode>(code), rank, peer);
  if (first >= 0 && first < static_cast<std::int64_t>(job_.ranks.size())) {
    callbacks_.on_blame(Blame{static_cast<std::uint32_t>(first), message});
  }
  tell(JobMessage::kNewsGroupFailed, rank, BodyWriter().u32(rank).take() + frame.body);
}

void RankChannel::send(std::uint32_t rank, JobMessage type, std::string body) {
  if (job_.ranks[rank].is_gone) return;
  const std::string bytes = internal::encode_frame({type, job_.generation, std::move(body)});
  // A frame of full length does not fit into another one with its rank in front.
  constexpr std::size_t kPieceBytes = 256 << 10;
  for (std::size_t at = 0; at < bytes.size(); at += kPieceBytes) {
    job_.agents.send(
        job_.ranks[rank].node, AgentMessage::kRankBytes,
        BodyWriter().u32(rank).text(std::string_view(bytes).substr(at, kPieceBytes)).take());
  }
}

void RankChannel::tell_lost(std::uint32_t rank, const std::string& cause) {
  tell(JobMessage::kNewsRankLost, rank,
       BodyWriter().u32(rank).text(job_.ranks.host_of(rank)).text(cause).take());
}

void RankChannel::tell_ending(const std::string& reason) {
  tell(JobMessage::kNewsEnding, kNobody, BodyWriter().text(reason).take());
}

void RankChannel::list_ended(std::uint32_t rank, const std::string& cause) {
  const std::string entry = internal::encode_ended({rank, job_.ranks.host_of(rank), cause});
  if (!job_.options.elastic.has_members()) return append_ended(entry);
  ended_lately_ += entry;
  // A host may fail again and again while the world stays; nobody waits for those ranks.
  if (ended_lately_.size() > kMostEndedBytes) {
    store_.erase_all(internal::kEndedRanksKey);
    ended_lately_ = entry;
  }
  append_ended(entry);
}

void RankChannel::append_ended(const std::string& entries) {
  try {
    store_.append(internal::kEndedRanksKey, entries);
  } catch (const StoreFull&) {
    // The job goes on; only its time limits tell then.
  }
}

// A rank that is lost ends the job; a group that has failed need not, and after a while it is
// another failure.
bool RankChannel::may_tell(JobMessage type) {
  // An elastic job outlives any number of ranks.
  if (type == JobMessage::kNewsRankLost) {
    return job_.options.elastic.has_members() || ++losses_told_ <= kMostFailuresTold;
  }
  if (type != JobMessage::kNewsGroupFailed) return true;
  const Time now = now_();
  if (now - std::exchange(group_failed_at_, now) > kOneFailure) group_failures_told_ = 0;
  return ++group_failures_told_ <= kMostFailuresTold;
}

void RankChannel::tell(JobMessage type, std::uint32_t except, const std::string& body) {
  if (!has_news_ || body.size() > kMostNewsBytes) return;
  if (!may_tell(type)) return;
  job_.agents.send_to_running(
      AgentMessage::kNews,
      BodyWriter().u32(static_cast<std::uint32_t>(type)).u32(except).text(body).take());
}

}  // namespace chainmail::launch
