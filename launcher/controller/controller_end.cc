// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// How a job ends: news first, then SIGTERM, then SIGKILL, then the agents; each step has its time
// limit, and as soon as all ranks are gone the rest is skipped.

#include <signal.h>
#include <string.h>

#include <algorithm>
#include <cerrno>

#include "base/error.h"
#include "launcher/controller/controller.h"
#include "launcher/signals.h"

namespace chainmail::launch {
namespace {

using std::chrono::milliseconds;

// Reports of two nodes may overtake each other by this much; see Verdict.
constexpr milliseconds kVerdictDelay{200};
// What survivors get to see the error, print it and end by themselves.
constexpr milliseconds kNewsTime{1000};
constexpr milliseconds kTermTime{500};
constexpr milliseconds kKillTime{1500};
constexpr milliseconds kLeaveTime{2000};
// On top of that, for hosts that others leave through: they begin when those have left.
constexpr milliseconds kCarrierLeaveTime{1500};
constexpr milliseconds kInterruptGrace{5000};
constexpr milliseconds kTerminateGrace{30000};
// What sends a signal to every process of a job takes no longer.
constexpr milliseconds kOneSignal{1000};

bool is_same_signal(const std::map<int, std::chrono::steady_clock::time_point>& when, int number) {
  const auto found = when.find(number);
  return found != when.end() && std::chrono::steady_clock::now() - found->second < kOneSignal;
}

milliseconds grace_after(int signal_number) {
  return signal_number == SIGINT ? kInterruptGrace : kTerminateGrace;
}

std::string signal_name(int signal_number) {
  const char* name = sigabbrev_np(signal_number);
  return name == nullptr ? "signal " + std::to_string(signal_number) : std::string("SIG") + name;
}

}  // namespace

void Controller::fail(Failure failure) {
  const bool is_first = !verdict_.failure();
  const bool has_rank = failure.rank.has_value();
  verdict_.add(std::move(failure));
  // After a signal or the time limit, whatever ranks do is an answer to our SIGTERM.
  if (!is_first || decided_code_) return;
  verdict_timer_.expires_after(has_rank ? kVerdictDelay : milliseconds(0));
  verdict_timer_.async_wait([this](const asio::error_code& error) {
    // The data's connections notice a cut link before the lease of the agent behind it passes: by
    // the end of the job it has shown whether that host still answers.
    if (!error && !verdict_.is_doubtful()) report_failure();
  });
  if (phase_ == Phase::kStarting) {
    enter(Phase::kKilling, kKillTime);
  } else if (phase_ == Phase::kRunning) {
    kill_after_ = kTermTime;
    // Programs without the plugin hear no news; plain MPI ranks would wait for ever.
    enter(Phase::kNotifying, has_listeners_ ? kNewsTime : kVerdictDelay + milliseconds(50));
  }
}

void Controller::report_failure() {
  if (is_reported_ || !verdict_.failure() || decided_code_) return;
  if (verdict_.is_doubtful()) look_for_silent_host();
  is_reported_ = true;
  verdict_.close();
  const Failure& failure = *verdict_.failure();
  decided_code_ = failure.exit_code;
  EventLog::Members members = failure.rank ? about(*failure.rank) : EventLog::Members();
  members["code"] = failure.exit_code;
  members["cause"] = failure.cause;
  events_.record("verdict", members);
  if (!failure.rank) {
    output_->say("launcher: " + failure.cause);
    return;
  }
  const std::uint32_t rank = *failure.rank;
  std::string text = "launcher: rank " + std::to_string(rank) + " on host " + host_of(rank) + " " +
                     failure.cause + first_cause(failure);
  const Rank& failed = ranks_[rank];
  if (!failed.last_error_lines.is_empty()) {
    text += "; the last lines of its stderr:" + failed.last_error_lines.quoted();
  }
  output_->say(text);
}

// What others said of another rank than the one that the verdict names: it has ended without a
// failure, or not at all.
std::string Controller::first_cause(const Failure& failure) const {
  const auto& blame = verdict_.blame();
  if (!verdict_.is_doubtful() || !blame || failure.rank == blame->rank) return "";
  return " after rank " + std::to_string(blame->rank) + " on host " + host_of(blame->rank) +
         " had failed or left: " + blame->text.substr(0, blame->text.find('\n'));
}

bool Controller::may_start_anew() const {
  if (!has_started_ || was_interrupted_ || !is_reported_) return false;
  // What cannot be executed will not be executed the next time either.
  return verdict_.failure()->rank || has_lost_host_;
}

// Whether an agent that was told to leave has done so.
void Controller::look_for_silent_host() {
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    if (!nodes_[i].link) continue;
    const std::string reason = nodes_[i].link->why_not_left();
    if (reason.empty()) continue;
    events_.record("host_lost", {{"host", placement_.nodes[i].name}, {"cause", reason}});
    has_lost_host_ = true;
    verdict_.add({std::nullopt, exit_code::kLauncherError,
                  "lost host " + placement_.nodes[i].name + ": " + reason});
  }
}

// For ranks on a host out of reach.
std::chrono::seconds Controller::ending_time() const {
  return std::chrono::ceil<std::chrono::seconds>(options_.lease.value_or(kDefaultLease) +
                                                 kHeartbeatInterval);
}

void Controller::interrupt(int signal_number) {
  was_interrupted_ = true;
  // Whoever signals everything of the job means one end, with its grace.
  if (std::chrono::steady_clock::now() - agents_signal_at_ < kOneSignal) return;
  switch (phase_) {
    case Phase::kStarting:
    case Phase::kRunning:
      break;
    case Phase::kNotifying:
      // The job ends by a failure already, whose code and message stand; this only hurries it.
      return enter(Phase::kTerminating, kill_after_);
    case Phase::kTerminating:
      return enter(Phase::kKilling, kKillTime);
    case Phase::kKilling:
    case Phase::kAbandoning:
    case Phase::kOver:
      return;
  }
  stop_for(signal_number == SIGINT ? "Ctrl-C" : signal_name(signal_number),
           exit_code::kSignalBase + signal_number,
           options_.grace.value_or(grace_after(signal_number)));
}

bool Controller::ignores(int signal_number) const {
  return std::find(ignored_signals_.begin(), ignored_signals_.end(), signal_number) !=
         ignored_signals_.end();
}

// A scheduler, or somebody on that host, wants the job to end, or tells it something.
void Controller::on_agent_signalled(std::uint32_t node, const internal::Frame& frame) {
  internal::BodyReader body(frame.body);
  const auto number = static_cast<int>(body.u32());
  const bool has_passed_it = body.u8() != 0;
  if (ignores(number)) return;
  if (is_passed_signal(number)) return pass_signal_of(node, number, has_passed_it);
  if (number != SIGTERM && number != SIGINT && number != SIGHUP) {
    throw SystemError("agent protocol: signal " + std::to_string(number) + " is not for a job",
                      EPROTO);
  }
  if (phase_ != Phase::kStarting && phase_ != Phase::kRunning) return;
  was_interrupted_ = true;
  agents_signal_at_ = std::chrono::steady_clock::now();
  stop_for(signal_name(number) + " to the agent on host " + placement_.nodes[node].name,
           exit_code::kSignalBase + number, options_.grace.value_or(grace_after(number)));
}

void Controller::pass_signal(int signal_number) {
  if (is_same_signal(agents_signals_, signal_number)) return;
  own_signals_[signal_number] = std::chrono::steady_clock::now();
  spread_signal(signal_number, {}, false);
}

// Slurm signals a step's tasks, which are agents, or some of them; all ranks are meant.
void Controller::pass_signal_of(std::uint32_t node, int signal_number, bool has_passed_it) {
  if (is_same_signal(own_signals_, signal_number) ||
      is_same_signal(agents_signals_, signal_number)) {
    return;
  }
  agents_signals_[signal_number] = std::chrono::steady_clock::now();
  spread_signal(signal_number, node, has_passed_it);
}

// `origin`: the node whose agent has told of it.
void Controller::spread_signal(int signal_number, std::optional<std::uint32_t> origin,
                               bool has_passed_it) {
  EventLog::Members members = {{"signal", signal_number}};
  if (origin) members["host"] = placement_.nodes[*origin].name;
  events_.record("signal", members);
  if (!has_started_) {
    if (signal_number != SIGWINCH) {
      output_->say("launcher: " + signal_name(signal_number) +
                   " came before there were ranks; nobody gets it");
    }
    return;
  }
  const auto number = static_cast<std::uint32_t>(signal_number);
  for (std::uint32_t node = 0; node < nodes_.size(); ++node) {
    if (!nodes_[node].link || (has_passed_it && node == origin)) continue;
    nodes_[node].link->send(AgentMessage::kPassSignal, internal::BodyWriter().u32(number).take());
  }
}

void Controller::stop_for(const std::string& reason, int exit_code, milliseconds grace) {
  // A job that is ending already has its reason and its shorter time limits.
  if (phase_ != Phase::kStarting && phase_ != Phase::kRunning) return;
  if (!decided_code_) {
    decided_code_ = exit_code;
    output_->say("launcher: " + reason + ": ending the job");
    events_.record("ending", {{"reason", reason}, {"code", exit_code}});
  }
  tell_ending(reason);
  if (phase_ == Phase::kStarting) return enter(Phase::kKilling, kKillTime);
  kill_after_ = grace;
  enter(Phase::kTerminating, grace);
}

// Collectives in flight end with it.
void Controller::tell_ending(const std::string& reason) {
  tell_ranks(internal::JobMessage::kNewsEnding, kNobody,
             internal::BodyWriter().text(reason).take());
}

void Controller::enter(Phase phase, milliseconds next_after) {
  phase_ = phase;
  wait_for_next_phase(next_after);
  if (phase == Phase::kTerminating || phase == Phase::kKilling) {
    const auto number =
        static_cast<std::uint32_t>(phase == Phase::kTerminating ? SIGTERM : SIGKILL);
    for (Node& node : nodes_) {
      if (!node.link) continue;
      node.link->send(AgentMessage::kSignalRanks, internal::BodyWriter().u32(number).take());
      // Agents that have not spoken have no ranks yet; nothing is worth waiting for.
      if (!node.link->hello()) {
        node.link->kill_process();
        node.all_exited = true;
      }
    }
  }
  // Also before any rank was started, when no agent will ever report.
  end_if_all_exited();
}

void Controller::wait_for_next_phase(milliseconds next_after) {
  phase_timer_.expires_after(next_after);
  phase_timer_.async_wait([this](const asio::error_code& error) {
    if (!error) next_phase();
  });
}

void Controller::next_phase() {
  switch (phase_) {
    case Phase::kNotifying:
      return enter(Phase::kTerminating, kill_after_);
    case Phase::kTerminating:
      return enter(Phase::kKilling, kKillTime);
    case Phase::kKilling:
      return leave();
    case Phase::kAbandoning:
      return all_told_to_leave_ ? abandon() : leave_with_the_rest();
    case Phase::kStarting:
    case Phase::kRunning:
    case Phase::kOver:
      return;
  }
}

void Controller::end_if_all_exited() {
  if (phase_ == Phase::kAbandoning || phase_ == Phase::kOver) return;
  // An agent reports that its ranks are gone only after it was told to start some.
  if (!has_started_ && phase_ != Phase::kKilling) return;
  for (const Node& node : nodes_) {
    if (has_started_ && node.link && !node.all_exited) return;
  }
  leave();
}

void Controller::leave() {
  phase_ = Phase::kAbandoning;
  time_limit_.cancel();
  tell_to_leave(false);
  const bool has_tree = std::any_of(nodes_.begin(), nodes_.end(),
                                    [](const Node& node) { return node.carrier.has_value(); });
  all_told_to_leave_ = !has_tree;
  wait_for_next_phase(kLeaveTime);
  finish_if_gone();
}

// Somebody does not leave, and those through whom he is reached wait for him.
void Controller::leave_with_the_rest() {
  all_told_to_leave_ = true;
  tell_to_leave(true);
  wait_for_next_phase(kCarrierLeaveTime);
}

void Controller::reap_agents() {
  for (Node& node : nodes_) {
    if (node.link) node.link->reap();
  }
  std::erase_if(replaced_links_, [](const auto& link) { return link->reap(); });
  finish_if_gone();
}

void Controller::finish_if_gone() {
  if (phase_ != Phase::kAbandoning) return;
  for (std::uint32_t node = 0; node < nodes_.size(); ++node) {
    // What it carried has gone with it, told to or not.
    if (nodes_[node].link && nodes_[node].link->is_reaped()) lose_carried_by(node);
  }
  tell_to_leave(false);
  for (const Node& node : nodes_) {
    if (node.link && !node.link->is_reaped()) return;
  }
  phase_ = Phase::kOver;
  report_failure();
  io_.stop();
}

void Controller::abandon() {
  report_failure();
  for (Node& node : nodes_) {
    if (!node.link || node.link->reap()) continue;
    node.link->kill_process();
    if (!node.link->hello() || node.link->is_lost()) continue;
    const std::string& host =
        placement_.nodes[static_cast<std::size_t>(&node - nodes_.data())].name;
    output_->say(node.link->why_not_left().empty() ? "launcher: the agent on host " + host +
                                                         " did not end in time; it has been killed"
                 : node.all_exited
                     ? "launcher: all ranks on host " + host +
                           " have ended, but the connection to it does not; it is given up"
                     : "launcher: host " + host +
                           " does not answer; what runs there ends by itself within " +
                           std::to_string(ending_time().count()) + " s");
  }
  phase_ = Phase::kOver;
  io_.stop();
}

}  // namespace chainmail::launch
