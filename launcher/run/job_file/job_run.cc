// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/run/job_file/job_run.h"

#include <signal.h>
#include <sys/prctl.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <exception>
#include <functional>
#include <iostream>
#include <optional>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/unique_fd.h"
#include "launcher/files/text_file.h"
#include "launcher/hosts/host_text.h"
#include "launcher/job/environment.h"
#include "launcher/job/exit_code.h"
#include "launcher/job/text.h"
#include "launcher/jobs/file/job_file.h"
#include "launcher/jobs/folder/disk/job_lock.h"
#include "launcher/jobs/folder/job_folder.h"
#include "launcher/jobs/folder/job_list.h"
#include "launcher/jobs/folder/launcher_process.h"
#include "launcher/run/attempts/detach.h"
#include "launcher/run/attempts/resize.h"
#include "launcher/run/job_file/job_options.h"
#include "launcher/run/job_file/job_supervisor.h"
#include "launcher/run/job_file/job_verb.h"
#include "launcher/run/job_plan.h"
#include "launcher/run/plan_report.h"

namespace chainmail::launch {
namespace {

constexpr std::chrono::seconds kResumePatience{10};
// One whose launcher is being killed has its lock for a moment.
constexpr std::chrono::milliseconds kDeathPatience{1000};
constexpr std::chrono::milliseconds kDeathPoll{50};

struct JobRun {
  JobSpec spec;
  Options options;
  std::vector<int> ignored_signals;
  JobSupervisor::Beginning beginning;
};

// Nothing is made; the run that has no number yet is called UUID.
int print_plan(const JobSpec& spec, Options options) {
  HostSet hosts = hosts_of(options, options);
  say_notes(hosts);
  const HostPicker::Chosen chosen = HostPicker(spec.hosts.count).from(hosts.hosts);
  if (chosen.missing > 0) {
    throw HostsError("the job needs " + std::to_string(spec.hosts.count.value_or(1)) +
                     " hosts, and " + hosts.source + " has " + std::to_string(hosts.hosts.size()));
  }
  hosts.hosts = chosen.hosts;
  const JobPlaces places = places_of(spec, "JOB", "UUID");
  complete_for_hosts(spec, places, hosts.hosts, options);
  options.events_dir = state_root(current_environment()) + "/jobs/" + spec.name + "-XXXXXX";
  const Placement placement = place_ranks(options, hosts);
  const Options shown = with_hidden_secrets(spec, options);
  const Plan plan{shown, hosts, placement};
  std::cout << (options.json ? plan_json(plan) : plan_text(plan)) << std::flush;
  if (!std::cout) throw system_error("cannot write standard output");
  return 0;
}

// Newest first.
std::vector<JobRecord> jobs_named(const std::string& name, const std::string& root) {
  std::vector<std::string> unreadable;
  std::vector<JobRecord> jobs;
  for (FoundJob& job : list_jobs(root, true, unreadable)) {
    if (job.record.name == name) jobs.push_back(std::move(job.record));
  }
  return jobs;
}

// With --resume the folders of the last job of that name, in which its program finds what it has
// saved.
JobRecord job_to_resume(const JobSpec& spec, const std::string& root) {
  const auto end = std::chrono::steady_clock::now() + kDeathPatience;
  for (;; std::this_thread::sleep_for(kDeathPoll)) {
    const std::vector<JobRecord> jobs = jobs_named(spec.name, root);
    if (jobs.empty()) {
      throw UsageError("--resume: there is no job '" + spec.name + "' in " + root +
                       " to go on from; without --resume a new one begins");
    }
    // Also one that looks older, where the clock was set back.
    const auto running =
        std::ranges::find_if(jobs, [](const JobRecord& job) { return !is_ended(job.phase); });
    if (running == jobs.end()) return jobs.front();
    if (std::chrono::steady_clock::now() < end) continue;
    throw UsageError("--resume: job " + running->id + " has not ended; launcher stop " +
                     running->id + " ends it");
  }
}

JobRecord new_record(const JobSpec& spec, const Options& options) {
  JobRecord record;
  record.name = spec.name;
  record.image = spec.container.image;
  record.warnings = spec.warnings;
  record.ranks = spec.ranks.value_or(0);
  // Words behind the first may be relative to the folder in which it runs.
  if (!spec.hosts.resize.empty()) {
    record.resize = resize_program(spec).directory + ": " + joined(spec.hosts.resize, " ");
  }
  if (options.grace) record.grace_ms = options.grace->count();
  return record;
}

// `lost_job` is set where the job that this one goes on from may not have ended everywhere.
void make_folder(const JobSpec& spec, const Options& options, const std::string& root,
                 std::optional<JobFolder>& folder, std::string& lost_job) {
  JobRecord record = new_record(spec, options);
  internal::UniqueFd turn;
  if (options.elastic.resumes) {
    // Two at once would go on in the same folders.
    turn =
        take_turn(root, "resume.lock", [end = std::chrono::steady_clock::now() + kResumePatience] {
          return std::chrono::steady_clock::now() > end;
        });
    const JobRecord before = job_to_resume(spec, root);
    if (!turn.is_open()) {
      throw SystemError("--resume: another launcher holds " + root +
                            "/resume.lock, or it cannot be made: try again when that one has begun",
                        EBUSY);
    }
    record.uuid = before.uuid;
    if (before.phase == JobPhase::kLost) lost_job = before.id;
  }
  folder.emplace(root, std::move(record));
}

void add_places(const JobSpec& spec, JobFolder& folder) {
  JobRecord record = folder.record();
  const JobPlaces places = places_of(spec, folder.path(), record.uuid);
  record.stdouterr = places.stdouterr;
  for (const JobSpec::Folder& output : places.outputs) {
    record.outputs.push_back({output.id, output.path});
  }
  for (const JobSpec::Folder& input : places.inputs) {
    record.inputs.push_back({input.id, input.path});
  }
  for (const std::string& loss :
       {folder.write(record), folder.write_file("job.json", normalised_json(spec))}) {
    if (!loss.empty()) throw SystemError(loss, EIO);
  }
}

// Whoever typed the job does not wait for hosts to be idle.
void release_hosts_later(const std::string& root, const ResizeProgram& program,
                         const JobRecord& ended) {
  if (program.words.empty()) return;
  const auto release = [&](News&) {
    (void)leave_session(ended.id);
    release_hosts(root, program, ended);
    return 0;
  };
  try {
    (void)detach(false, ended.id, release, [] {});
  } catch (const SystemError& error) {
    std::cerr << "launcher: hosts.resize for 0 hosts: " << error.what() << std::endl;
  }
}

// Of a job that has failed before its ranks ran: what the launcher said of it, with the last lines
// of who has failed.
std::string last_words(const JobRecord& record) {
  constexpr std::size_t kMostBytes = 65536;
  const std::string path = record.stdouterr + "/execution.log";
  std::string text;
  try {
    text = read_host_text(path, path, Pipes::kRefuse, kMostBytes);
  } catch (const UsageError&) {
    // The reason has to do.
  }
  text.erase(text.find_last_not_of('\n') + 1);
  return text.empty() ? "launcher: " + record.reason : text;
}

// The job has not vanished: it says why it has ended.
void write_failure(JobFolder& folder, const std::string& why) {
  JobRecord record = folder.record();
  if (is_ended(record.phase)) return;
  record.phase = JobPhase::kFailed;
  record.reason = why;
  record.exit_code = exit_code::kLauncherError;
  record.ended_ms = std::chrono::duration_cast<std::chrono::milliseconds>(
                        std::chrono::system_clock::now().time_since_epoch())
                        .count();
  (void)folder.write(record);
}

int supervise(const JobRun& job, JobFolder& folder, JobSupervisor::Caller caller) {
  const JobSupervisor::Tell tell = caller.tell;
  try {
    return JobSupervisor(job.spec, job.options, folder, job.ignored_signals, std::move(caller),
                         job.beginning)
        .run();
  } catch (const std::exception& error) {
    write_failure(folder, error.what());
    tell(std::string("launcher: ") + error.what());
    return exit_code::kLauncherError;
  }
}

int supervise_detached(const JobRun& job, JobFolder& folder, News& news) {
  JobRecord record = folder.record();
  record.launcher = this_launcher();
  if (const std::string loss = folder.write(record); !loss.empty()) news.say("launcher: " + loss);
  if (const std::string warning = leave_session(record.id); !warning.empty()) {
    news.say("launcher: " + warning);
  }
  return supervise(job, folder,
                   {.is_silent = true,
                    .tell = [&news](const std::string& line) { news.say(line); },
                    .on_settled =
                        [&news](const JobRecord& now) {
                          const int code = now.exit_code.value_or(0);
                          if (code != 0) news.say(last_words(now));
                          news.settle(code);
                        }});
}

int run_here(const JobRun& job, std::optional<JobFolder>& folder) {
  const auto tell = [](const std::string& line) { std::cerr << line << std::endl; };
  const int code = supervise(job, *folder, {false, tell, nullptr});
  const JobRecord ended = folder->record();
  const std::string root = folder->root();
  folder.reset();
  release_hosts_later(root, resize_program(job.spec), ended);
  return code;
}

int run_detached(JobRun job, std::optional<JobFolder>& folder, bool is_waiting) {
  job.options.input = {InputTarget::Kind::kNone, 0};
  job.ignored_signals.push_back(SIGHUP);
  const std::string id = folder->record().id;
  const auto run = [&](News& news) {
    const int result = supervise_detached(job, *folder, news);
    const JobRecord ended = folder->record();
    const std::string root = folder->root();
    folder.reset();
    news.settle(result);
    release_hosts(root, resize_program(job.spec), ended);
    return result;
  };
  const int code = detach(is_waiting, id, run, [&folder] { folder.reset(); });
  if (code == 0) std::cout << id << std::endl;
  return code;
}

}  // namespace

int run_job_file(const Options& typed, std::span<const std::string> arguments,
                 std::vector<int> ignored_signals) {
  if (!typed.program.empty()) {
    throw UsageError("--job FILE names the program; '" + typed.program.front() + "' is one more");
  }
  JobRun job;
  job.spec = read_job_file(typed.job.file, job_file_settings(typed.job));
  if (typed.wait_hosts) job.spec.hosts.wait = *typed.wait_hosts;
  job.options = job_options(job.spec, arguments);
  for (const std::string& warning : job.spec.warnings) std::cerr << "launcher: " << warning << "\n";
  if (job.options.dry_run) return print_plan(job.spec, std::move(job.options));
  // What is wrong with them is wrong before there is a job.
  if (job.spec.hosts.resize.empty()) {
    job.beginning.hosts = hosts_of(job.options, job.options);
    say_notes(*job.beginning.hosts);
  }
  job.ignored_signals = std::move(ignored_signals);
  std::optional<JobFolder> folder;
  try {
    make_folder(job.spec, job.options, state_root(current_environment()), folder,
                job.beginning.lost_job);
    add_places(job.spec, *folder);
    const JobRecord& record = folder->record();
    std::cerr << "launcher: job " << record.id << ": logs " << record.stdouterr << std::endl;
    prctl(PR_SET_DUMPABLE, 0);  // this process holds secrets
    return typed.job.is_detached ? run_detached(std::move(job), folder, !typed.job.has_no_wait)
                                 : run_here(job, folder);
  } catch (const std::exception& error) {
    if (folder) write_failure(*folder, error.what());
    throw;
  }
}

}  // namespace chainmail::launch
