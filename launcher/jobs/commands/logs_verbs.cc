// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// `launcher logs` and `launcher attach`.

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <set>
#include <utility>

#include "base/error.h"
#include "launcher/hosts/host_text.h"
#include "launcher/hosts/this_machine.h"
#include "launcher/job/exit_code.h"
#include "launcher/job/text.h"
#include "launcher/jobs/commands/files/follow.h"
#include "launcher/jobs/commands/verb_call.h"

namespace chainmail::launch {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kEventsFile = "events.jsonl";
constexpr std::string_view kPrepareBegin = "prepare.";
constexpr std::string_view kPrepareEnd = ".txt";

// A file of the job's output is where the job writes it, or linked in its folder.
std::vector<std::string> places_of(const FoundJob& job, const std::string& name) {
  if (name == kEventsFile) return {job.folder + "/" + name};
  std::vector<std::string> places;
  if (!job.record.stdouterr.empty()) places.push_back(job.record.stdouterr + "/" + name);
  if (job.record.stdouterr != job.folder) places.push_back(job.folder + "/" + name);
  return places;
}

template <typename Number>
std::optional<Number> number_of(const VerbCall& call, const std::string& option) {
  const auto text = call.words.value_of(option);
  if (!text) return std::nullopt;
  const auto number = whole_number<Number>(*text);
  if (!number)
    throw UsageError("launcher logs: " + option + " takes a whole number, not " + in_quotes(*text));
  return number;
}

// The host in "prepare.HOST.txt".
std::optional<std::string> prepared_host(const std::string& name) {
  const std::size_t around = kPrepareBegin.size() + kPrepareEnd.size();
  if (name.size() <= around || !name.starts_with(kPrepareBegin) || !name.ends_with(kPrepareEnd)) {
    return std::nullopt;
  }
  return name.substr(kPrepareBegin.size(), name.size() - around);
}

// Adds those of hosts that have come since, in the order of their names.
class PrepareFiles {
 public:
  PrepareFiles(const FoundJob& job, std::optional<std::uint64_t> lines)
      : folders_(places_of(job, "")), lines_(lines) {}

  void operator()(std::vector<FollowedFile>& files) {
    std::set<std::string> found;
    for (const std::string& folder : folders_) {
      std::error_code error;
      fs::directory_iterator entries(folder, error);
      for (; !error && entries != fs::directory_iterator(); entries.increment(error)) {
        std::string name = entries->path().filename().string();
        if (prepared_host(name) && !known_.contains(name)) found.insert(std::move(name));
      }
    }
    for (const std::string& name : found) {
      known_.insert(name);
      std::vector<std::string> places;
      for (const std::string& folder : folders_) places.push_back(folder + name);
      files.push_back({GrowingFile(std::move(places), lines_), STDOUT_FILENO,
                       "==> " + printable(*prepared_host(name)) + " <==\n"});
    }
  }

 private:
  std::vector<std::string> folders_;  // with a '/' at the end
  std::optional<std::uint64_t> lines_;
  std::set<std::string> known_;
};

// Which file of a job, but for those of its preparation.
std::string chosen_file(const VerbWords& words, std::optional<std::uint32_t> rank) {
  const bool has_errors = words.has("--stderr");
  const bool has_events = words.has("--events");
  const int kinds = static_cast<int>(has_events) + static_cast<int>(words.has("--prepare")) +
                    static_cast<int>(has_errors || rank);
  if (kinds > 1) {
    throw UsageError(
        "launcher logs: --events, --prepare, and --stderr or --rank exclude each other");
  }
  if (has_events) return std::string(kEventsFile);
  if (!rank) return has_errors ? "stderr.txt" : "stdout.txt";
  return "ranks/rank." + std::to_string(*rank) + (has_errors ? "/stderr" : "/stdout");
}

// Where the folder of the output is not on this machine, who waits may do so for ever.
bool is_elsewhere(const FoundJob& job, const std::string& place) {
  std::error_code error;
  const std::string& host = job.record.launcher.host;
  return !fs::exists(fs::path(place).parent_path(), error) && !host.empty() &&
         host != own_host_name();
}

void say_if_elsewhere(const FoundJob& job, const std::string& place) {
  if (!is_elsewhere(job, place)) return;
  say("there is no " + place + " on this machine; the launcher of " + job.record.id + " is on " +
      job.record.launcher.host);
}

// Why nothing was printed.
void say_nothing_there(const FoundJob& job, const std::string& place) {
  if (is_elsewhere(job, place)) return say_if_elsewhere(job, place);
  const JobPhase phase = job.record.phase;
  say("there is no " + place +
      (is_ended(phase) ? "" : " yet: " + job.record.id + " is " + std::string(to_string(phase))));
}

void say_lost(const JobRecord& record) { say(record.id + " is lost: " + record.reason); }

void exit_on_interrupt_of(const FoundJob& job, const std::string& verb) {
  const std::string& id = job.record.id;
  exit_on_interrupt(id + " goes on; 'launcher " + verb + " " + id +
                    "' shows its output again, 'launcher stop " + id + "' ends it");
}

bool has_shown(const Follower& follower) {
  return std::any_of(follower.files().begin(), follower.files().end(),
                     [](const FollowedFile& followed) { return followed.file.was_there(); });
}

}  // namespace

int run_logs(const VerbCall& call) {
  const auto lines = number_of<std::uint64_t>(call, "-n");
  const auto rank = number_of<std::uint32_t>(call, "--rank");
  const std::string file = chosen_file(call.words, rank);
  const FoundJob job = call.job();
  std::string place;
  std::vector<FollowedFile> files;
  Follower::AddFiles add_files;
  if (call.words.has("--prepare")) {
    add_files = PrepareFiles(job, lines);
    place = places_of(job, "prepare.HOST.txt").front();
  } else {
    files.push_back({GrowingFile(places_of(job, file), lines), STDOUT_FILENO, ""});
    place = files.front().file.places().front();
  }
  Follower follower(std::move(files), std::move(add_files));
  FoundJob last = job;
  if (call.words.has("-f")) {
    if (!is_ended(job.record.phase)) {
      say_if_elsewhere(job, place);
      exit_on_interrupt_of(job, "logs -f");
    }
    last = follower.follow(job);
  } else {
    follower.copy();
  }
  if (!has_shown(follower)) say_nothing_there(last, place);
  if (rank && !has_shown(follower)) return exit_code::kUsage;
  const bool is_lost = call.words.has("-f") && last.record.phase == JobPhase::kLost;
  if (is_lost) say_lost(last.record);
  const bool is_missing =
      !call.words.has("-f") && !has_shown(follower) && is_ended(last.record.phase);
  return is_lost || is_missing ? exit_code::kLauncherError : 0;
}

int run_attach(const VerbCall& call) {
  const FoundJob job = call.job();
  std::vector<FollowedFile> files;
  files.push_back({GrowingFile(places_of(job, "stdout.txt")), STDOUT_FILENO, ""});
  files.push_back({GrowingFile(places_of(job, "stderr.txt")), STDERR_FILENO, ""});
  if (!is_ended(job.record.phase)) {
    say_if_elsewhere(job, files.front().file.places().front());
    exit_on_interrupt_of(job, "attach");
  }
  const FoundJob last = Follower(std::move(files)).follow(job);
  if (last.record.phase == JobPhase::kLost) say_lost(last.record);
  return code_of(last.record);
}

}  // namespace chainmail::launch
