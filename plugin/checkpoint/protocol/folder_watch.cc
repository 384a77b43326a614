// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/checkpoint/protocol/folder_watch.h"

#include <chainmail/checkpoint_error.h>

#include <filesystem>
#include <utility>

#include "plugin/checkpoint/store/generations.h"

namespace chainmail::internal {

namespace {

// Changes while somebody writes there.
std::string looks_of(const std::string& folder) {
  std::set<std::string> files;
  std::error_code error;
  std::filesystem::directory_iterator entry(folder, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    std::error_code unknown;
    const auto size = std::filesystem::file_size(entry->path(), unknown);
    const auto written = std::filesystem::last_write_time(entry->path(), unknown);
    files.insert(entry->path().filename().string() + ' ' + std::to_string(size) + ' ' +
                 std::to_string(written.time_since_epoch().count()) + '\n');
  }
  std::string looks;
  for (const std::string& file : files) looks += file;
  return looks;
}

}  // namespace

FolderWatch::FolderWatch(std::string run_folder) : run_folder_(std::move(run_folder)) {
  know_all();
}

void FolderWatch::know_all() {
  for (const Generation& generation : list_generations(run_folder_)) {
    // Its folder has the other name when it is removed.
    own_.insert(unfinished_name(generation.iteration));
    if (generation.manifest) known_.insert(generation.manifest->id);
  }
  leftovers_.clear();
  for (const std::string& name : unfinished_generations(run_folder_)) {
    leftovers_[name] = looks_of(run_folder_ + '/' + name);
  }
}

std::string FolderWatch::find_other() const {
  for (const Generation& generation : list_generations(run_folder_)) {
    if (generation.manifest && !known_.contains(generation.manifest->id)) {
      return generation.folder + " was written";
    }
  }
  for (const std::string& name : unfinished_generations(run_folder_)) {
    if (own_.contains(name)) continue;
    const std::string path = run_folder_ + '/' + name;
    const auto leftover = leftovers_.find(name);
    if (leftover == leftovers_.end() || leftover->second != looks_of(path)) {
      return path + " is being written";
    }
  }
  return "";
}

void FolderWatch::expect_no_other() {
  const std::string other = find_other();
  if (other.empty()) return;
  know_all();
  throw CheckpointError(other +
                        " by another job, or another checkpointer, since this one began: in one "
                        "folder they remove and load each other's checkpoints; give each a name or "
                        "a path of its own, or end the other one");
}

void FolderWatch::add_own(std::int64_t iteration, std::uint64_t id) {
  known_.insert(id);
  own_.insert(unfinished_name(iteration));
}

}  // namespace chainmail::internal
