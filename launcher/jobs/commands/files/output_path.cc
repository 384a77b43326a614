// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/jobs/commands/files/output_path.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "base/error.h"
#include "launcher/hosts/host_text.h"
#include "launcher/job/options.h"
#include "launcher/job/text.h"

namespace chainmail::launch {
namespace {

namespace fs = std::filesystem;

bool is_below(const fs::path& folder, const fs::path& path) {
  return std::mismatch(folder.begin(), folder.end(), path.begin(), path.end()).first ==
         folder.end();
}

FolderEntry entry_at(const fs::path& path) {
  struct stat status {};
  if (lstat(path.c_str(), &status) != 0) throw system_error("cannot look at " + path.string());
  FolderEntry entry;
  entry.name = path.filename().string();
  entry.bytes = static_cast<std::uint64_t>(status.st_size);
  entry.modified_ms =
      std::int64_t{1000} * status.st_mtim.tv_sec + status.st_mtim.tv_nsec / 1'000'000;
  switch (status.st_mode & S_IFMT) {
    case S_IFREG:
      entry.kind = "file";
      break;
    case S_IFDIR:
      entry.kind = "folder";
      break;
    case S_IFLNK: {
      std::error_code ignored;
      entry.kind = "link";
      entry.target = fs::read_symlink(path, ignored).string();
      break;
    }
    default:
      entry.kind = "other";
  }
  return entry;
}

}  // namespace

std::vector<JobRecord::Output> folders_of(const FoundJob& job) {
  const JobRecord& record = job.record;
  std::vector<JobRecord::Output> folders = {
      {kStdouterrId, record.stdouterr.empty() ? job.folder : record.stdouterr}};
  folders.insert(folders.end(), record.outputs.begin(), record.outputs.end());
  folders.insert(folders.end(), record.inputs.begin(), record.inputs.end());
  return folders;
}

std::string folder_of(const FoundJob& job, const std::string& id) {
  std::vector<std::string> ids;
  for (const JobRecord::Output& folder : folders_of(job)) {
    if (folder.id == id) return folder.path;
    ids.push_back(folder.id);
  }
  throw UsageError(job.record.id + " has no output " + in_quotes(id) + "; it has " + listed(ids));
}

std::string checked_path(const std::string& path) {
  if (!path.empty() && path.front() == '/') {
    throw UsageError(in_quotes(path) + ": a path in an output does not begin with '/'");
  }
  fs::path checked;
  for (const std::string& part : split(path, '/')) {
    if (part == "..") throw UsageError(in_quotes(path) + " leads out of the output's folder");
    if (!part.empty() && part != ".") checked /= part;
  }
  return checked.string();
}

std::string path_in(const std::string& folder, const std::string& path) {
  std::error_code error;
  const fs::path root = fs::canonical(folder, error);
  if (error) throw SystemError("cannot enter " + folder + ": " + error.message(), error.value());
  const fs::path whole = fs::canonical(root / path, error);
  if (error == std::errc::no_such_file_or_directory || error == std::errc::not_a_directory) {
    throw UsageError("there is no " + in_quotes(path) + " in " + folder);
  }
  if (error) {
    throw SystemError("cannot look at " + path + " in " + folder + ": " + error.message(),
                      error.value());
  }
  if (!is_below(root, whole)) {
    throw UsageError(in_quotes(path) + " is a link that leads out of " + folder + ", to " +
                     whole.string());
  }
  std::string text = whole.string();
  while (text.size() > 1 && text.back() == '/') text.pop_back();
  return text;
}

std::vector<FolderEntry> entries_at(const std::string& path) {
  const FolderEntry itself = entry_at(path);
  if (itself.kind != "folder") return {itself};
  std::vector<FolderEntry> entries;
  std::error_code error;
  fs::directory_iterator names(path, error);
  for (; !error && names != fs::directory_iterator(); names.increment(error)) {
    try {
      entries.push_back(entry_at(names->path()));
    } catch (const SystemError& gone) {
      // Jobs remove files while somebody looks.
      if (gone.native_code() != ENOENT) throw;
    }
  }
  if (error) throw SystemError("cannot read " + path + ": " + error.message(), error.value());
  std::sort(entries.begin(), entries.end(),
            [](const FolderEntry& one, const FolderEntry& other) { return one.name < other.name; });
  return entries;
}

std::string uuid_folder_in(const std::string& path, const std::string& uuid) {
  fs::path folder;
  std::string found;
  for (const fs::path& part : fs::path(path)) {
    if (part == "..") return "";
    folder /= part;
    if (!uuid.empty() && part == uuid) found = folder.string();
  }
  return path.empty() || path.front() != '/' ? "" : found;
}

}  // namespace chainmail::launch
