// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/run/worlds.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <iostream>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "base/error.h"
#include "launcher/controller/controller.h"
#include "launcher/controller/elastic/fixed/fixed_restarts.h"
#include "launcher/controller/elastic/machine/world_log.h"
#include "launcher/files/file_lock.h"
#include "launcher/hosts/watched_hosts.h"
#include "launcher/job/exit_code.h"
#include "launcher/output/job_directory.h"

namespace chainmail::launch {
namespace {

void say(const JobObserver& observer, const std::string& line) {
  if (observer.on_words) return observer.on_words(line);
  std::cerr << "launcher: " << line << std::endl;
}

void wait_for_lost_hosts(const Options& options,
                         std::optional<std::chrono::milliseconds> time_left) {
  std::chrono::milliseconds pause = time_of_lost_hosts(options);
  if (time_left) pause = std::min(pause, *time_left);
  std::this_thread::sleep_for(pause);
}

std::string own_path() {
  std::error_code error;
  const std::string path = std::filesystem::read_symlink("/proc/self/exe", error).string();
  if (!error) return path;
  throw chainmail::SystemError(
      "cannot read /proc/self/exe: " + error.message() + "; is /proc mounted?", error.value());
}

// Of --timeout, which covers all worlds together.
class TimeLeft {
 public:
  using Clock = std::chrono::steady_clock;

  TimeLeft(std::optional<std::chrono::milliseconds> limit, std::optional<Clock::time_point> began)
      : limit_(limit), started_(began.value_or(Clock::now())) {}

  [[nodiscard]] std::optional<std::chrono::milliseconds> now() const {
    if (!limit_) return std::nullopt;
    const auto passed =
        std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - started_);
    return std::max(*limit_ - passed, std::chrono::milliseconds(1));
  }

 private:
  const std::optional<std::chrono::milliseconds> limit_;
  const Clock::time_point started_;
};

// Each elastic job needs a hosts file of its own, since lines in it are ranks.
void lock_hosts(const std::string& file, const Options& options, const JobObserver& observer,
                FileLock& lock) {
  if (file.empty()) return;
  std::error_code error;
  // By whatever name it is known.
  const std::string path = std::filesystem::canonical(file, error).string();
  // What agents and ranks take to end when their launcher has been killed.
  const auto outlives = elastic_grace(options) + std::chrono::milliseconds(1000);
  const std::string log = (error ? file : path) + "_log";
  // The job's log, by the name that it will have, which is mostly the same: the lock would make it.
  if (options.elastic.resumes && !std::filesystem::exists(file + "_log", error)) {
    throw UsageError(why_not_resumed(file));
  }
  const auto held = lock.take(log, outlives, [&](pid_t owner) {
    say(observer, "the launcher of the job before on " + file +
                      (owner > 0 ? " has been killed; its ranks may still save their state"
                                 : " cannot be seen from here (killed, in another container, or on "
                                   "another machine)") +
                      ": waiting for its end");
  });
  if (held.is_ours) return;
  throw UsageError("another elastic job runs on the hosts file " + file +
                   (held.owner > 0 ? " (launcher " + std::to_string(held.owner) + ")" : "") +
                   ": each needs one of its own, since lines in it are ranks");
}

// One set of ranks that come and go; where the program knows nothing of that, one after the other,
// with the hosts of the time.
WorldsEnd run_elastic_worlds(const Options& options, HostSet hosts, const Placement& placement,
                             const std::vector<int>& ignored_signals, const JobObserver& observer,
                             std::uint32_t first_generation) {
  const TimeLeft time_left(options.timeout, observer.began);
  const std::string path = own_path();
  FileLock lock;
  lock_hosts(hosts.own_file(), options, observer, lock);
  JobDirectory directory;
  FixedRestarts restarts(options);
  std::vector<std::string> leaving;  // until somebody edits the file, or it is discovered anew
  Options now = options;
  for (std::uint32_t world = 0;; ++world) {
    const auto begun = TimeLeft::Clock::now();
    Controller controller(now, placement, path, directory, ignored_signals,
                          first_generation + world, hosts, observer);
    const int code = controller.run(time_left.now());
    const auto restart = controller.restart();
    WorldsEnd end{controller.end(), world + 1};
    if (!restart) return end;
    lock.renew();
    directory.renew();
    // A program that has said what it is has lost nothing.
    const bool is_change = world > 0 || restart->is_failure;
    const std::string refusal =
        is_change ? restarts.refusal(restart->is_failure, restart->begun_at.value_or(begun),
                                     TimeLeft::Clock::now())
                  : "";
    if (!refusal.empty()) {
      say(observer, refusal + ": the job ends");
      end.end.reason = refusal;
      end.end.exit_code = restart->is_failure ? code : exit_code::kLauncherError;
      return end;
    }
    if (restart->is_failure) say(observer, restarts.words());
    if (controller.has_lost_host()) wait_for_lost_hosts(options, time_left.now());
    now = restarts.next_options();
    const std::string text = std::exchange(hosts, hosts_now(restart->hosts)).text;
    if (hosts.text != text) leaving.clear();
    leaving.insert(leaving.end(), restart->leaving.begin(), restart->leaving.end());
    leave_out(leaving, options.elastic.sizes(), hosts.hosts);
  }
}

}  // namespace

std::chrono::milliseconds time_of_lost_hosts(const Options& options) {
  return options.lease.value_or(kDefaultLease) + kHeartbeatInterval;
}

WorldsEnd run_worlds(const Options& options, const HostSet& hosts, const Placement& placement,
                     const std::vector<int>& ignored_signals, const JobObserver& observer,
                     std::uint32_t first_generation) {
  if (options.elastic.is_on()) {
    return run_elastic_worlds(options, hosts, placement, ignored_signals, observer,
                              first_generation);
  }
  const TimeLeft time_left(options.timeout, observer.began);
  const std::string path = own_path();
  JobDirectory directory;
  for (int world = 0;; ++world) {
    const auto number = static_cast<std::uint32_t>(world);
    Controller controller(options, placement, path, directory, ignored_signals,
                          first_generation + number, {}, observer);
    (void)controller.run(time_left.now());
    if (options.max_restarts > 0) directory.renew();
    if (world >= options.max_restarts || !controller.may_start_anew()) {
      return {controller.end(), number + 1};
    }
    if (controller.has_lost_host()) wait_for_lost_hosts(options, time_left.now());
    say(observer, "all ranks are started anew (restart " + std::to_string(world + 1) + " of " +
                      std::to_string(options.max_restarts) + ")");
  }
}

}  // namespace chainmail::launch
