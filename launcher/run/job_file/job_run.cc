// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/run/job_file/job_run.h"

#include <signal.h>
#include <sys/prctl.h>

#include <cerrno>
#include <chrono>
#include <exception>
#include <functional>
#include <iostream>
#include <optional>
#include <utility>

#include "base/error.h"
#include "launcher/files/text_file.h"
#include "launcher/hosts/host_text.h"
#include "launcher/job/environment.h"
#include "launcher/job/exit_code.h"
#include "launcher/job/text.h"
#include "launcher/jobs/file/job_file.h"
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

// Nothing is made; the run that has no number yet is called UUID.
int print_plan(const JobSpec& spec, Options options) {
  HostSet hosts = hosts_of(options, options);
  const HostPicker::Chosen chosen = HostPicker(spec.hosts.count).from(hosts.hosts);
  if (chosen.missing > 0) {
    throw HostsError("the job needs " + std::to_string(spec.hosts.count.value_or(1)) +
                     " hosts, and " + hosts.source + " has " + std::to_string(hosts.hosts.size()));
  }
  hosts.hosts = chosen.hosts;
  const JobPlaces places = places_of(spec, "JOB", "UUID");
  complete_for_hosts(spec, places, hosts.hosts, options);
  const Placement placement = place_ranks(options, hosts);
  const Options shown = with_hidden_secrets(spec, options);
  const Plan plan{shown, hosts, placement};
  std::cout << (options.json ? plan_json(plan) : plan_text(plan)) << std::flush;
  if (!std::cout) throw system_error("cannot write standard output");
  return 0;
}

// With --resume the folders of the last job of that name, in which its program finds what it has
// saved.
std::string uuid_to_resume(const JobSpec& spec, const std::string& root) {
  const FoundJob before = find_job(root, spec.name);
  if (!is_ended(before.record.phase)) {
    throw UsageError("--resume: job " + before.record.id + " has not ended; launcher stop " +
                     before.record.id + " ends it");
  }
  return before.record.uuid;
}

JobRecord new_record(const JobSpec& spec, const Options& options, const std::string& root) {
  JobRecord record;
  if (options.elastic.resumes && !options.elastic.is_on()) record.uuid = uuid_to_resume(spec, root);
  record.name = spec.name;
  record.image = spec.container.image;
  record.warnings = spec.warnings;
  record.ranks = spec.ranks.value_or(0);
  record.resize = joined(spec.hosts.resize, " ");
  if (options.grace) record.grace_ms = options.grace->count();
  return record;
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
void release_hosts_later(const std::string& root, const IdleHosts& idle, const JobRecord& ended) {
  if (idle.resize.empty()) return;
  (void)detach(false, ended.id, [&](News&) {
    release_hosts(root, idle, ended);
    return 0;
  });
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

// A supervisor that cannot go on has not vanished: the job says why it has ended.
int supervise(const JobSpec& spec, const Options& options, JobFolder& folder,
              const std::vector<int>& ignored_signals, bool is_silent,
              const JobSupervisor::Tell& tell,
              const std::function<void(const JobRecord&)>& on_settled) {
  try {
    return JobSupervisor(spec, options, folder, ignored_signals, is_silent, tell, on_settled).run();
  } catch (const std::exception& error) {
    JobRecord record = folder.record();
    record.phase = JobPhase::kFailed;
    record.reason = error.what();
    record.exit_code = exit_code::kLauncherError;
    record.ended_ms = std::chrono::duration_cast<std::chrono::milliseconds>(
                          std::chrono::system_clock::now().time_since_epoch())
                          .count();
    if (const std::string loss = folder.write(record); !loss.empty()) tell("launcher: " + loss);
    tell(std::string("launcher: ") + error.what());
    return exit_code::kLauncherError;
  }
}

int supervise_detached(const JobSpec& spec, const Options& options, JobFolder& folder,
                       const std::vector<int>& ignored_signals, News& news) {
  JobRecord record = folder.record();
  record.launcher = this_launcher();
  if (const std::string loss = folder.write(record); !loss.empty()) news.say("launcher: " + loss);
  if (const std::string warning = leave_session(record.uuid); !warning.empty()) {
    news.say("launcher: " + warning);
  }
  const auto on_settled = [&news](const JobRecord& now) {
    const int code = now.exit_code.value_or(0);
    if (code != 0) news.say(last_words(now));
    news.settle(code);
  };
  const auto tell = [&news](const std::string& line) { news.say(line); };
  return supervise(spec, options, folder, ignored_signals, true, tell, on_settled);
}

}  // namespace

int run_job_file(const Options& typed, std::span<const std::string> arguments,
                 std::vector<int> ignored_signals) {
  if (!typed.program.empty()) {
    throw UsageError("--job FILE names the program; '" + typed.program.front() + "' is one more");
  }
  JobSpec spec = read_job_file(typed.job.file, job_file_settings(typed.job));
  if (typed.wait_hosts) spec.hosts.wait = *typed.wait_hosts;
  Options options = job_options(spec, arguments);
  for (const std::string& warning : spec.warnings) std::cerr << "launcher: " << warning << "\n";
  if (options.dry_run) return print_plan(spec, std::move(options));
  // What is wrong with them is wrong before there is a job.
  if (spec.hosts.resize.empty()) (void)hosts_of(options, options);
  const std::string root = state_root(current_environment());
  std::optional<JobFolder> folder(std::in_place, root, new_record(spec, options, root));
  add_places(spec, *folder);
  const std::string id = folder->record().id;
  std::cerr << "launcher: job " << id << ": logs " << folder->record().stdouterr << std::endl;
  prctl(PR_SET_DUMPABLE, 0);  // this process holds secrets
  const IdleHosts idle{spec.hosts.resize, spec.directory,
                       spec.hosts.idle.value_or(std::chrono::minutes(10))};
  if (!typed.job.is_detached) {
    const auto tell = [](const std::string& line) { std::cerr << line << std::endl; };
    const int code = supervise(spec, options, *folder, ignored_signals, false, tell, nullptr);
    const JobRecord ended = folder->record();
    folder.reset();
    release_hosts_later(root, idle, ended);
    return code;
  }
  options.input = {InputTarget::Kind::kNone, 0};
  ignored_signals.push_back(SIGHUP);
  const int code = detach(!typed.job.has_no_wait, id, [&](News& news) {
    const int result = supervise_detached(spec, options, *folder, ignored_signals, news);
    const JobRecord ended = folder->record();
    folder.reset();
    news.settle(result);
    release_hosts(root, idle, ended);
    return result;
  });
  if (code == 0) std::cout << id << std::endl;
  return code;
}

}  // namespace chainmail::launch
