// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Runs the job of a job file from its first attempt to its end, and keeps its folder true: hosts
// are chosen and waited for, attempts follow each other as RetryPolicy says, and whoever asks for
// the end by `launcher stop` is heard between attempts, too.
//
// The main thread's; signals that end programs are blocked outside of attempts, and looked for.

#pragma once

#include <signal.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "launcher/controller/outside/job_observer.h"
#include "launcher/controller/outside/request_watch.h"
#include "launcher/job/host.h"
#include "launcher/job/options.h"
#include "launcher/jobs/file/job_spec.h"
#include "launcher/jobs/folder/job_folder.h"
#include "launcher/placement/placement.h"
#include "launcher/run/attempts/host_picker.h"
#include "launcher/run/attempts/retry_policy.h"
#include "launcher/run/job_file/job_files.h"
#include "launcher/run/job_file/job_variables.h"
#include "launcher/run/job_file/state_writer.h"

namespace chainmail::launch {

class JobSupervisor {
 public:
  /// A line for whoever has typed the job.
  using Tell = std::function<void(const std::string& line)>;

  /// Whoever has typed the job, and may wait for it.
  struct Caller {
    bool is_silent = false;  ///< what ranks print does not go to standard output and error
    Tell tell;               ///< the supervisor's own lines, in any case
    /// Once, in another thread: when ranks have started, or when the job has ended before that,
    /// with what its folder says then. May be missing.
    std::function<void(const JobRecord& record)> on_settled;
  };
  /// What is known before the first attempt.
  struct Beginning {
    std::optional<HostSet> hosts;  ///< that a first look has found
    std::string lost_job;  ///< the one that this job goes on from, whose ranks may still be ending
  };

  /// `options`: of job_options().
  JobSupervisor(JobSpec spec, Options options, JobFolder& folder, std::vector<int> ignored_signals,
                Caller caller, Beginning beginning);
  ~JobSupervisor();
  JobSupervisor(const JobSupervisor&) = delete;
  JobSupervisor& operator=(const JobSupervisor&) = delete;

  /// The job's exit code, which is in its folder then.
  int run();

 private:
  using Clock = std::chrono::steady_clock;

  AttemptEnd attempt();
  AttemptEnd start_on(HostSet hosts, const HostPicker::Chosen& chosen);
  [[nodiscard]] Options options_for(const HostSet& hosts);
  std::optional<AttemptEnd> wait(Clock::time_point until);
  [[nodiscard]] std::optional<AttemptEnd> stop_asked();
  [[nodiscard]] std::optional<AttemptEnd> wait_for_lost_job();
  [[nodiscard]] HostSet hosts_now();
  [[nodiscard]] bool is_time_over() const;
  [[nodiscard]] AttemptEnd time_is_over();
  [[nodiscard]] std::chrono::milliseconds pause_after(const AttemptEnd& end) const;
  [[nodiscard]] AttemptEnd not_enough_hosts(const HostSet& hosts) const;
  void resize(std::uint32_t hosts);
  void enter(JobPhase phase, const std::string& reason);
  void set_hosts(const HostSet& hosts, const HostPicker::Chosen& chosen);
  void tell_plan(const Options& options, const HostSet& hosts, const Placement& placement);
  void finish(const AttemptEnd& end);
  [[nodiscard]] std::function<void()> settling();
  void say_loss();
  void say(const std::string& words);

  const JobSpec spec_;
  const Options options_;
  JobFolder& folder_;
  const std::vector<int> ignored_signals_;
  const sigset_t ending_signals_;
  sigset_t mask_before_{};
  Caller caller_;
  JobRecord record_;
  JobPlaces places_;
  JobFiles files_;
  RetryPolicy retries_;
  HostPicker choice_;
  Beginning beginning_;
  std::set<std::string> notes_;  // that have been said
  StateWriter writer_;
  RequestWatch stop_watch_;
  const Clock::time_point began_ = Clock::now();
  std::optional<AttemptEnd> stop_;       // once somebody has asked for it
  std::vector<std::string> lost_hosts_;  // of the last attempt
  bool may_pass_ = false;                // they may come back
  std::string awaited_;                  // what was said of hosts that are waited for
  std::uint32_t generation_ = 0;
  std::uint32_t tries_ = 0;  // to start, of jobs in containers
  bool has_run_ = false;     // ranks have started, if only in an attempt that failed
  bool has_said_loss_ = false;
};

}  // namespace chainmail::launch
