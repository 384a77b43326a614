// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/run/job_file/job_supervisor.h"

#include <signal.h>
#include <time.h>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <set>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "launcher/controller/controller.h"
#include "launcher/controller/state/job_end.h"
#include "launcher/hosts/host_text.h"
#include "launcher/job/exit_code.h"
#include "launcher/job/text.h"
#include "launcher/output/hidden_values.h"
#include "launcher/run/attempts/resize.h"
#include "launcher/run/job_file/job_options.h"
#include "launcher/run/job_plan.h"
#include "launcher/run/plan_report.h"
#include "launcher/run/worlds.h"

namespace chainmail::launch {
namespace {

using std::chrono::milliseconds;
using Ended = AttemptEnd::Kind;

// What programs that tell of no steps must have run for, to count as having begun to train.
constexpr milliseconds kGotGoing = std::chrono::minutes(1);
constexpr milliseconds kLongestPause = std::chrono::seconds(30);
constexpr milliseconds kSignalLook{200};
constexpr int kEndingSignals[] = {SIGINT, SIGTERM, SIGHUP};

std::int64_t wall_clock_ms() {
  return std::chrono::duration_cast<milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

Ended kind_of(const JobEnd& end) {
  switch (end.kind) {
    case EndKind::kSuccess:
      return Ended::kSucceeded;
    case EndKind::kHostLost:
      return Ended::kHostLost;
    case EndKind::kNotStarted:
      // Otherwise it is the program that cannot be run.
      return end.lost_hosts.empty() ? Ended::kProgramFailed : Ended::kNotStarted;
    case EndKind::kRankFailed:
    case EndKind::kNotPrepared:
    case EndKind::kFailed:
      return Ended::kProgramFailed;
    case EndKind::kOutputLost:
      break;  // the ranks have done what they had to do
    case EndKind::kStopped:
      return Ended::kStopped;
    case EndKind::kTimeLimit:
      return Ended::kTimeLimit;
  }
  return Ended::kLauncherError;
}

JobPhase phase_of(Ended kind) {
  switch (kind) {
    case Ended::kSucceeded:
      return JobPhase::kSucceeded;
    case Ended::kStopped:
      return JobPhase::kStopped;
    case Ended::kProgramFailed:
    case Ended::kHostLost:
    case Ended::kNotStarted:
    case Ended::kTimeLimit:
    case Ended::kLauncherError:
      break;
  }
  return JobPhase::kFailed;
}

AttemptEnd stopped_by(int number, const std::string& reason) {
  return {Ended::kStopped, exit_code::kSignalBase + number, reason};
}

bool has_any_of(const std::vector<Host>& hosts, const std::set<std::string>& names) {
  return std::any_of(hosts.begin(), hosts.end(),
                     [&names](const Host& host) { return names.contains(host.name); });
}

// Signals that the launcher's caller ignores stay ignored, also where they are blocked, which would
// have the kernel keep them.
sigset_t ending_signals(const std::vector<int>& ignored) {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : kEndingSignals) {
    if (std::find(ignored.begin(), ignored.end(), number) == ignored.end()) sigaddset(&set, number);
  }
  return set;
}

// The hosts that could not be had since the last pause.
struct SilentHosts {
  std::set<std::string> hosts;
  AttemptEnd end;         // of one of them that may come back, where there is one
  bool may_pass = false;  // there is one

  void add(const std::vector<std::string>& lost, const AttemptEnd& how, bool may_come_back) {
    if (hosts.empty() || (may_come_back && !may_pass)) end = how;
    hosts.insert(lost.begin(), lost.end());
    may_pass = may_pass || may_come_back;
  }
};

// Of an elastic job, whose hosts come one by one, and what containers have to mount.
void make_outputs(const JobPlaces& places) {
  for (const JobSpec::Folder& output : places.outputs) {
    std::error_code error;
    std::filesystem::create_directories(output.path, error);
    if (!error) continue;
    throw SystemError(
        "output " + output.id + ": cannot make " + output.path + ": " + error.message(),
        error.value());
  }
}

}  // namespace

JobSupervisor::JobSupervisor(JobSpec spec, Options options, JobFolder& folder,
                             std::vector<int> ignored_signals, Caller caller, Beginning beginning)
    : spec_(std::move(spec)),
      options_(std::move(options)),
      folder_(folder),
      ignored_signals_(std::move(ignored_signals)),
      ending_signals_(ending_signals(ignored_signals_)),
      caller_(std::move(caller)),
      record_(folder.record()),
      places_(places_of(spec_, folder.path(), record_.uuid)),
      files_(folder.path(), places_.stdouterr),
      retries_(spec_.retry),
      choice_(spec_.hosts.count),
      beginning_(std::move(beginning)),
      writer_(folder),
      stop_watch_([path = folder.path()] { return stop_request_of(path); }) {
  sigprocmask(SIG_BLOCK, &ending_signals_, &mask_before_);
}

// One that came too late to change anything does not change the exit code either.
JobSupervisor::~JobSupervisor() {
  const timespec none{0, 0};
  while (sigtimedwait(&ending_signals_, nullptr, &none) > 0) continue;
  sigprocmask(SIG_SETMASK, &mask_before_, nullptr);
}

int JobSupervisor::run() {
  resize(spec_.hosts.count.value_or(0));
  AttemptEnd end;
  if (const auto stop = wait_for_lost_job()) {
    finish(*stop);
    return stop->exit_code;
  }
  while (true) {
    ++record_.attempt;
    try {
      end = attempt();
    } catch (const HostsError& error) {
      end = {Ended::kLauncherError, exit_code::kUsage, error.what()};
    } catch (const UsageError& error) {
      end = {Ended::kLauncherError, exit_code::kUsage, error.what()};
    } catch (const std::exception& error) {
      end = {Ended::kLauncherError, exit_code::kLauncherError, error.what()};
    }
    if (end.kind == Ended::kLauncherError) say(end.reason);
    const RetryPolicy::Decision next = retries_.after(end);
    record_.losses = retries_.losses();
    record_.failures = retries_.failures();
    if (!next.words.empty()) say(end.reason + ": " + next.words);
    if (!next.is_retry) break;
    enter(JobPhase::kRetrying, end.reason);
    if (const auto stop = wait(Clock::now() + pause_after(end))) {
      end = *stop;
      break;
    }
  }
  finish(end);
  return end.exit_code;
}

std::optional<AttemptEnd> JobSupervisor::wait_for_lost_job() {
  if (beginning_.lost_job.empty()) return std::nullopt;
  const milliseconds time = time_of_lost_hosts(options_);
  const std::string words = "waits " + seconds_text(time) + ", in which ranks of " +
                            beginning_.lost_job + " that still run end by themselves";
  say(words);
  enter(JobPhase::kQueued, words);
  return wait(Clock::now() + time);
}

// Ranks of a host that was lost may go on until they notice it, and write into the same folders.
milliseconds JobSupervisor::pause_after(const AttemptEnd& end) const {
  if (end.kind != Ended::kHostLost) return spec_.retry.wait;
  return std::max(spec_.retry.wait, time_of_lost_hosts(options_));
}

// On hosts that answer, which may have to be waited for.
AttemptEnd JobSupervisor::attempt() {
  const auto until = Clock::now() + spec_.hosts.wait;
  milliseconds pause{1000};
  SilentHosts silence;
  while (true) {
    if (const auto stop = stop_asked()) return *stop;
    HostSet hosts = hosts_now();
    const HostPicker::Chosen chosen = choice_.from(hosts.hosts);
    AttemptEnd end;
    bool may_pass = true;
    bool is_said = false;  // by the controller, but for what it was told not to say again
    if (chosen.missing > 0 || hosts.hosts.empty()) {
      end = not_enough_hosts(hosts);
    } else if (!has_any_of(chosen.hosts, silence.hosts)) {
      hosts.hosts = chosen.hosts;
      end = start_on(std::move(hosts), chosen);
      if (end.kind != Ended::kNotStarted) {
        awaited_.clear();  // who waits again says so again
        return end;
      }
      silence.add(lost_hosts_, end, may_pass_);
      continue;  // spares are tried at once
    } else {
      end = silence.end;
      may_pass = silence.may_pass;
      is_said = end.reason != awaited_;
    }
    if (Clock::now() >= until || !may_pass) {
      if (!is_said) say(end.reason);
      return end;
    }
    if (std::exchange(awaited_, end.reason) != end.reason) {
      say("trying again for at most " + seconds_text(spec_.hosts.wait) + ": " + end.reason);
    }
    enter(JobPhase::kQueued, end.reason);
    if (const auto stop = wait(std::min(Clock::now() + pause, until))) return *stop;
    pause = std::min(2 * pause, kLongestPause);
    silence = {};
  }
}

// Machines that hosts.resize brings up may not be in the file yet; and somebody may be writing it
// while a job waits that has run for days.
HostSet JobSupervisor::hosts_now() {
  if (std::optional<HostSet>& first = beginning_.hosts) {
    std::error_code error;
    // A pipe says what it has to say once.
    const bool is_pipe =
        !first->file.empty() && !std::filesystem::is_regular_file(first->file, error);
    return is_pipe ? *first : *std::exchange(first, std::nullopt);
  }
  HostSet hosts;
  try {
    hosts = hosts_of(options_, options_);
  } catch (const HostsError& error) {
    hosts.source = error.what();
  } catch (const UsageError& error) {
    hosts.source = error.what();
  }
  for (const std::string& note : hosts.notes) {
    if (notes_.insert(note).second) say(note);
  }
  return hosts;
}

AttemptEnd JobSupervisor::not_enough_hosts(const HostSet& hosts) const {
  const std::string wanted =
      spec_.hosts.count ? std::to_string(*spec_.hosts.count) + " hosts" : std::string("hosts");
  return {Ended::kNotStarted, exit_code::kLauncherError,
          "the job needs " + wanted + "; " +
              (hosts.hosts.empty() ? hosts.source
                                   : hosts.source + " has " + std::to_string(hosts.hosts.size()))};
}

AttemptEnd JobSupervisor::start_on(HostSet hosts, const HostPicker::Chosen& chosen) {
  Options options = options_for(hosts);
  if (is_time_over()) return time_is_over();
  if (options.elastic.is_on() || options.container.is_on()) make_outputs(places_);
  const Placement placement = place_ranks(options, hosts);
  record_.ranks = static_cast<std::uint32_t>(placement.ranks.size());
  set_hosts(hosts, chosen);
  tell_plan(options, hosts, placement);
  JobObserver observer;
  observer.on_phase = [this](JobPhase phase, const std::string& reason) { enter(phase, reason); };
  observer.on_beat = [this] { return stop_watch_.latest(); };
  observer.on_words = [this](const std::string& line) { say(line); };
  observer.began = began_;
  const WorldsEnd worlds =
      run_worlds(options, hosts, placement, ignored_signals_, observer, generation_);
  // No program has seen a world that did not begin.
  if (worlds.end.kind != EndKind::kNotStarted) generation_ += worlds.generations;
  JobEnd end = worlds.end;
  end.reason = without_values(std::move(end.reason), options.hidden);
  if (!end.lost_output.empty()) record_.warnings.push_back(end.lost_output);
  has_run_ = has_run_ || end.kind == EndKind::kRankFailed || end.ran_for;
  lost_hosts_ = end.lost_hosts;
  may_pass_ = end.may_pass;
  for (const std::string& host : lost_hosts_) choice_.set_back(host);
  for (JobRecord::Host& host : record_.hosts) {
    if (std::find(lost_hosts_.begin(), lost_hosts_.end(), host.name) != lost_hosts_.end()) {
      host.state = "lost";
    }
  }
  Ended kind = kind_of(end);
  // Otherwise it is the time that all ranks have waited (limits.stall), or a preparation's.
  if (kind == Ended::kTimeLimit && !is_time_over()) kind = Ended::kProgramFailed;
  return {kind, end.exit_code, end.reason,
          end.steps > 0 || end.ran_for.value_or(milliseconds(0)) >= kGotGoing, end.was_interrupted};
}

void JobSupervisor::tell_plan(const Options& options, const HostSet& hosts,
                              const Placement& placement) {
  const Options shown = with_hidden_secrets(spec_, options);
  const Plan plan{shown, hosts, placement};
  const std::string loss = folder_.write_file("plan.json", plan_json(plan));
  if (!loss.empty()) say(loss);
  if (options.display_map) caller_.tell(plan_text(plan));
  const std::string warning = warning_of_open_channel(options, placement);
  if (!warning.empty()) say(warning);
}

Options JobSupervisor::options_for(const HostSet& hosts) {
  Options options = options_;
  complete_for_hosts(spec_, places_, hosts.hosts, options);
  options.copies = files_.copies();
  options.is_silent = caller_.is_silent;
  options.output_dir = folder_.path() + "/ranks";
  options.events_dir = folder_.path();
  options.wait_hosts = milliseconds(0);
  options.said_reason = awaited_;
  options.container = container_of(spec_, places_, record_.uuid, options.working_directory);
  // Not the names of the job that this one goes on from, whose containers may be ending still.
  if (options.container.is_on()) {
    options.container.name_prefix = "chainmail-" + record_.id + "." + std::to_string(++tries_);
  }
  options.preparation.output_folder = folder_.path();
  return options;
}

bool JobSupervisor::is_time_over() const {
  return options_.timeout && Clock::now() - began_ >= *options_.timeout;
}

AttemptEnd JobSupervisor::time_is_over() {
  const std::string reason = "the time limit of " + seconds_text(*options_.timeout) + " has passed";
  say(reason);
  return {Ended::kTimeLimit, exit_code::kTimeLimit, reason};
}

// Nothing when the time has come; otherwise the end that somebody has asked for meanwhile.
std::optional<AttemptEnd> JobSupervisor::wait(Clock::time_point until) {
  while (true) {
    if (const auto stop = stop_asked()) return stop;
    const auto now = Clock::now();
    if (is_time_over()) return time_is_over();
    if (now >= until) return std::nullopt;
    const auto left = std::chrono::duration_cast<milliseconds>(until - now) + milliseconds(1);
    const timespec pause{0, std::min(left, kSignalLook).count() * 1'000'000};
    const int number = sigtimedwait(&ending_signals_, nullptr, &pause);
    if (number <= 0) continue;
    stop_ = stopped_by(number, "stopped by " + signal_name(number));
    say(stop_->reason);
  }
}

std::optional<AttemptEnd> JobSupervisor::stop_asked() {
  if (stop_) return stop_;
  const timespec none{0, 0};
  const int number = sigtimedwait(&ending_signals_, nullptr, &none);
  const StopRequest request = stop_watch_.latest();
  if (number > 0) {
    stop_ = stopped_by(number, "stopped by " + signal_name(number));
  } else if (request != StopRequest::kNone) {
    stop_ = request == StopRequest::kNow ? stopped_by(SIGKILL, "stopped by launcher stop --now")
                                         : stopped_by(SIGTERM, "stopped by launcher stop");
  }
  if (stop_) say(stop_->reason);
  return stop_;
}

void JobSupervisor::resize(std::uint32_t hosts) {
  if (spec_.hosts.resize.empty()) return;
  const std::string count = std::to_string(hosts);
  enter(JobPhase::kQueued, "hosts.resize is asked for " + count + " hosts");
  const std::string failure = call_resize(folder_.root(), resize_program(spec_), hosts, [this] {
    return stop_asked().has_value() || is_time_over();
  });
  say("hosts.resize for " + count + " hosts: " + (failure.empty() ? "done" : failure));
}

void JobSupervisor::enter(JobPhase phase, const std::string& reason) {
  record_.phase = phase;
  record_.reason = reason;
  // Ranks that fail at once have started as well.
  const bool is_start = phase == JobPhase::kRunning || (phase == JobPhase::kRetrying && has_run_);
  if (is_start && record_.started_ms == 0) record_.started_ms = wall_clock_ms();
  say_loss();
  // Whoever has waited for it shall see it.
  writer_.write(record_, is_start ? settling() : nullptr);
}

std::function<void()> JobSupervisor::settling() {
  if (!caller_.on_settled) return nullptr;
  return [settle = std::exchange(caller_.on_settled, nullptr), now = record_] { settle(now); };
}

void JobSupervisor::set_hosts(const HostSet& hosts, const HostPicker::Chosen& chosen) {
  record_.hosts.clear();
  for (const Host& host : hosts.hosts) {
    record_.hosts.push_back({host.name, static_cast<std::uint32_t>(host.slots), "used"});
  }
  for (const std::string& spare : chosen.spares) record_.hosts.push_back({spare, 0, "spare"});
}

// Files first: who sees the end can read all of them.
void JobSupervisor::finish(const AttemptEnd& end) {
  files_.log("the job has ended with code " + std::to_string(end.exit_code) +
             (end.reason.empty() ? "" : ": " + end.reason));
  if (const std::string loss = files_.flush(); !loss.empty()) record_.warnings.push_back(loss);
  record_.phase = phase_of(end.kind);
  record_.reason = end.reason;
  record_.exit_code = end.exit_code;
  record_.ended_ms = wall_clock_ms();
  writer_.write(record_, settling());
  writer_.finish();
  say_loss();
}

void JobSupervisor::say_loss() {
  const std::string loss = writer_.take_loss();
  if (!loss.empty() && !std::exchange(has_said_loss_, true)) say(loss);
}

void JobSupervisor::say(const std::string& words) {
  files_.log(words);
  caller_.tell("launcher: " + words);
}

}  // namespace chainmail::launch
