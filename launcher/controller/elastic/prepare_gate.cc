// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/controller/elastic/prepare_gate.h"

#include <asio/post.hpp>
#include <stdexcept>
#include <utility>
#include <vector>

#include "launcher/command_line/parse.h"
#include "launcher/controller/starting/host_preparation.h"
#include "launcher/controller/starting/rank_start_failure.h"
#include "launcher/controller/state/root_cause.h"

namespace chainmail::launch {
namespace {

using internal::BodyReader;
using internal::BodyWriter;
using internal::Frame;
using membership::HostId;

}  // namespace

membership::WorldEvent lost_in_gate(HostId host, const std::string& cause, bool has_ranks) {
  if (has_ranks) return membership::PrepareEnded{host, false, cause, true};
  return membership::HostLost{host, cause};
}

PrepareGate::PrepareGate(JobState& job, AgentStarts& starts, WorldHosts& hosts,
                         WatchedFolder& folder, std::string folder_name, Callbacks callbacks)
    : job_(job),
      starts_(starts),
      hosts_(hosts),
      folder_(folder),
      folder_name_(std::move(folder_name)),
      callbacks_(std::move(callbacks)) {}

std::string PrepareGate::name_of(HostId host) const {
  return "prepare_data_success_" + hosts_[host].asked.name;
}

std::string PrepareGate::path_of(HostId host) const { return folder_name_ + "/" + name_of(host); }

void PrepareGate::on(const membership::Prepare& action) {
  const std::string name = name_of(action.host);
  if (action.is_running && callbacks_.is_unmade(name)) {
    return callbacks_.on_ended({action.host, true, "prepared before"});
  }
  if (action.is_running) {
    awaited_[name] = action.host;
    folder_.ask_for(name);
    return;
  }
  awaited_.erase(name);
  folder_.forget(name);
  end_runs(action.host);
}

void PrepareGate::stop() {
  awaited_.clear();
  for (auto& [node, run] : runs_) {
    job_.agents.retire(node);
    let_go(run);
  }
  runs_.clear();
}

// The loop must not wait for a file system.
void PrepareGate::let_go(Run& run) {
  if (!run.files) return;
  run.files->end();
  ended_files_.push_back(std::move(run.files));
}

std::string PrepareGate::finish() {
  std::string loss;
  for (const std::unique_ptr<HostFiles>& files : ended_files_) {
    const std::string one = files->finish();
    if (loss.empty()) loss = one;
  }
  return loss;
}

std::vector<HostId> PrepareGate::hosts() const {
  std::vector<HostId> hosts;
  for (const auto& [node, run] : runs_) hosts.push_back(run.host);
  return hosts;
}

void PrepareGate::on_there(const std::string& name) {
  const auto found = awaited_.find(name);
  if (found == awaited_.end()) return;
  const HostId host = found->second;
  callbacks_.note("Found prepare data success file:" + path_of(host) + ". Adding privateip:" +
                  hosts_[host].asked.name + " to current_valid_elastic_worker");
  end(host, true, name + " is there");
}

void PrepareGate::on_missing(const std::string& name) {
  const auto found = awaited_.find(name);
  if (found == awaited_.end()) return;
  callbacks_.note("Prepare data success file " + path_of(found->second) + " not found yet.");
  if (!job_.options.elastic.prepare.empty()) begin_run(found->second);
}

void PrepareGate::begin_run(HostId host) {
  const std::uint32_t node = job_.add_node(hosts_[host].asked);
  Run& run = runs_[node];
  run.host = host;
  if (const std::string& folder = job_.options.preparation.output_folder; !folder.empty()) {
    run.files = std::make_unique<HostFiles>(
        folder, std::vector<std::string>{hosts_[host].asked.name}, /*goes_on=*/true,
        [this, node] { asio::post(job_.io, [this, node] { make_room(node); }); });
  }
  try {
    starts_.start_added(node);
  } catch (const std::runtime_error& error) {  // UsageError: what the line asks for is impossible
    const std::string cause = error.what();
    job_.say("launcher: " + cause);
    end(runs_.at(node).host, false, cause.substr(0, cause.find('\n')));
  }
}

void PrepareGate::on_hello() {
  for (auto& [node, run] : runs_) {
    AgentLink* const link = job_.agents[node].link.get();
    if (run.is_ordered || link == nullptr || !link->hello()) continue;
    run.is_ordered = true;
    hosts_[run.host].addresses = link->hello()->addresses;
    StartOrder order = callbacks_.make_order(node);
    const Preparation& asked = job_.options.preparation;
    order_preparation(asked,
                      asked.words.empty() ? split_command(job_.options.elastic.prepare, "--prepare")
                                          : asked.words,
                      order);
    job_.agents[node].all_exited = false;
    link->send_order(order);
  }
}

bool PrepareGate::on_frame(std::uint32_t node, const Frame& frame) {
  const auto found = runs_.find(node);
  if (found == runs_.end()) return false;
  switch (type_of(frame)) {
    case AgentMessage::kOutput:
      on_output(found->second, node, frame);
      return true;
    case AgentMessage::kRankExited:
      on_exited(node, decode_exit(frame.body));
      return true;
    case AgentMessage::kStartFailed:
      on_start_failed(node, frame);
      return true;
    case AgentMessage::kRankStarted:
    case AgentMessage::kRankStopped:
    case AgentMessage::kRankBytes:
    case AgentMessage::kInputTaken:
      return true;  // it is no rank
    default:        // a number from outside, any value
      return false;
  }
}

void PrepareGate::on_output(Run& run, std::uint32_t node, const Frame& frame) {
  BodyReader body(frame.body);
  const std::uint32_t rank = body.u32();
  const std::uint8_t stream = body.u8();
  std::string text = body.text();
  run.last_lines.append(text);
  if (run.files) return run.files->write(0, stream, std::move(text));
  job_.agents.send(
      node, AgentMessage::kOutputTaken,
      BodyWriter().u32(rank).u8(stream).u32(static_cast<std::uint32_t>(text.size())).take());
}

// What has been written makes room for more.
void PrepareGate::make_room(std::uint32_t node) {
  const auto found = runs_.find(node);
  if (found == runs_.end()) return;
  for (const HostFiles::Written& written : found->second.files->take_written()) {
    job_.agents.send(node, AgentMessage::kOutputTaken,
                     BodyWriter().u32(0).u8(written.stream).u32(written.bytes).take());
  }
}

void PrepareGate::on_exited(std::uint32_t node, const RankExit& exit) {
  const Run& run = runs_.at(node);
  const HostId host = run.host;
  const std::string cause = describe(exit);
  if (code_of(exit) == 0) {
    const bool is_made = callbacks_.make_file(name_of(host));
    callbacks_.note((is_made ? "Found prepare data success file:" + path_of(host)
                             : std::string("Prepare data has succeeded")) +
                    ". Adding privateip:" + hosts_[host].asked.name +
                    " to current_valid_elastic_worker");
  } else {
    const std::string what =
        job_.options.job.is_on() ? "the preparation of host " : "--prepare on host ";
    job_.say("launcher: " + what + hosts_[host].asked.name + " " + cause +
             (run.last_lines.is_empty() ? "" : "; its last lines:" + run.last_lines.quoted()));
  }
  end(host, code_of(exit) == 0, cause);
}

void PrepareGate::on_start_failed(std::uint32_t node, const Frame& frame) {
  const RankStartFailure failure =
      start_failure_of(frame.body, job_.agents[node].host, job_.options.container.image);
  const std::string cause =
      explain(failure, job_.options.start_timeout.value_or(std::chrono::minutes(5))).cause;
  job_.say("launcher: " +
           std::string(job_.options.job.is_on() ? "the preparation: " : "--prepare: ") + cause);
  end(runs_.at(node).host, false, cause);
}

bool PrepareGate::on_agent_lost(std::uint32_t node, const std::string& cause) {
  if (!runs_.contains(node)) return false;
  lose(node, cause);
  return true;
}

void PrepareGate::lose(std::uint32_t node, const std::string& cause) {
  const HostId host = runs_.at(node).host;
  awaited_.erase(name_of(host));
  folder_.forget(name_of(host));
  end_runs(host);
  callbacks_.on_host_lost(host, cause);
}

void PrepareGate::end(HostId host, bool has_succeeded, const std::string& cause) {
  awaited_.erase(name_of(host));
  folder_.forget(name_of(host));
  end_runs(host);
  callbacks_.on_ended({host, has_succeeded, cause});
}

void PrepareGate::end_runs(HostId host) {
  for (auto run = runs_.begin(); run != runs_.end();) {
    if (run->second.host != host) {
      ++run;
      continue;
    }
    job_.agents.retire(run->first);
    let_go(run->second);
    run = runs_.erase(run);
  }
}

}  // namespace chainmail::launch
