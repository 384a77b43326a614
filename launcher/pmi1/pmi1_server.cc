// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/pmi1/pmi1_server.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <charconv>

#include "base/error.h"
#include "base/job/job_protocol.h"
#include "launcher/mpi/mpi_exchange.h"
#include "launcher/pmi1/pmi1_command.h"
#include "launcher/process/fork_exec.h"

namespace chainmail::launch {
namespace {

using internal::UniqueFd;

constexpr const char* kBarrier = "pmi1";
// Its requests and the PMIx helper's share one channel.
constexpr std::uint64_t kOwnIds = std::uint64_t{1} << 63;
// Values of one node between two barriers; MPICH puts a few per rank.
constexpr std::size_t kMaxFresh = 1 << 16;

int number_in(const std::string& text) {
  int value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

}  // namespace

Pmi1Server::Pmi1Server(asio::io_context& io, const MpiOrder& order, Send send)
    : io_(io), job_(order.name), size_(order.node_of_rank.size()), send_(std::move(send)) {
  for (const std::uint32_t rank : order.ranks_of(order.node)) ranks_[rank] = {};
  values_["PMI_process_mapping"] = pmi1_process_mapping(order.node_of_rank);
}

Pmi1Server::~Pmi1Server() {
  for (auto& [number, rank] : ranks_) {
    if (rank.stream) rank.stream->close();
  }
}

UniqueFd Pmi1Server::socket_for(std::uint32_t rank) {
  SocketPair pair(SOCK_STREAM);
  UniqueFd writer(fcntl(pair.ours.get(), F_DUPFD_CLOEXEC, 3));
  if (!writer.is_open()) throw system_error("cannot make a socket for MPI");
  auto& stream = ranks_.at(rank).stream;
  stream = ByteStream::make(io_, std::move(pair.ours), std::move(writer),
                            {.on_bytes = [this, rank](const auto& b) { receive(rank, b); }});
  stream->start();
  return std::move(pair.theirs);
}

bool Pmi1Server::is_inside(std::uint32_t rank) const {
  const auto found = ranks_.find(rank);
  return found != ranks_.end() && found->second.is_inside;
}

void Pmi1Server::on_rank_exit(std::uint32_t rank) {
  const auto found = ranks_.find(rank);
  if (found == ranks_.end() || !found->second.stream) return;
  found->second.stream->drain();
  found->second.stream->close();
}

void Pmi1Server::receive(std::uint32_t rank, std::span<const std::byte> bytes) {
  Rank& speaker = ranks_.at(rank);
  speaker.unread.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  try {
    for (std::size_t end = speaker.unread.find('\n'); end != std::string::npos;
         end = speaker.unread.find('\n')) {
      const std::string line = speaker.unread.substr(0, end);
      speaker.unread.erase(0, end + 1);
      obey(rank, line);
    }
    if (speaker.unread.size() > kPmi1MaxLine)
      throw SystemError("PMI-1: a line without end", EPROTO);
  } catch (const SystemError& error) {
    speaker.stream->close();
    abort(rank, 1, error.what());
  }
}

void Pmi1Server::obey(std::uint32_t rank, const std::string& line) {
  Rank& speaker = ranks_.at(rank);
  // Processes beyond the job's own would be nobody's ranks. The request has many lines.
  if (speaker.is_in_spawn) {
    if (line != "endcmd") return;
    speaker.is_in_spawn = false;
    return say(rank, "cmd=spawn_result rc=-1 errmsg=the_launcher_starts_no_further_ranks");
  }
  Words words = parse_pmi1(line);
  if (words.contains("mcmd")) {
    speaker.is_in_spawn = true;
    return;
  }
  const std::string command = words["cmd"];
  if (command == "init") {
    speaker.is_inside = true;
    const bool is_known = words["pmi_version"] == "1";
    say(rank, std::string("cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=") +
                  (is_known ? "0" : "-1"));
  } else if (command == "get_maxes") {
    say(rank, "cmd=maxes kvsname_max=" + std::to_string(kPmi1MaxName) + " keylen_max=" +
                  std::to_string(kPmi1MaxKey) + " vallen_max=" + std::to_string(kPmi1MaxValue));
  } else if (command == "get_appnum") {
    say(rank, "cmd=appnum appnum=0");
  } else if (command == "get_my_kvsname") {
    say(rank, "cmd=my_kvsname kvsname=" + job_);
  } else if (command == "get_universe_size") {
    say(rank, "cmd=universe_size size=" + std::to_string(size_));
  } else if (command == "put") {
    put(rank, words);
  } else if (command == "get") {
    get(rank, words);
  } else if (command == "barrier_in") {
    enter_barrier();
  } else if (command == "finalize") {
    speaker.is_inside = false;
    say(rank, "cmd=finalize_ack");
  } else if (command == "abort") {
    abort(rank, number_in(words["exitcode"]), {});
  } else {
    obey_names(rank, command, words);
  }
}

void Pmi1Server::obey_names(std::uint32_t rank, const std::string& command, Words& words) {
  constexpr std::pair<std::string_view, MpiOp> kVerbs[] = {
      {"publish", MpiOp::kPublish}, {"unpublish", MpiOp::kUnpublish}, {"lookup", MpiOp::kLookup}};
  for (const auto& [verb, op] : kVerbs) {
    if (command != std::string(verb) + "_name") continue;
    asked_[kOwnIds | ++last_id_] = {rank, std::string(verb) + "_result"};
    return send_({.op = op,
                  .id = kOwnIds | last_id_,
                  .ranks = {rank},
                  .entries = {{words["service"], words["port"]}}});
  }
  throw SystemError("PMI-1: the launcher does not know the command " + command.substr(0, 80),
                    EPROTO);
}

void Pmi1Server::answer_name(const MpiMessage& message) {
  const auto found = asked_.find(message.id);
  if (found == asked_.end()) return;
  const Asked asked = found->second;
  asked_.erase(found);
  std::string line = "cmd=" + asked.command;
  if (message.status != kMpiGood) {
    return say(asked.rank, line + " info=not_ok rc=1 msg=no_such_name_or_taken");
  }
  line += " info=ok rc=0 msg=success";
  if (!message.entries.empty()) line += " port=" + message.entries.front().value;
  say(asked.rank, line);
}

void Pmi1Server::put(std::uint32_t rank, Words& words) {
  const std::string& key = words["key"];
  const std::string& value = words["value"];
  const bool is_good = !key.empty() && key.size() <= kPmi1MaxKey && value.size() <= kPmi1MaxValue &&
                       fresh_.size() < kMaxFresh;
  if (!is_good) return say(rank, "cmd=put_result rc=-1 msg=key_or_value_too_long_or_too_many");
  values_[key] = value;
  fresh_.push_back({key, value});
  say(rank, "cmd=put_result rc=0 msg=success");
}

void Pmi1Server::get(std::uint32_t rank, Words& words) {
  const auto found = values_.find(words["key"]);
  if (found == values_.end()) {
    return say(rank, "cmd=get_result rc=-1 msg=key_not_found value=unknown");
  }
  say(rank, "cmd=get_result rc=0 msg=success value=" + found->second);
}

// The last rank of this node that comes speaks for all.
void Pmi1Server::enter_barrier() {
  if (++waiting_ < ranks_.size()) return;
  waiting_ = 0;
  internal::BodyWriter body;
  for (const MpiEntry& entry : std::exchange(fresh_, {})) body.text(entry.key).text(entry.value);
  send_({.op = MpiOp::kGather, .key = kBarrier, .data = body.take()});
}

bool Pmi1Server::handle(const MpiMessage& message) {
  if (message.op == MpiOp::kGathered && message.key == kBarrier) {
    leave_barrier(message);
    return true;
  }
  if (message.op != MpiOp::kAnswer || (message.id & kOwnIds) == 0) return false;
  answer_name(message);
  return true;
}

void Pmi1Server::leave_barrier(const MpiMessage& message) {
  internal::BodyReader body(message.data);
  while (!body.at_end()) {
    std::string key = body.text();
    values_[std::move(key)] = body.text();
  }
  for (const auto& [number, rank] : ranks_) say(number, "cmd=barrier_out rc=0");
}

void Pmi1Server::say(std::uint32_t rank, const std::string& line) {
  const auto& stream = ranks_.at(rank).stream;
  if (stream) stream->write(line + "\n");
}

void Pmi1Server::abort(std::uint32_t rank, int code, const std::string& words) {
  send_({.op = MpiOp::kAbort, .status = code, .ranks = {rank}, .data = words});
}

}  // namespace chainmail::launch
