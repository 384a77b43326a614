// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// `launcher rm`.

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <set>

#include "base/error.h"
#include "launcher/hosts/host_text.h"
#include "launcher/job/exit_code.h"
#include "launcher/jobs/commands/files/output_path.h"
#include "launcher/jobs/commands/shown_text.h"
#include "launcher/jobs/commands/verb_call.h"
#include "launcher/jobs/folder/disk/job_places.h"

namespace chainmail::launch {
namespace {

namespace fs = std::filesystem;

struct Removal {
  std::string name;
  std::string folder;
  std::string uuid;               // whose outputs go, too; empty: nobody's
  std::set<std::string> outputs;  // folders that hold what belongs to the job alone
};

std::set<std::string> output_folders(const JobRecord& record) {
  std::set<std::string> folders;
  std::vector<JobRecord::Output> all = record.outputs;
  all.push_back({kStdouterrId, record.stdouterr});
  for (const JobRecord::Output& output : all) {
    const std::string folder = uuid_folder_in(output.path, record.uuid);
    if (!folder.empty()) folders.insert(folder);
  }
  return folders;
}

Removal removal_of(const VerbCall& call, const std::string& name) {
  // A launcher that was killed early has left it.
  const std::string unreadable = unreadable_folder(call.root, name);
  if (!unreadable.empty()) {
    check_owner(unreadable, name);
    return {name, unreadable, {}, {}};
  }
  const FoundJob job = launch::find_job(call.root, name);
  const JobRecord& record = job.record;
  check_owner(job.folder, record.id);
  if (!is_ended(record.phase)) {
    throw SystemError(record.id + " is " + std::string(to_string(record.phase)) +
                          ": 'launcher stop " + record.id + "' ends it, then it can be removed",
                      EBUSY);
  }
  if (!call.words.has("--outputs")) return {record.id, job.folder, {}, {}};
  return {record.id, job.folder, record.uuid, output_folders(record)};
}

// A job that was resumed has its outputs in common with the one that goes on from it. False where
// one of them is taken out of `removals` for that.
bool keep_those_in_common(const std::string& root, std::vector<Removal>& removals) {
  const auto is_whole = [](const Removal& removal) { return !removal.uuid.empty(); };
  if (std::none_of(removals.begin(), removals.end(), is_whole)) return true;
  std::vector<std::string> unreadable;
  std::set<std::string> kept;
  for (const FoundJob& job : list_jobs(root, true, unreadable)) {
    const auto goes = [&job](const Removal& removal) { return removal.name == job.record.id; };
    if (std::any_of(removals.begin(), removals.end(), goes)) continue;
    for (const Removal& removal : removals) {
      if (!is_whole(removal) || removal.uuid != job.record.uuid) continue;
      if (!kept.insert(removal.name).second) continue;
      say("the outputs of " + removal.name + " are those of " + job.record.id +
          ", which was resumed from it, as well: 'launcher rm --outputs " + removal.name + " " +
          job.record.id + "' removes both, once they have ended");
    }
  }
  std::erase_if(removals, [&kept](const Removal& removal) { return kept.contains(removal.name); });
  return kept.empty();
}

// Never what a link leads to, nor what is another user's.
void remove_output(const std::string& folder) {
  struct stat status {};
  if (lstat(folder.c_str(), &status) != 0) {
    if (errno != ENOENT && errno != ENOTDIR) throw system_error("cannot remove " + folder);
    say("there is no " + folder + " on this machine: nothing is removed there");
    return;
  }
  if (!S_ISDIR(status.st_mode) || status.st_uid != geteuid()) {
    throw SystemError("cannot remove " + folder + ", which is not a folder of yours", EPERM);
  }
  std::error_code error;
  fs::remove_all(folder, error);
  if (!error) return;
  throw SystemError("cannot remove all of " + folder + ": " + error.message(), error.value());
}

}  // namespace

int run_rm(const VerbCall& call) {
  std::vector<Removal> removals;
  std::set<std::string> folders;
  int code = 0;
  // All are looked at before the first is removed; what is wrong with one is no other's matter.
  for (const std::string& name : call.words.operands()) {
    try {
      Removal removal = removal_of(call, name);
      if (folders.insert(removal.folder).second) removals.push_back(std::move(removal));
    } catch (const UsageError& error) {
      say(error.what());
      code = exit_code::kUsage;
    } catch (const SystemError& error) {
      say(error.what());
      code = exit_code::kLauncherError;
    }
  }
  if (!keep_those_in_common(call.root, removals)) code = exit_code::kLauncherError;
  for (const Removal& removal : removals) {
    try {
      // The folder last: it knows where the outputs are.
      for (const std::string& output : removal.outputs) remove_output(output);
      remove_job_folder(call.root, removal.folder);
      print_text("removed " + shown_text(removal.name) + "\n");
    } catch (const SystemError& error) {
      say(error.what());
      code = exit_code::kLauncherError;
    }
  }
  return code;
}

}  // namespace chainmail::launch
