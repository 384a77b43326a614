// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// `launcher ls` and `launcher cp`.

#include <signal.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "launcher/hosts/host_text.h"
#include "launcher/hosts/this_machine.h"
#include "launcher/job/exit_code.h"
#include "launcher/jobs/commands/files/output_path.h"
#include "launcher/jobs/commands/files/remote_copy.h"
#include "launcher/jobs/commands/files/tree_copy.h"
#include "launcher/jobs/commands/shown_text.h"
#include "launcher/jobs/commands/verb_call.h"

namespace chainmail::launch {
namespace {

namespace fs = std::filesystem;
using ListJson = nlohmann::ordered_json;

std::string text_of_list(const ListJson& list) {
  return list.dump(2, ' ', true, ListJson::error_handler_t::replace) + "\n";
}

bool is_there(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error);
}

// Where somebody else's machine has what this one has not.
bool is_on_another_host(const FoundJob& job, const std::string& folder) {
  const std::string& host = job.record.launcher.host;
  return !is_there(folder) && !host.empty() && host != own_host_name();
}

std::string shown_ids(const FoundJob& job, bool is_json) {
  const std::vector<JobRecord::Output> folders = folders_of(job);
  if (!is_json) {
    std::vector<TableRow> rows = {{"ID", "PATH"}};
    for (const JobRecord::Output& folder : folders) rows.push_back({folder.id, folder.path});
    return table_text(rows);
  }
  ListJson list = ListJson::array();
  for (const JobRecord::Output& folder : folders) {
    list.push_back({{"id", folder.id}, {"path", folder.path}});
  }
  return text_of_list(list);
}

std::string shown_name(const FolderEntry& entry) {
  if (entry.kind == "folder") return entry.name + "/";
  return entry.kind == "link" ? entry.name + " -> " + entry.target : entry.name;
}

std::string shown_entries(const std::vector<FolderEntry>& entries, bool is_long) {
  std::string text;
  if (!is_long) {
    for (const FolderEntry& entry : entries) text += shown_text(shown_name(entry)) + "\n";
    return text;
  }
  std::size_t width = std::string_view("SIZE").size();
  for (const FolderEntry& entry : entries) {
    width = std::max(width, std::to_string(entry.bytes).size());
  }
  const auto right = [width](const std::string& cell) {
    return std::string(width - cell.size(), ' ') + cell;
  };
  std::vector<TableRow> rows = {{right("SIZE"), "AGE", "NAME"}};
  const std::int64_t now = utc_now_ms();
  for (const FolderEntry& entry : entries) {
    rows.push_back({right(entry.kind == "file" ? std::to_string(entry.bytes) : "-"),
                    age_text(entry.modified_ms, now), shown_name(entry)});
  }
  return table_text(rows);
}

std::string json_of_entries(const std::vector<FolderEntry>& entries) {
  ListJson list = ListJson::array();
  for (const FolderEntry& entry : entries) {
    ListJson json = {{"name", entry.name},
                     {"kind", entry.kind},
                     {"bytes", entry.bytes},
                     {"modified_ms", entry.modified_ms}};
    if (entry.kind == "link") json["target"] = entry.target;
    list.push_back(std::move(json));
  }
  return text_of_list(list);
}

struct OutputPath {
  std::string id;
  std::string path;  // checked
};

// "ID:PATH".
OutputPath output_path_of(const std::string& text) {
  const std::size_t colon = text.find(':');
  if (colon == std::string::npos || colon == 0) {
    throw UsageError("launcher cp: " + in_quotes(text) +
                     " is not ID:PATH, such as MODEL:epoch_20 or MODEL: for all of it");
  }
  return {text.substr(0, colon), checked_path(text.substr(colon + 1))};
}

// What a link leads to takes the copy, as with cp; what is no file keeps what it is.
std::string without_link(const std::string& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0) {
    if (lstat(path.c_str(), &status) != 0) return path;
    throw UsageError("launcher cp: " + in_quotes(path) + " is a link that leads nowhere");
  }
  if (!S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode)) {
    throw UsageError("launcher cp: " + in_quotes(path) +
                     " is neither a file nor a folder: copy to a file, and read that");
  }
  std::error_code error;
  const bool is_link = fs::is_symlink(path, error);
  return is_link && S_ISREG(status.st_mode) ? fs::canonical(path).string() : path;
}

// Into a folder that is there, or as the name that is given, as cp has it.
std::string final_path_of(const std::string& destination, const std::string& name) {
  std::error_code error;
  if (fs::is_directory(destination, error)) return without_link(destination + "/" + name);
  if (destination.empty() || destination.back() == '/') {
    throw UsageError("launcher cp: there is no folder " + in_quotes(destination));
  }
  const fs::path parent = fs::path(destination).parent_path();
  if (!parent.empty() && !fs::is_directory(parent, error)) {
    throw UsageError("launcher cp: there is no folder " + in_quotes(parent.string()));
  }
  return without_link(destination);
}

void check_final_path(const std::string& path, bool is_folder) {
  struct stat status {};
  if (lstat(path.c_str(), &status) != 0 || (!is_folder && !S_ISDIR(status.st_mode))) return;
  throw UsageError("launcher cp: there is a " +
                   std::string(S_ISDIR(status.st_mode) ? "folder " : "file ") + in_quotes(path) +
                   " already: choose another name");
}

void check_not_inside(const std::string& from, const std::string& to) {
  std::error_code error;
  const fs::path parent = fs::path(to).parent_path();
  const fs::path real = fs::canonical(parent.empty() ? "." : parent, error);
  const fs::path whole(from);
  if (std::mismatch(whole.begin(), whole.end(), real.begin(), real.end()).first == whole.end()) {
    throw UsageError("launcher cp: cannot copy " + in_quotes(from) + " into itself");
  }
}

volatile sig_atomic_t last_signal = 0;

// A copy tidies up before it ends; a write that waits does not go on.
void note_signals() {
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction before {};
    if (sigaction(number, nullptr, &before) == 0 && before.sa_handler == SIG_IGN) continue;
    struct sigaction handler {};
    handler.sa_handler = [](int signal_number) { last_signal = signal_number; };
    sigaction(number, &handler, nullptr);
  }
}

// Throws SystemError where nothing could be copied.
void copy_here(const std::string& from, const std::string& to, const IsInterrupted& interrupted) {
  std::error_code error;
  const bool is_folder = fs::is_directory(from, error);
  check_final_path(to, is_folder);
  if (is_folder) check_not_inside(from, to);
  CopyPlace place(to);
  const std::vector<std::string> left_out = copy_tree(from, place.path() + "/copy", interrupted);
  if (!is_there(place.path() + "/copy")) {
    throw SystemError("cannot copy " + from + ", which is neither a file nor a folder", EINVAL);
  }
  if (!left_out.empty()) say("neither files nor folders, and left out: " + listed(left_out));
  place.publish("copy");
}

void copy_from(const std::string& host, const std::string& folder, const std::string& path,
               const std::string& to, const IsInterrupted& interrupted) {
  check_final_path(to, false);
  CopyPlace place(to);
  const std::string name = copy_from_host(host, folder, path, place.path(), interrupted);
  std::error_code error;
  check_final_path(to, fs::is_directory(fs::path(place.path()) / name, error));
  place.publish(name);
}

}  // namespace

int run_ls(const VerbCall& call) {
  const bool is_json = call.words.has("--json");
  const FoundJob job = call.job();
  const std::size_t operands = call.words.operands().size();
  if (operands == 1) {
    print_text(shown_ids(job, is_json));
    return 0;
  }
  const std::string path = checked_path(operands > 2 ? call.operand(2) : "");
  const std::string folder = folder_of(job, call.operand(1));
  if (is_on_another_host(job, folder)) {
    throw SystemError(
        folder + " is not on this machine; its launcher ran on " + job.record.launcher.host,
        ENOENT);
  }
  const std::vector<FolderEntry> entries = entries_at(path_in(folder, path));
  print_text(is_json ? json_of_entries(entries) : shown_entries(entries, call.words.has("-l")));
  return 0;
}

int run_cp(const VerbCall& call) {
  const OutputPath what = output_path_of(call.operand(1));
  const FoundJob job = call.job();
  const std::string folder = folder_of(job, what.id);
  const std::string name = what.path.empty() ? what.id : fs::path(what.path).filename().string();
  const std::string to = final_path_of(call.operand(2), name);
  note_signals();
  const IsInterrupted is_interrupted = [] { return last_signal != 0; };
  try {
    if (is_on_another_host(job, folder)) {
      check_owner(job.folder, job.record.id);
      copy_from(job.record.launcher.host, folder, what.path, to, is_interrupted);
    } else {
      copy_here(path_in(folder, what.path), to, is_interrupted);
    }
  } catch (const SystemError& error) {
    if (!is_interrupted()) throw;
    say(error.what());
    return exit_code::kSignalBase + static_cast<int>(last_signal);
  }
  return 0;
}

}  // namespace chainmail::launch
