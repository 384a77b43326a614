// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/controller/shutdown.h"

#include <signal.h>

#include <algorithm>
#include <utility>

#include "launcher/job/text.h"
#include "launcher/process/signals.h"

namespace chainmail::launch {
namespace {

using std::chrono::milliseconds;

// Reports of two nodes may overtake each other by this much; see RootCause.
constexpr milliseconds kReportDelay{200};
// What survivors get to see the error, print it and end by themselves.
constexpr milliseconds kNewsTime{1000};
constexpr milliseconds kTermTime{500};
constexpr milliseconds kKillTime{1500};
constexpr milliseconds kLeaveTime{2000};
// Where agents have a folder to remove that may hold any number of files.
constexpr milliseconds kLeaveTimeWithFiles{10000};
// On top of that, for hosts that others leave through: they begin when those have left.
constexpr milliseconds kParentLeaveTime{1500};
constexpr milliseconds kInterruptGrace{5000};
constexpr milliseconds kTerminateGrace{30000};
// What sends a signal to every process of a job takes no longer.
constexpr milliseconds kOneSignal{1000};
// For agents to tell that they have waited long enough for their ranks.
constexpr milliseconds kWillDelay{1000};

}  // namespace

Shutdown::Shutdown(JobState& job, RankChannel& channel, std::function<void()> stop_starts)
    : job_(job),
      channel_(channel),
      stop_starts_(std::move(stop_starts)),
      phase_timer_(job.io),
      report_timer_(job.io),
      time_limit_(job.io),
      root_cause_(job.ranks.size()),
      outlives_ranks_(job.options.elastic.is_on() || job.options.preparation.is_on()) {}

void Shutdown::on_started() {
  phase_ = Phase::kRunning;
  has_started_ = true;
  stop_starts_();
}

void Shutdown::limit_time(milliseconds left) {
  time_limit_.expires_after(left);
  time_limit_.async_wait([this](const asio::error_code& error) {
    if (error) return;
    constexpr milliseconds kMostGrace{5000};
    stop_for("the time limit of " + seconds_text(*job_.options.timeout) + " has passed",
             exit_code::kTimeLimit, std::min(job_.options.grace.value_or(kMostGrace), kMostGrace),
             EndKind::kTimeLimit);
  });
}

void Shutdown::blame(Blame blame) {
  root_cause_.add(std::move(blame), std::chrono::steady_clock::now());
}

void Shutdown::fail(Failure failure) {
  const bool is_first = !root_cause_.failure();
  const bool has_rank = failure.rank.has_value();
  root_cause_.add(std::move(failure));
  // After a signal or the time limit, whatever ranks do is an answer to our SIGTERM.
  if (!is_first || decided_code_) return;
  report_timer_.expires_after(has_rank ? kReportDelay : milliseconds(0));
  report_timer_.async_wait([this](const asio::error_code& error) {
    // The data's connections notice a cut link before the lease of the agent behind it passes: by
    // the end of the job it has shown whether that host still answers.
    if (!error && !root_cause_.is_doubtful()) report_failure();
  });
  if (phase_ == Phase::kStarting) {
    enter(Phase::kKilling, kKillTime);
  } else if (phase_ == Phase::kRunning) {
    kill_after_ = kTermTime;
    // Programs without the plugin hear no news; plain MPI ranks would wait for ever.
    enter(Phase::kNotifying,
          channel_.has_listeners() ? kNewsTime : kReportDelay + milliseconds(50));
  }
}

void Shutdown::report_failure() {
  if (is_reported_ || !root_cause_.failure() || decided_code_) return;
  if (root_cause_.is_doubtful()) look_for_silent_host();
  is_reported_ = true;
  channel_.close_news();
  root_cause_.close();
  const Failure& failure = *root_cause_.failure();
  const std::string what = (failure.rank ? job_.ranks.name_of(*failure.rank) + " " : "") +
                           failure.cause + (failure.rank ? first_cause(failure) : "");
  decide(failure.exit_code, failure.rank ? EndKind::kRankFailed : failure.kind, what);
  EventLog::Members members = failure.rank ? job_.ranks.about(*failure.rank) : EventLog::Members();
  members["code"] = failure.exit_code;
  members["cause"] = failure.cause;
  job_.events.record("verdict", members);
  const LastLines lines = failure.rank ? job_.ranks[*failure.rank].last_error_lines : LastLines();
  if (what == job_.options.said_reason) return;
  job_.say("launcher: " + what + failure.quoted +
           (lines.is_empty() ? "" : "; the last lines of its stderr:" + lines.quoted()));
}

void Shutdown::decide(int exit_code, EndKind kind, const std::string& reason) {
  decided_code_ = exit_code;
  end_kind_ = kind;
  end_reason_ = reason;
}

// What others said of another rank than the one that is named as the root cause: it has ended
// without a failure, or not at all.
std::string Shutdown::first_cause(const Failure& failure) const {
  const auto& blame = root_cause_.blame();
  if (!root_cause_.is_doubtful() || !blame || failure.rank == blame->rank) return "";
  return " after " + job_.ranks.name_of(blame->rank) +
         " had failed or left: " + blame->text.substr(0, blame->text.find('\n'));
}

bool Shutdown::may_start_anew() const {
  if (!has_started_ || was_interrupted_ || !is_reported_) return false;
  // What cannot be executed will not be executed the next time either.
  return root_cause_.failure()->rank || !lost_nodes_.empty();
}

// Whether an agent that was told to leave has done so.
void Shutdown::look_for_silent_host() {
  for (std::uint32_t number = 0; number < job_.agents.size(); ++number) {
    const Agents::Node& node = job_.agents[number];
    const std::string reason = node.link ? node.link->why_not_left() : "";
    if (reason.empty()) continue;
    job_.events.record("host_lost", {{"host", node.host}, {"cause", reason}});
    on_host_lost(number);
    root_cause_.add({std::nullopt, exit_code::kLauncherError,
                     "lost host " + node.host + ": " + reason, EndKind::kHostLost});
  }
}

void Shutdown::interrupt(int signal_number) {
  was_interrupted_ = true;
  // Whoever signals everything of the job means one end, with its grace.
  if (std::chrono::steady_clock::now() - agents_signal_at_ < kOneSignal) return;
  // Of a job that ends already, the code and the message stand; this only hurries it.
  if (phase_ == Phase::kSaving) {
    say_what_is_saved();
    return enter(Phase::kKilling, kKillTime);
  }
  if (phase_ == Phase::kNotifying || phase_ == Phase::kTerminating) return next_phase();
  stop_for_signal(signal_number == SIGINT ? "Ctrl-C" : signal_name(signal_number), signal_number);
}

void Shutdown::interrupt_from(std::uint32_t node, int signal_number) {
  if (!is_starting() && !is_running()) return;
  was_interrupted_ = true;
  agents_signal_at_ = std::chrono::steady_clock::now();
  stop_for_signal(signal_name(signal_number) + " to the agent on host " + job_.agents[node].host,
                  signal_number);
}

void Shutdown::interrupt_for(const std::string& reason, bool at_once) {
  was_interrupted_ = true;
  // `launcher stop` sends a signal as well.
  agents_signal_at_ = std::chrono::steady_clock::now();
  if (!at_once) return stop_for_signal(reason, SIGTERM);
  if (phase_ == Phase::kSaving) say_what_is_saved();
  if (is_starting() || is_running()) {
    say_end(reason, exit_code::kSignalBase + SIGKILL, EndKind::kStopped);
    channel_.tell_ending(reason);
  }
  if (phase_ < Phase::kKilling) enter(Phase::kKilling, kKillTime);
}

void Shutdown::stop_for_signal(const std::string& reason, int signal_number) {
  const milliseconds grace = signal_number == SIGINT ? kInterruptGrace : kTerminateGrace;
  stop_for(reason, exit_code::kSignalBase + signal_number, job_.options.grace.value_or(grace),
           EndKind::kStopped);
}

void Shutdown::say_end(const std::string& reason, int exit_code, EndKind kind) {
  if (decided_code_) return;
  decide(exit_code, kind, reason);
  job_.say("launcher: " + reason + ": ending the job");
  job_.events.record("ending", {{"reason", reason}, {"code", exit_code}});
}

void Shutdown::stop_for(const std::string& reason, int exit_code, milliseconds grace,
                        EndKind kind) {
  // A job that is ending already has its reason and its shorter time limits.
  if (!is_starting() && !is_running()) return;
  say_end(reason, exit_code, kind);
  kill_after_ = grace;
  if (is_running() && outlives_ranks_ && channel_.has_listeners()) {
    return ask_for_wills(reason, grace);
  }
  channel_.tell_ending(reason);
  if (phase_ == Phase::kStarting) return enter(Phase::kKilling, kKillTime);
  enter(Phase::kTerminating, grace);
}

// Ranks of an elastic job have what no checkpoint has; afterwards they wait for their end.
void Shutdown::ask_for_wills(const std::string& reason, milliseconds grace) {
  for (std::uint32_t node = 0; node < job_.agents.size(); ++node) {
    const Agents::Node& agent = job_.agents[node];
    if (!agent.link || !agent.link->hello() || agent.all_exited) continue;
    awaited_wills_.insert(node);
    job_.agents.send(
        node, AgentMessage::kMakeWill,
        internal::BodyWriter().u32(static_cast<std::uint32_t>(grace.count())).text(reason).take());
  }
  saves_until_ = std::chrono::steady_clock::now() + grace;
  enter(Phase::kSaving, grace + kWillDelay);
}

void Shutdown::say_what_is_saved() {
  if (saved_step_) {
    return job_.say("launcher: the state after step " + std::to_string(*saved_step_) +
                    " is saved; the same command goes on from there");
  }
  if (!awaited_wills_.empty()) worst_will_ = std::max(worst_will_, WillEnd::kLate);
  if (worst_will_ == WillEnd::kNothing) return;  // nobody has any state
  job_.say(std::string("launcher: no rank has saved its state") +
           (worst_will_ == WillEnd::kLate ? " in time" : ", since that failed") +
           "; what the newest checkpoint does not have is lost" +
           (worst_will_ == WillEnd::kLate ? " (--grace TIME gives more)" : ""));
}

void Shutdown::on_will_made(std::uint32_t node, WillEnd how, std::uint64_t step) {
  if (how == WillEnd::kSaved) {
    job_.events.record(
        "last_will", {{"host", job_.agents[node].host}, {"step", static_cast<std::int64_t>(step)}});
    saved_step_ = std::max(saved_step_.value_or(0), step);
  } else {
    worst_will_ = std::max(worst_will_, how);
  }
  if (awaited_wills_.erase(node) != 0) look_for_wills();
}

void Shutdown::look_for_wills() {
  if (phase_ != Phase::kSaving) return;
  // An agent answers also where its ranks have ended.
  std::erase_if(awaited_wills_, [this](auto node) {
    const AgentLink* const link = job_.agents[node].link.get();
    return link == nullptr || link->is_lost();
  });
  if (awaited_wills_.empty()) next_phase();
}

void Shutdown::end_with_ranks() {
  outlives_ranks_ = false;
  on_ranks_gone();
}

void Shutdown::end(const std::string& cause, int exit_code, milliseconds grace) {
  if (!is_running()) return;
  decide(exit_code, EndKind::kFailed, cause);
  job_.say("launcher: " + cause);
  job_.events.record("verdict", {{"code", exit_code}, {"cause", cause}});
  channel_.close_news();
  kill_after_ = kTermTime;
  enter(Phase::kNotifying, grace);
}

void Shutdown::enter(Phase phase, milliseconds next_after) {
  phase_ = phase;
  if (!ending_since_) ending_since_ = std::chrono::steady_clock::now();
  stop_starts_();
  wait_for_next_phase(next_after);
  if (phase == Phase::kTerminating || phase == Phase::kKilling) {
    const auto number =
        static_cast<std::uint32_t>(phase == Phase::kTerminating ? SIGTERM : SIGKILL);
    for (Agents::Node& node : job_.agents) {
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
  on_ranks_gone();
}

void Shutdown::wait_for_next_phase(milliseconds next_after) {
  phase_timer_.expires_after(next_after);
  phase_timer_.async_wait([this](const asio::error_code& error) {
    if (!error) next_phase();
  });
}

void Shutdown::next_phase() {
  switch (phase_) {
    case Phase::kSaving:
      say_what_is_saved();
      // What saving has left of --grace.
      return enter(Phase::kTerminating,
                   std::max(kTermTime, std::chrono::ceil<milliseconds>(
                                           saves_until_ - std::chrono::steady_clock::now())));
    case Phase::kNotifying:
      return enter(Phase::kTerminating, kill_after_);
    case Phase::kTerminating:
      return enter(Phase::kKilling, kKillTime);
    case Phase::kKilling:
      return leave();
    case Phase::kAbandoning:
      if (std::exchange(all_told_to_leave_, true)) return abandon();
      // Somebody does not leave, and those through whom he is reached wait for him.
      job_.agents.tell_to_leave(true);
      return wait_for_next_phase(kParentLeaveTime);
    case Phase::kStarting:
    case Phase::kRunning:
    case Phase::kOver:
      return;
  }
}

void Shutdown::on_ranks_gone() {
  look_for_wills();
  if (phase_ == Phase::kSaving) return;
  if (phase_ == Phase::kAbandoning || phase_ == Phase::kOver) return;
  // An agent reports that its ranks are gone only after it was told to start some.
  if (!has_started_ && phase_ != Phase::kKilling) return;
  if (outlives_ranks_ && phase_ == Phase::kRunning) return;
  for (const Agents::Node& node : job_.agents) {
    if (has_started_ && node.link && !node.all_exited) return;
  }
  leave();
}

void Shutdown::leave() {
  phase_ = Phase::kAbandoning;
  if (!ending_since_) ending_since_ = std::chrono::steady_clock::now();
  stop_starts_();
  time_limit_.cancel();
  job_.agents.tell_to_leave(false);
  all_told_to_leave_ = !job_.agents.has_tree();
  wait_for_next_phase(job_.options.has_job_temp ? kLeaveTimeWithFiles : kLeaveTime);
  finish_if_gone();
}

void Shutdown::reap_agents() {
  job_.agents.reap();
  look_for_wills();
  finish_if_gone();
}

void Shutdown::finish_if_gone() {
  if (phase_ != Phase::kAbandoning) return;
  for (std::uint32_t node = 0; node < job_.agents.size(); ++node) {
    // What it carried has gone with it, told to or not.
    if (job_.agents[node].link && job_.agents[node].link->is_reaped())
      job_.agents.lose_children_of(node);
  }
  job_.agents.tell_to_leave(false);
  if (!job_.agents.are_reaped()) return;
  phase_ = Phase::kOver;
  report_failure();
  job_.io.stop();
}

void Shutdown::abandon() {
  report_failure();
  // For ranks on a host out of reach.
  const auto ending_time = std::chrono::ceil<std::chrono::seconds>(
      job_.options.lease.value_or(kDefaultLease) + kHeartbeatInterval);
  for (Agents::Node& node : job_.agents) {
    if (!node.link || node.link->reap()) continue;
    node.link->kill_process();
    if (!node.link->hello() || node.link->is_lost()) continue;
    job_.say(node.link->why_not_left().empty() ? "launcher: the agent on host " + node.host +
                                                     " did not end in time; it has been killed"
             : node.all_exited
                 ? "launcher: all ranks on host " + node.host +
                       " have ended, but the connection to it does not; it is given up"
                 : "launcher: host " + node.host +
                       " does not answer; what runs there ends by itself within " +
                       std::to_string(ending_time.count()) + " s");
  }
  phase_ = Phase::kOver;
  job_.io.stop();
}

}  // namespace chainmail::launch
