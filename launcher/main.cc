// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// `launcher`: the controller of a job, and with --agent its hand on one node.

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <iostream>
#include <new>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "launcher/agent/agent.h"
#include "launcher/agent/supervisor.h"
#include "launcher/allocation/job_hosts.h"
#include "launcher/command_line/parse.h"
#include "launcher/controller/controller.h"
#include "launcher/controller/elastic/fixed/fixed_restarts.h"
#include "launcher/controller/elastic/machine/world_log.h"
#include "launcher/controller/state/root_cause.h"
#include "launcher/files/file_lock.h"
#include "launcher/hosts/host_text.h"
#include "launcher/hosts/hostfile.h"
#include "launcher/hosts/this_machine.h"
#include "launcher/hosts/watched_hosts.h"
#include "launcher/job/environment.h"
#include "launcher/jobs/job_command.h"
#include "launcher/output/job_directory.h"
#include "launcher/placement/placement.h"
#include "launcher/plan_report.h"
#include "launcher/process/child_process.h"
#include "launcher/process/signals.h"
#include "launcher/remote/agent_image.h"
#include "launcher/remote/agent_starter.h"
#include "launcher/remote/rsh_command.h"

namespace {

using namespace chainmail::launch;

HostSet hosts_of(const Options& options, const Application& program) {
  HostRequest request;
  request.list_or_file = program.hosts;
  request.hostfile = program.hostfile;
  const bool names_hosts = !program.hosts.empty() || !program.hostfile.empty();
  if (!options.host_discovery.empty() && !names_hosts) {
    request.discovery = split_command(options.host_discovery, "--host-discovery");
  }
  request.rules.refuses_repeats = options.hostfile_strict;
  // What would be ignored later is refused now, but for a last line without an end.
  if (options.elastic.is_on()) request.rules = kWatchedHostsRules;
  request.include = options.include;
  request.exclude = options.exclude;
  request.remote_shell = remote_shell_of(options);
  HostSet hosts = find_job_hosts(request, current_environment());
  for (const std::string& note : hosts.notes) std::cerr << "launcher: " << note << "\n";
  return hosts;
}

// This process holds the job's secret. Ranks are programs of their own and dump as the user likes.
void forbid_core_dumps() { prctl(PR_SET_DUMPABLE, 0); }

// The hosts of all programs; those of the first go to programs that name none.
Placement place(const Options& options, HostSet& all) {
  const MapBy map_by =
      options.map_by.value_or(all.takes_turns && !options.rank_by ? MapBy::kNode : MapBy::kSlot);
  const PlacementOptions how{{}, {}, options.oversubscribe, map_by, options.rank_by};
  std::vector<ApplicationPlacement> programs = {{all.hosts, options.ranks, options.per_node}};
  for (const Application& program : options.more_applications) {
    ApplicationPlacement& placed = programs.emplace_back();
    placed.ranks = program.ranks;
    placed.per_node = program.per_node;
    if (program.hosts.empty() && program.hostfile.empty()) continue;
    const HostSet own = hosts_of(options, program);
    placed.hosts = own.hosts;
    all.source += "; " + own.source;
    for (const Host& host : own.hosts) {
      const auto is_known = [&host](const Host& known) { return known.name == host.name; };
      if (std::none_of(all.hosts.begin(), all.hosts.end(), is_known)) all.hosts.push_back(host);
    }
  }
  Placement placement = place_applications(programs, how);
  const auto ranks = static_cast<int>(placement.ranks.size());
  if (options.input.kind == InputTarget::Kind::kRank && options.input.rank >= ranks) {
    throw UsageError("--stdin " + std::to_string(options.input.rank) +
                     ": the last rank of this job is " + std::to_string(ranks - 1));
  }
  return placement;
}

// Of an elastic job: whether the hosts can be followed, and a rank per slot, as many as are
// allowed.
void prepare_elastic(HostSet& hosts, Options& options) {
  // A pipe says what it has to say once.
  std::error_code error;
  if (!std::filesystem::is_regular_file(hosts.file, error)) hosts.file.clear();
  if (options.ranks) return;
  std::uint32_t slots = 0;
  for (const Host& host : hosts.hosts) slots += static_cast<std::uint32_t>(host.slots);
  const std::uint32_t first = options.elastic.sizes().fit(slots);
  if (first == 0) {
    throw UsageError(hosts.source + " has " + std::to_string(slots) +
                     " slots, fewer than --elastic needs to begin; add hosts, or lower MIN");
  }
  options.ranks = static_cast<int>(first);
}

// "-H hosts" is a list of one host where there is no such file.
Placement place_or_explain(const Options& options, HostSet& hosts) {
  try {
    return place(options, hosts);
  } catch (const UsageError& error) {
    const std::string& value = options.hosts;
    if (value.empty() || value.find_first_of(",:/@[") != std::string::npos ||
        std::filesystem::exists(value)) {
      throw;
    }
    throw UsageError(std::string(error.what()) + "; if a file was meant: there is no file " +
                     value + " here");
  }
}

// With hosts that do not come back at once after a failure; of one restart.
class Patience {
 public:
  using Clock = std::chrono::steady_clock;

  /// Waits before the next try, longer each time, but not much beyond `end`; false when there was
  /// time enough, that of the tries included.
  bool wait(std::optional<Clock::time_point> end) {
    const auto now = Clock::now();
    if (!begin_) {
      begin_ = now;
      std::cerr << "launcher: the hosts are tried again for " << kMost.count() / 60 << " minutes"
                << std::endl;
    }
    if (now + next_ > *begin_ + kMost) return false;
    if (end && now + next_ > *end) next_ = std::chrono::seconds(1);
    std::this_thread::sleep_for(next_);
    next_ = std::min(2 * next_, std::chrono::seconds(30));
    return true;
  }

 private:
  static constexpr std::chrono::seconds kMost{600};
  std::optional<Clock::time_point> begin_;
  std::chrono::seconds next_{1};
};

// Until its ranks have ended by themselves.
void wait_for_lost_hosts(const Options& options,
                         std::optional<std::chrono::milliseconds> time_left) {
  std::chrono::milliseconds pause = options.lease.value_or(kDefaultLease) + kHeartbeatInterval;
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

  explicit TimeLeft(std::optional<std::chrono::milliseconds> limit) : limit_(limit) {}

  [[nodiscard]] std::optional<std::chrono::milliseconds> now() const {
    if (!limit_) return std::nullopt;
    const auto passed =
        std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - started_);
    return std::max(*limit_ - passed, std::chrono::milliseconds(1));
  }
  [[nodiscard]] std::optional<Clock::time_point> end() const {
    return limit_ ? std::optional(started_ + *limit_) : std::nullopt;
  }

 private:
  const std::optional<std::chrono::milliseconds> limit_;
  const Clock::time_point started_ = Clock::now();
};

// Each elastic job needs a hosts file of its own, since lines in it are ranks.
void lock_hosts(const std::string& file, const Options& options, FileLock& lock) {
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
    std::cerr << "launcher: the launcher of the job before on " << file
              << (owner > 0 ? " has been killed; its ranks may still save their state"
                            : " cannot be seen from here (killed, in another container, or on "
                              "another machine)")
              << ": waiting for its end" << std::endl;
  });
  if (held.is_ours) return;
  throw UsageError("another elastic job runs on the hosts file " + file +
                   (held.owner > 0 ? " (launcher " + std::to_string(held.owner) + ")" : "") +
                   ": each needs one of its own, since lines in it are ranks");
}

// One set of ranks that come and go; where the program knows nothing of that, one after the other,
// with the hosts of the time.
int run_elastic_job(const Options& options, HostSet hosts, const Placement& placement,
                    const std::vector<int>& ignored_signals) {
  using Clock = std::chrono::steady_clock;
  const TimeLeft time_left(options.timeout);
  const std::string path = own_path();
  FileLock lock;
  lock_hosts(hosts.file, options, lock);
  JobDirectory directory;
  FixedRestarts restarts(options);
  std::vector<std::string> leaving;  // until somebody edits the file, or it is discovered anew
  Options now = options;
  for (std::uint32_t generation = 0;; ++generation) {
    const auto begun = Clock::now();
    Controller controller(now, placement, path, directory, ignored_signals, generation, hosts);
    const int code = controller.run(time_left.now());
    const auto restart = controller.restart();
    if (!restart) return code;
    lock.renew();
    directory.renew();
    // A program that has said what it is has lost nothing.
    const bool is_change = generation > 0 || restart->is_failure;
    const std::string refusal =
        is_change
            ? restarts.refusal(restart->is_failure, restart->begun_at.value_or(begun), Clock::now())
            : "";
    if (!refusal.empty()) {
      std::cerr << "launcher: " << refusal << ": the job ends" << std::endl;
      return restart->is_failure ? code : exit_code::kLauncherError;
    }
    if (restart->is_failure) std::cerr << "launcher: " << restarts.words() << std::endl;
    if (controller.has_lost_host()) wait_for_lost_hosts(options, time_left.now());
    now = restarts.next_options();
    const std::string text = std::exchange(hosts, hosts_now(restart->hosts)).text;
    if (hosts.text != text) leaving.clear();
    leaving.insert(leaving.end(), restart->leaving.begin(), restart->leaving.end());
    leave_out(leaving, options.elastic.sizes(), hosts.hosts);
  }
}

// One world after the other, until one ends well or no restart is left.
int run_job(const Options& options, const HostSet& hosts, const Placement& placement,
            const std::vector<int>& ignored_signals) {
  if (options.elastic.is_on()) return run_elastic_job(options, hosts, placement, ignored_signals);
  const TimeLeft time_left(options.timeout);
  const std::string path = own_path();
  JobDirectory directory;
  Patience patience;
  for (int generation = 0;; ++generation) {
    Controller controller(options, placement, path, directory, ignored_signals,
                          static_cast<std::uint32_t>(generation));
    const int code = controller.run(time_left.now());
    if (options.max_restarts > 0) directory.renew();
    // A host that was lost may be booting.
    const bool waits =
        generation > 0 && controller.could_not_start() && patience.wait(time_left.end());
    if (waits) {
      --generation;
    } else if (generation >= options.max_restarts || !controller.may_start_anew()) {
      return code;
    } else if (controller.has_lost_host()) {
      wait_for_lost_hosts(options, time_left.now());
    }
    if (waits) continue;
    patience = Patience();
    std::cerr << "launcher: all ranks are started anew (restart " << generation + 1 << " of "
              << options.max_restarts << ")" << std::endl;
  }
}

// Who asks for encryption wants to know what it does not cover.
void warn_of_open_channel(const Options& options, const Placement& placement) {
  const bool has_others = std::any_of(placement.nodes.begin(), placement.nodes.end(),
                                      [](const Host& host) { return !is_this_machine(host); });
  const std::vector<std::string> words = remote_shell_of(options);
  if (options.encryption.empty() || !has_others ||
      std::any_of(words.begin(), words.end(), is_ssh)) {
    return;
  }
  std::cerr
      << "launcher: what the launcher itself sends, the job's secret too, goes to other hosts "
         "by "
      << words.front()
      << ", which may not encrypt it; where the network cannot be trusted use --rsh ssh"
      << std::endl;
}

// What the caller asked for; a script that gets half of it has to know.
int print(const std::string& text) {
  std::cout << text << std::flush;
  if (!std::cout) throw chainmail::system_error("cannot write standard output");
  return 0;
}

int run(const std::vector<std::string>& arguments, const std::vector<int>& ignored_signals) {
  if (const auto command = parse_job_command(arguments)) return print(run_job_command(*command));
  Options options = parse_options(arguments);
  if (options.help) return print(usage_text());
  if (options.help_all) return print(full_usage_text());
  if (options.version) return print("chainmail launcher " CHAINMAIL_VERSION "\n");
  // A bad --rsh is the user's mistake even where no host needs it.
  (void)remote_shell_of(options);
  HostSet hosts = hosts_of(options, options);
  if (options.elastic.is_on()) prepare_elastic(hosts, options);
  Placement placement = place_or_explain(options, hosts);
  // Words of --rsh-args alone are for ssh.
  if (options.remote_shell.empty() && options.remote_shell_arguments.empty()) {
    options.remote_shell = default_remote_shell(hosts.scheduler, placement.nodes);
  }
  const Plan plan{options, hosts, placement};
  if (options.dry_run) return print(options.json ? plan_json(plan) : plan_text(plan));
  // Apart from what the ranks print.
  if (options.display_map) std::cerr << plan_text(plan);
  warn_of_open_channel(options, placement);
  forbid_core_dumps();
  return run_job(options, hosts, placement, ignored_signals);
}

int fail(const std::string& message, int code) {
  std::cerr << "launcher: " << message << "\n";
  return code;
}

// It runs already; nothing of it stays, however the job ends.
void remove_staged_agent(const std::string& folder) {
  (void)unlink((folder + "/launcher").c_str());
  (void)rmdir(folder.c_str());
}

// Whoever starts us with a standard stream closed would have what is opened first in its place,
// and messages written into it.
void open_closed_streams() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    if (fcntl(fd, F_GETFD) < 0) (void)open("/dev/null", O_RDWR);  // takes the lowest free number
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<int> ignored_signals = signals_ignored_by_caller();
  // Until somebody is there to pass them on to.
  ignore_passed_signals();
  open_closed_streams();
  signal(SIGCHLD, SIG_DFL);  // who ignores it gets no exit codes
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  try {
    if (arguments.size() == 1 && arguments.front() == "--agent-id") {
      std::cout << agent_identity() << "\n";
      return 0;
    }
    if (arguments.size() >= 2 && arguments.front() == "--agent") {
      const bool is_child = arguments.size() > 2 && arguments[2] == kChildOfLauncher;
      if (arguments.size() > 2 && !is_child) remove_staged_agent(arguments[2]);
      forbid_core_dumps();
      char* const end = argv[argc - 1] + std::strlen(argv[argc - 1]);
      ControlGroup group = fork_under_supervisor(arguments[1], {argv[0], end}, is_child);
      const RaisedFileLimit descriptors;
      return Agent(arguments[1], descriptors.before(), std::move(group)).run();
    }
    if (arguments.size() == 1 && arguments.front() == "--outlive") {
      outlive_launcher();
      return 0;
    }
    if (arguments.size() == 2 && arguments.front() == "--keep-lock") {
      keep_lock(std::chrono::milliseconds(std::strtoll(arguments[1].c_str(), nullptr, 10)));
      return 0;
    }
    return run(arguments, ignored_signals);
  } catch (const UsageError& error) {
    return fail(std::string(error.what()) + "; launcher --help shows all options",
                exit_code::kUsage);
  } catch (const HostsError& error) {
    return fail(error.what(), exit_code::kUsage);
  } catch (const std::bad_alloc&) {
    return fail("no memory left for this process: is there a limit (ulimit -v)?",
                exit_code::kLauncherError);
  } catch (const std::system_error& error) {
    const bool is_limit = error.code() == std::errc::resource_unavailable_try_again;
    return fail(is_limit ? "cannot start a thread: is there a limit of processes or memory "
                           "(ulimit -u, ulimit -v)?"
                         : error.what(),
                exit_code::kLauncherError);
  } catch (const std::exception& error) {
    return fail(error.what(), exit_code::kLauncherError);
  }
}
