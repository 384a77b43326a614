// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What agents report and what ranks ask for.

#include <string.h>

#include <cerrno>
#include <sstream>

#include "base/error.h"
#include "launcher/controller/controller.h"

namespace chainmail::launch {
namespace {

using internal::BodyReader;
using internal::BodyWriter;
using internal::Frame;
using internal::JobMessage;

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

void Controller::on_frame(std::uint32_t node, const Frame& frame) {
  switch (type_of(frame)) {
    case AgentMessage::kHeartbeat:
      break;
    case AgentMessage::kRankStarted:
      on_rank_started(node, frame);
      break;
    case AgentMessage::kInputTaken:
      on_input_taken(node, frame);
      break;
    case AgentMessage::kStartFailed:
      on_start_failed(node, frame);
      break;
    case AgentMessage::kRankExited:
      on_rank_exited(node, decode_exit(frame.body));
      break;
    case AgentMessage::kRankStopped:
      on_rank_stopped(node, frame);
      break;
    case AgentMessage::kOutput:
      on_output(node, frame);
      break;
    case AgentMessage::kRankBytes:
      on_rank_bytes(node, frame);
      break;
    case AgentMessage::kMpi:
      on_mpi(node, frame);
      break;
    case AgentMessage::kTunnelOutput:
    case AgentMessage::kTunnelEnded:
    case AgentMessage::kTunnelNoImage:
      if (tunnels_.on_frame(node, frame)) reap_agents();
      break;
    case AgentMessage::kPreload:
      on_preload(node, frame);
      break;
    case AgentMessage::kSignalled:
      on_agent_signalled(node, frame);
      break;
    case AgentMessage::kAllExited:
      nodes_[node].all_exited = true;
      end_if_all_exited();
      break;
    case AgentMessage::kAgentHello:
    case AgentMessage::kStartPart:
    case AgentMessage::kStart:
    case AgentMessage::kSignalRanks:
    case AgentMessage::kOutputTaken:
    case AgentMessage::kLeave:
    case AgentMessage::kRankInput:
    case AgentMessage::kTunnelOpen:
    case AgentMessage::kTunnelInput:
    case AgentMessage::kTunnelImage:
    case AgentMessage::kTunnelKill:
    case AgentMessage::kPassSignal:
    case AgentMessage::kLease:
    case AgentMessage::kTunnelUrgent:
    case AgentMessage::kTunnelShared:
    case AgentMessage::kSharedPart:
    case AgentMessage::kSharedDrop:
    case AgentMessage::kTable:
    case AgentMessage::kWelcomeRank:
    case AgentMessage::kNews:
    case AgentMessage::kSharedMpi:
      throw SystemError("agent protocol: message for an agent came to the controller", EPROTO);
  }
}

// An agent speaks for its own ranks only.
std::uint32_t Controller::checked_rank(std::uint32_t node, std::uint32_t rank) const {
  if (rank >= ranks_.size()) {
    throw SystemError("agent protocol: there is no rank " + std::to_string(rank), EPROTO);
  }
  if (ranks_[rank].node != node) {
    throw SystemError("agent protocol: rank " + std::to_string(rank) + " is on host " +
                          host_of(rank) + ", not on " + placement_.nodes[node].name,
                      EPROTO);
  }
  return rank;
}

void Controller::on_output(std::uint32_t node, const Frame& frame) {
  BodyReader body(frame.body);
  const std::uint32_t rank = checked_rank(node, body.u32());
  const std::uint8_t stream = body.u8();
  if (stream != 1 && stream != 2) throw SystemError("agent protocol: no such stream", EPROTO);
  std::string text = body.text();
  if (stream == 2) ranks_[rank].last_error_lines.append(text);
  output_->write(rank, stream, std::move(text));
}

void Controller::on_input_taken(std::uint32_t node, const Frame& frame) {
  BodyReader body(frame.body);
  const std::uint32_t rank = checked_rank(node, body.u32());
  if (!input_) return;
  if (body.u8() != 0) {
    input_->on_taken(rank);
  } else {
    input_->on_gone(rank);
  }
}

void Controller::on_start_failed(std::uint32_t node, const Frame& frame) {
  BodyReader body(frame.body);
  const std::uint32_t rank = checked_rank(node, body.u32());
  const int error = static_cast<int>(body.u32());
  const std::string stage = body.text();
  const std::string path = body.text();
  const std::string on_host = " on host " + host_of(rank);
  const std::string why = strerror(error);
  if (stage.starts_with("late ")) return fail_late_start(rank, stage, path);
  if (stage == "chdir") {
    return fail({std::nullopt, exit_code::kLauncherError,
                 "the working directory " + path + " cannot be entered" + on_host + ": " + why +
                     "; start the job from a folder that every host has, or name one by --wdir"});
  }
  if (stage == "bind") {
    return fail({std::nullopt, exit_code::kLauncherError, "host " + host_of(rank) + ": " + path});
  }
  if (stage == "spawn") {
    return fail(
        {std::nullopt, exit_code::kLauncherError,
         "cannot start rank " + std::to_string(rank) + on_host + ": " + why +
             (error == EMFILE || error == ENFILE
                  ? "; each rank takes up to eight open files of the agent there: raise the limit "
                    "(ulimit -Hn), take fewer by --mpi none, or use more hosts"
                  : "")});
  }
  if (path.size() > 3 && path.compare(path.size() - 3, 3, ".py") == 0) {
    return fail({std::nullopt, error == EACCES ? exit_code::kCannotExecute : exit_code::kNotFound,
                 "program cannot be executed" + on_host + ": " + path + ": " + why +
                     "; a Python script is run as: launcher ... python3 " + path + " ..."});
  }
  if (error == ENOENT || error == ENOTDIR) {
    const bool has_slash = path.find('/') != std::string::npos;
    return fail(
        {std::nullopt, exit_code::kNotFound,
         "program not found" + on_host + ": " + path +
             (has_slash ? " (or the interpreter that it names)"
                        : " is not in PATH; for a program of this folder write ./" + path)});
  }
  fail({std::nullopt, exit_code::kCannotExecute,
        "program cannot be executed" + on_host + ": " + path + ": " + why});
}

void Controller::fail_late_start(std::uint32_t rank, const std::string& stage,
                                 const std::string& path) {
  std::string what;
  const std::size_t slash = path.rfind('/');
  if (stage == "late chdir") {
    what = "its working directory " + path + " does not answer (chdir)";
  } else if (stage == "late search" && slash != std::string::npos) {
    what = "the folder " + path.substr(0, slash) + " of its PATH, where " + path.substr(slash + 1) +
           " is looked for, does not answer (stat)";
  } else {
    what = "its program " + path + " does not come from its file system (exec)";
  }
  std::ostringstream limit;
  limit << static_cast<double>(start_timeout().count()) / 1000;
  fail({std::nullopt, exit_code::kLauncherError,
        "rank " + std::to_string(rank) + " on host " + host_of(rank) + " has not started within " +
            limit.str() + " s: " + what +
            "; look at that file system there, or allow more time by --start-timeout"});
}

void Controller::on_rank_bytes(std::uint32_t node, const Frame& frame) {
  BodyReader body(frame.body);
  const std::uint32_t number = checked_rank(node, body.u32());
  const std::string bytes = body.text();
  Rank& rank = ranks_[number];
  try {
    rank.requests.append(std::as_bytes(std::span(bytes.data(), bytes.size())));
    while (auto request = rank.requests.next()) on_rank_message(number, *request);
  } catch (const Error& error) {
    // One rank's nonsense must not take the agent's channel down with it.
    rank.requests = {};
    const char* what = dynamic_cast<const StoreFull*>(&error) != nullptr
                           ? "has asked for too much: "
                           : "sent what cannot be understood: ";
    fail({number, exit_code::kLauncherError, what + std::string(error.what())});
  }
}

void Controller::on_rank_message(std::uint32_t rank, const Frame& frame) {
  if (frame.generation != generation_) return;  // a late word of a world that is gone
  if (StoreServer::handles(frame.type)) return store_.handle(rank, frame);
  switch (frame.type) {
    case JobMessage::kHello:
      return send_welcome(rank);
    case JobMessage::kGroupFailed:
      return on_group_failed(rank, frame);
    case JobMessage::kStep:
      return on_step(rank, frame);
    default:  // a number from outside, any value
      throw SystemError("message of type " + std::to_string(static_cast<unsigned>(frame.type)) +
                            " is not for the launcher",
                        EPROTO);
  }
}

// From now on other ranks that fail have heard of this, by themselves or by the news.
void Controller::on_group_failed(std::uint32_t rank, const Frame& frame) {
  BodyReader body(frame.body);
  (void)body.text();
  const std::uint32_t code = body.u32();
  const std::string message = body.text();
  const std::int64_t peer = body.i64();
  EventLog::Members members = about(rank);
  members["error"] = message;
  events_.record("group_failed", members);
  const std::int64_t first = who_failed(static_cast<ErrorCode>(code), rank, peer);
  if (first >= 0 && first < static_cast<std::int64_t>(ranks_.size())) {
    verdict_.add(Blame{static_cast<std::uint32_t>(first), message},
                 std::chrono::steady_clock::now());
  }
  tell_ranks(JobMessage::kNewsGroupFailed, rank, BodyWriter().u32(rank).take() + frame.body);
}

void Controller::send_to_rank(std::uint32_t rank, JobMessage type, std::string body) {
  const Node& node = nodes_[ranks_[rank].node];
  if (ranks_[rank].is_gone || !node.link) return;
  const std::string bytes = internal::encode_frame({type, generation_, std::move(body)});
  // A frame of full length does not fit into another one with its rank in front.
  constexpr std::size_t kPieceBytes = 256 << 10;
  for (std::size_t at = 0; at < bytes.size(); at += kPieceBytes) {
    node.link->send(
        AgentMessage::kRankBytes,
        BodyWriter().u32(rank).text(std::string_view(bytes).substr(at, kPieceBytes)).take());
  }
}

}  // namespace chainmail::launch
