// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/controller/controller.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <set>

#include "base/error.h"
#include "launcher/controller/ending/container_cleanup.h"
#include "launcher/controller/starting/rank_start_failure.h"
#include "launcher/files/agent_folders.h"
#include "launcher/hosts/this_machine.h"
#include "launcher/job/environment.h"
#include "launcher/job/expansion.h"
#include "launcher/mpi/service/pmix_helper.h"
#include "launcher/process/children.h"

namespace chainmail::launch {
namespace {

using internal::BodyReader;
using internal::BodyWriter;
using internal::Frame;

}  // namespace

Controller::Controller(Options options, Placement placement, std::string launcher_path,
                       JobDirectory& directory, std::vector<int> ignored_signals,
                       std::uint32_t generation, HostSet hosts, JobObserver observer)
    : hosts_(std::move(hosts)),
      job_(std::move(options), std::move(placement), directory, generation),
      observed_(std::move(observer)),
      launcher_path_(std::move(launcher_path)),
      orders_(job_, ignored_signals),
      channel_(job_, {[this](std::uint32_t rank, const Progress& progress) {
                        members_.on_step(rank, progress);
                      },
                      [this](Blame blame) {
                        if (!world_) shutdown_.blame(std::move(blame));
                      },
                      [this](Failure failure) {
                        if (world_) return world_->expel(*failure.rank, failure.cause);
                        shutdown_.fail(std::move(failure));
                      },
                      [this](std::uint32_t rank, const membership::MemberMessage& message) {
                        if (world_) world_->on_said(rank, message);
                      },
                      [this](std::uint32_t rank, std::chrono::microseconds time) {
                        if (world_) world_->on_shard_time(rank, time);
                      },
                      [this] {
                        if (world_) world_->on_first_word();
                      },
                      [this](std::uint32_t rank) {
                        if (world_) world_->on_fixed_size(rank);
                      }}),
      shutdown_(job_, channel_, [this] { stop_starts(); }),
      members_(job_, channel_, shutdown_,
               [this](std::uint32_t rank) {
                 if (input_) input_->on_gone(rank);
               }),
      signals_(job_, shutdown_, std::move(ignored_signals),
               [this](std::uint32_t node) { return on_leaving(node); }),
      heartbeat_(job_.io) {}

int Controller::run(std::optional<std::chrono::milliseconds> time_left) {
  signal(SIGPIPE, SIG_IGN);
  // In the background of a terminal the launcher goes on; see InputReader.
  signal(SIGTTIN, SIG_IGN);
  signal(SIGTTOU, SIG_IGN);
  adopt_orphans();
  signals_.start();
  prepare_starts();
  if (job_.options.elastic.is_on()) {
    prepare_elastic();
  } else {
    prepare_mpi();
    prepare_staging();
    prepare_hosts();
  }
  observed_.enter(JobPhase::kPreparing);
  members_.tell_all_started([this] {
    if (shutdown_.is_running()) observed_.enter(JobPhase::kRunning);
  });
  job_.events.record_start(job_.options, job_.placement);
  if (job_.options.elastic.is_on()) {
    shutdown_.on_started();
    signals_.on_started();
    world_ ? world_->start() : fixed_->start();
  } else {
    starts_->start();
  }
  beat();
  if (job_.options.timeout) shutdown_.limit_time(time_left.value_or(*job_.options.timeout));
  job_.io.run();
  // A launcher that waits for somebody to read its output can be ended.
  signals_.stop();
  input_.reset();
  const std::vector<Host> odd_hosts = job_.agents.hosts_with_odd_end();
  job_.agents.drop_links();
  if (lost_local_agent_) {
    // The supervisor among them may have been about to do this.
    (void)end_all_children(internal::Deadline::after(std::chrono::seconds(3)));
  }
  if (lost_local_agent_ || has_lost_host()) remove_stale_folders();
  if (keeps_containers(job_.options.container) && !odd_hosts.empty()) {
    for (std::string& line : remove_containers(job_.options, job_.container_label(), odd_hosts)) {
      job_.say(std::move(line));
    }
  }
  return finish_output();
}

// Agents that were killed with their supervisors could not. A remote shell may lead to this
// machine, too.
void Controller::remove_stale_folders() {
  std::vector<std::string> markers;
  for (const Agents::Node& node : job_.agents) markers.push_back(node.start.marker);
  remove_agent_folders(markers);
}

// The exit code.
int Controller::finish_output() {
  const std::string preparation_loss = preparation_ ? preparation_->finish() : "";
  if (!preparation_loss.empty()) job_.say("launcher: " + preparation_loss);
  const bool is_whole = job_.output->finish();
  lost_output_ = job_.output->loss().empty() ? preparation_loss : job_.output->loss();
  exit_code_ = shutdown_.exit_code().value_or(is_whole ? 0 : exit_code::kLauncherError);
  job_.events.record("job_ended", {{"code", exit_code_}});
  std::string loss = job_.event_file.finish();
  if (world_ && loss.empty()) loss = world_->finish();
  if (fixed_ && loss.empty()) loss = fixed_->finish();
  if (loss.empty()) return exit_code_;
  std::cerr << "launcher: " << loss << std::endl;
  if (lost_output_.empty()) lost_output_ = loss;
  if (job_.options.copies.is_on()) return exit_code_;
  return exit_code_ = shutdown_.exit_code().value_or(exit_code::kLauncherError);
}

JobEnd Controller::end() const {
  JobEnd end;
  end.kind = shutdown_.end_kind();
  end.exit_code = exit_code_;
  end.reason = shutdown_.end_reason();
  if (end.kind == EndKind::kSuccess && exit_code_ != 0) {
    end.kind = EndKind::kOutputLost;
    end.reason = lost_output_;
  }
  end.steps = members_.most_progress().steps;
  end.operations = members_.most_progress().operations;
  const auto begun = members_.all_started_at();
  const auto ended = shutdown_.ending_since();
  if (begun && ended) {
    end.ran_for = std::chrono::duration_cast<std::chrono::milliseconds>(*ended - *begun);
  }
  end.lost_hosts = job_.agents.without_carried(shutdown_.lost_nodes());
  for (const std::uint32_t node : starts_->failed()) {
    end.lost_hosts.push_back(job_.agents[node].host);
  }
  end.may_pass = starts_->may_pass();
  end.was_interrupted = shutdown_.was_interrupted();
  end.lost_output = lost_output_;
  return end;
}

void Controller::prepare_mpi() {
  if (job_.options.mpi == MpiMode::kNone) return;
  const auto helper = std::filesystem::path(launcher_path_).parent_path() / kPmixHelperName;
  MpiCoordinator::Callbacks callbacks{
      .fail =
          [this](const std::string& cause) {
            // No rank is lost by this, but all of them will be.
            channel_.tell_ending(cause);
            fail(cause);
          },
      .fail_rank =
          [this](std::uint32_t node, std::uint32_t rank, int code, const std::string& cause) {
            shutdown_.fail({job_.ranks.checked(node, rank), code, cause});
          },
      .send_helper = [this](std::uint32_t node) { staging_->send_pmix_helper(node); }};
  mpi_ =
      std::make_unique<MpiCoordinator>(job_.options.mpi, access(helper.c_str(), R_OK | X_OK) == 0,
                                       job_.agents, job_.ranks.nodes(), std::move(callbacks));
}

void Controller::prepare_staging() {
  staging_ = std::make_unique<FileStaging>(
      job_.options, orders_.programs(), launcher_path_, job_.agents,
      FileStaging::Callbacks{[this] { on_hello(); }, [this](const auto& cause) { fail(cause); }});
}

void Controller::prepare_hosts() {
  if (!job_.options.preparation.is_on()) return;
  preparation_ = std::make_unique<HostPreparation>(
      job_, HostPreparation::Callbacks{
                .make_order =
                    [this](std::uint32_t node) {
                      StartOrder order = orders_.without_ranks(node);
                      staging_->name_copies(node, order);
                      return order;
                    },
                .on_done =
                    [this] {
                      if (shutdown_.is_running()) start_ranks();
                    },
                .fail = [this](Failure failure) { shutdown_.fail(std::move(failure)); }});
}

void Controller::prepare_starts() {
  starts_ = std::make_unique<AgentStarts>(
      job_, launcher_path_,
      AgentStarts::Callbacks{
          .on_hello = [this] { on_hello(); },
          .on_frame = [this](std::uint32_t node, const Frame& frame) { on_frame(node, frame); },
          .on_lost = [this](std::uint32_t node,
                            const std::string& reason) { on_agent_lost(node, reason); },
          .fail = [this](const std::string& cause) { fail(cause); },
          .on_not_run =
              [this](std::uint32_t node, const std::string& cause) {
                job_.options.elastic.is_on() ? on_member_lost(node, cause) : fail(cause);
              },
          .on_waiting =
              [this](const std::string& words) {
                observed_.enter(words.empty() ? JobPhase::kPreparing : JobPhase::kQueued, words);
              }});
}

// No rank is to blame.
void Controller::fail(const std::string& cause) {
  const EndKind kind = shutdown_.is_starting() ? EndKind::kNotStarted : EndKind::kFailed;
  shutdown_.fail({std::nullopt, exit_code::kLauncherError, cause, kind});
}

void Controller::on_hello() {
  if (world_) return world_->on_hello();
  if (fixed_) return fixed_->on_hello();
  if (!shutdown_.is_starting()) return;
  for (const Agents::Node& node : job_.agents) {
    if (!node.link || !node.link->hello() || node.link->is_lost()) return;
  }
  if (staging_->sends_first()) return;
  shutdown_.on_started();
  preparation_ ? preparation_->start() : start_ranks();
}

void Controller::start_ranks() {
  signals_.on_started();
  send_orders();
  if (preparation_) shutdown_.end_with_ranks();
}

void Controller::send_orders() {
  if (job_.options.torchrun_env) orders_.add_torchrun_variables();
  channel_.send_table(mpi_ ? mpi_->node_names() : std::vector<std::string>());
  for (std::uint32_t node = 0; node < job_.agents.size(); ++node) {
    job_.agents[node].all_exited = false;  // of its preparation
    job_.agents[node].link->send_order(order_for(node));
  }
  start_input();
}

void Controller::start_input() {
  std::vector<std::uint32_t> targets = orders_.ranks_with_input();
  if (targets.empty()) return;
  input_ = std::make_unique<RankInput>(
      job_.io, std::move(targets), [this](std::uint32_t rank, const std::string& bytes) {
        job_.agents.send(job_.ranks[rank].node, AgentMessage::kRankInput,
                         BodyWriter().u32(rank).text(bytes).take());
      });
}

StartOrder Controller::order_for(std::uint32_t node) const {
  StartOrder order = orders_.with_ranks(node);
  staging_->name_copies(node, order);
  if (mpi_) order.mpi = encode_fields(mpi_->order_for(node));
  return order;
}

void Controller::on_frame(std::uint32_t node, const Frame& frame) {
  if (world_ && world_->on_frame(node, frame)) return;
  if (fixed_ && fixed_->on_frame(node, frame)) return;
  if (preparation_ && preparation_->on_frame(node, frame)) return;
  switch (type_of(frame)) {
    case AgentMessage::kHeartbeat:
      return;
    case AgentMessage::kRankStarted:
      return members_.on_started(node, frame);
    case AgentMessage::kInputTaken:
      return on_input_taken(node, frame);
    case AgentMessage::kStartFailed:
      return on_start_failed(node, frame);
    case AgentMessage::kRankExited: {
      const RankExit exit = decode_exit(frame.body);
      // A host's preparation may end when its gate has forgotten it.
      if (fixed_ && fixed_->has_ranks(node) && code_of(exit) == 0) fixed_->on_ended_well();
      return members_.on_exited(node, exit);
    }
    case AgentMessage::kRankStopped:
      return members_.on_stopped(node, frame);
    case AgentMessage::kOutput:
      return on_output(node, frame);
    case AgentMessage::kRankBytes:
      return channel_.on_bytes(node, frame);
    case AgentMessage::kMpi:
      if (!mpi_) throw SystemError("agent protocol: MPI in a job without it", EPROTO);
      return mpi_->on_frame(node, frame);
    case AgentMessage::kTunnelOutput:
    case AgentMessage::kTunnelEnded:
    case AgentMessage::kTunnelNoImage:
      if (job_.agents.tunnels().on_frame(node, frame)) shutdown_.reap_agents();
      return;
    case AgentMessage::kPreload:
      if (!staging_) throw SystemError("agent protocol: files in a job without them", EPROTO);
      return staging_->on_frame(node, frame);
    case AgentMessage::kWillMade: {
      BodyReader body(frame.body);
      const auto how = static_cast<WillEnd>(body.u8());  // any value
      return shutdown_.on_will_made(node, how, body.u64());
    }
    case AgentMessage::kSignalled:
      return signals_.on_frame(node, frame);
    case AgentMessage::kAllExited:
      return on_all_exited(node);
    default:  // a number from outside, any value
      throw SystemError("agent protocol: message for an agent came to the controller", EPROTO);
  }
}

void Controller::on_output(std::uint32_t node, const Frame& frame) {
  BodyReader body(frame.body);
  const std::uint32_t rank = job_.ranks.checked(node, body.u32());
  const std::uint8_t stream = body.u8();
  if (stream != 1 && stream != 2) throw SystemError("agent protocol: no such stream", EPROTO);
  std::string text = body.text();
  if (stream == 2) job_.ranks[rank].last_error_lines.append(text);
  job_.output->write(rank, stream, std::move(text));
}

void Controller::on_input_taken(std::uint32_t node, const Frame& frame) {
  BodyReader body(frame.body);
  const std::uint32_t rank = job_.ranks.checked(node, body.u32());
  if (!input_) return;
  if (body.u8() != 0) return input_->on_taken(rank);
  input_->on_gone(rank);
}

void Controller::on_start_failed(std::uint32_t node, const Frame& frame) {
  const RankStartFailure failure =
      start_failure_of(frame.body, job_.agents[node].host, job_.options.container.image);
  (void)job_.ranks.checked(node, failure.rank);
  const Failure explained = explain(failure, orders_.start_timeout());
  if (!members_.decides_elsewhere()) return shutdown_.fail(explained);
  // One that is late may have a process.
  job_.agents.send(node, AgentMessage::kEndRank, BodyWriter().u32(failure.rank).take());
  members_.on_not_started(failure.rank, explained.exit_code, explained.cause);
}

void Controller::on_all_exited(std::uint32_t node) {
  job_.agents[node].all_exited = true;
  if (job_.options.elastic.is_on()) on_member_exits(node);
  if (preparation_) preparation_->on_all_exited(node);
  shutdown_.on_ranks_gone();
}

void Controller::on_agent_lost(std::uint32_t node, const std::string& reason) {
  const AgentLink& link = *job_.agents[node].link;
  if (!link.hello() && starts_->try_again(node)) return;
  job_.events.record("host_lost", {{"host", job_.agents[node].host}, {"cause", reason}});
  const bool is_waiting_for_others =
      link.hello() && shutdown_.is_starting() && !(staging_ && staging_->has_begun());
  if (is_waiting_for_others && starts_->try_again_lost(node, reason)) return;
  lost_local_agent_ = lost_local_agent_ || link.start().is_local();
  job_.agents[node].all_exited = true;
  if (job_.options.elastic.is_on())
    return on_member_lost(node, link.hello() ? reason : starts_->explain_failure(node));
  if (link.hello()) {
    members_.on_host_lost(node, reason);
  } else {
    starts_->give_up(node);
  }
  shutdown_.on_ranks_gone();
}

void Controller::beat() {
  const bool was_late = lag_.was_late();
  for (std::uint32_t node = 0; node < job_.agents.size(); ++node) {
    if (job_.agents[node].link)
      job_.agents[node].link->tick(was_late || job_.agents.has_silent_ancestor(node));
  }
  if (job_.options.elastic.is_on()) job_.agents.reap();
  members_.check_progress(was_late);
  job_.event_file.beat();
  if (job_.output->is_broken() && shutdown_.is_running()) {
    shutdown_.stop_for("nobody reads the output any more", exit_code::kSignalBase + SIGPIPE,
                       std::chrono::milliseconds(1000), EndKind::kStopped);
  }
  obey(observed_.next_request());
  heartbeat_.expires_after(kHeartbeatInterval);
  heartbeat_.async_wait([this](const asio::error_code& error) {
    if (!error) beat();
  });
}

void Controller::obey(StopRequest request) {
  if (request == StopRequest::kNone) return;
  const bool at_once = request == StopRequest::kNow;
  shutdown_.interrupt_for(at_once ? "launcher stop --now" : "launcher stop", at_once);
}

}  // namespace chainmail::launch
