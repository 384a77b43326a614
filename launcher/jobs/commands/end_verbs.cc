// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// `launcher wait` and `launcher stop`.

#include <signal.h>

#include <algorithm>
#include <optional>
#include <thread>
#include <utility>

#include "base/deadline.h"
#include "base/error.h"
#include "launcher/command_line/values.h"
#include "launcher/job/exit_code.h"
#include "launcher/job/text.h"
#include "launcher/jobs/commands/shown_text.h"
#include "launcher/jobs/commands/verb_call.h"
#include "launcher/jobs/folder/job_folder.h"
#include "launcher/jobs/folder/launcher_process.h"
#include "launcher/jobs/folder/watched_job.h"

namespace chainmail::launch {
namespace {

using internal::Deadline;
using std::chrono::milliseconds;

// What ranks get where nothing else was said (launcher/controller/shutdown.h).
constexpr milliseconds kDefaultGrace{30'000};
// From the end of that time until all is tidied up, however many hosts.
constexpr milliseconds kMostTidying{60'000};
// Between two signals, which are one where the second comes before the first was taken.
constexpr milliseconds kBetweenSignals{300};

std::vector<WatchedJob> watched(std::vector<FoundJob> jobs) {
  std::vector<WatchedJob> all;
  all.reserve(jobs.size());
  for (FoundJob& job : jobs) all.emplace_back(std::move(job));
  return all;
}

bool look_at_all(std::vector<WatchedJob>& jobs) {
  bool have_ended = true;
  for (WatchedJob& job : jobs) {
    job.look();
    have_ended = have_ended && job.has_ended();
  }
  return have_ended;
}

// Those that have not ended.
std::vector<std::string> ids_left(const std::vector<WatchedJob>& jobs) {
  std::vector<std::string> ids;
  for (const WatchedJob& job : jobs) {
    if (!job.has_ended()) ids.push_back(job.job().record.id);
  }
  return ids;
}

std::string run_or_runs(const std::vector<std::string>& ids) {
  return listed(ids) + (ids.size() == 1 ? " still runs" : " still run");
}

// True when all have ended.
bool wait_for_all(std::vector<WatchedJob>& jobs, std::optional<Deadline> deadline) {
  while (!look_at_all(jobs)) {
    if (deadline && deadline->has_passed()) return false;
    const milliseconds left = deadline ? deadline->left() : WatchedJob::kInterval;
    std::this_thread::sleep_for(std::min(WatchedJob::kInterval, left));
  }
  return true;
}

std::string end_text_of(const JobRecord& record) {
  std::string text = record.id + " has ended: " + std::string(to_string(record.phase));
  if (record.exit_code) text += ", exit code " + std::to_string(*record.exit_code);
  return record.reason.empty() ? text : text + ", " + record.reason;
}

// Writes the request, which reaches a supervisor on any machine, and wakes one that is on this.
void ask_for_end(const FoundJob& job, StopRequest request) {
  check_owner(job.folder, job.record.id);
  // A second signal would be Ctrl-C's second time; so would one long after what is written here,
  // which the supervisor looks for.
  const bool is_first = job.record.phase != JobPhase::kStopping || request == StopRequest::kNow;
  request_stop(job.folder, request, [&] {
    if (is_first) signal_launcher(job.record.launcher, SIGTERM);
  });
}

milliseconds longest_grace(const std::vector<WatchedJob>& jobs) {
  milliseconds longest{0};
  for (const WatchedJob& job : jobs) {
    const std::int64_t grace_ms = job.job().record.grace_ms;
    if (!job.has_ended()) {
      longest = std::max(longest,
                         grace_ms > 0 ? Deadline::bounded(milliseconds(grace_ms)) : kDefaultGrace);
    }
  }
  return longest;
}

// As pressing Ctrl-C again: what runs here ends at once, whatever it does.
void hurry(const std::vector<WatchedJob>& jobs) {
  for (const WatchedJob& job : jobs) {
    if (!job.has_ended()) signal_launcher(job.job().record.launcher, SIGTERM);
  }
}

}  // namespace

int run_wait(const VerbCall& call) {
  std::optional<Deadline> deadline;
  if (const auto limit = call.words.value_of("--timeout")) {
    deadline = Deadline::after(parse_duration("--timeout", *limit));
  }
  std::vector<WatchedJob> jobs = watched(call.jobs());
  exit_on_interrupt(jobs.size() == 1 ? jobs.front().job().record.id + " goes on"
                                     : "the jobs go on");
  if (!wait_for_all(jobs, deadline)) {
    say(run_or_runs(ids_left(jobs)) + " after " + *call.words.value_of("--timeout"));
    return exit_code::kTimeLimit;
  }
  int code = 0;
  for (const WatchedJob& job : jobs) {
    const JobRecord& record = job.job().record;
    if (record.phase == JobPhase::kLost) say(record.id + " is lost: " + record.reason);
    if (code == 0) code = code_of(record);
  }
  return code;
}

int run_stop(const VerbCall& call) {
  const bool is_now = call.words.has("--now");
  int code = 0;
  std::vector<WatchedJob> jobs;
  exit_on_interrupt("what was asked to end goes on ending");
  // Who wants them to end is not helped by an end of none.
  for (const std::string& name : call.words.operands()) {
    try {
      WatchedJob job(launch::find_job(call.root, name));
      if (!job.has_ended()) ask_for_end(job.job(), is_now ? StopRequest::kNow : StopRequest::kStop);
      jobs.push_back(std::move(job));
    } catch (const UsageError& error) {
      say(error.what());
      code = exit_code::kUsage;
    } catch (const SystemError& error) {
      say(error.what());
      code = exit_code::kLauncherError;
    }
  }
  const milliseconds grace = is_now ? milliseconds(0) : longest_grace(jobs);
  if (is_now && !wait_for_all(jobs, Deadline::after(kBetweenSignals))) hurry(jobs);
  // Most jobs end before anybody wonders.
  if (!wait_for_all(jobs, Deadline::after(milliseconds(1000)))) {
    const std::vector<std::string> ids = ids_left(jobs);
    say("waiting for the end of " + listed(ids) +
        (is_now ? ""
                : ", whose ranks have up to " + seconds_text(grace) + " to end by themselves"));
  }
  if (!wait_for_all(jobs, Deadline::after(grace + kMostTidying))) {
    say(run_or_runs(ids_left(jobs)) + ", though asked to end; " +
        (is_now ? "is the launcher stopped, or its machine cut off? 'launcher show' names both"
                : "'launcher stop --now' is more urgent"));
    return exit_code::kLauncherError;
  }
  std::string text;
  for (const WatchedJob& job : jobs) text += shown_text(end_text_of(job.job().record)) + "\n";
  print_text(text);
  return code;
}

}  // namespace chainmail::launch
