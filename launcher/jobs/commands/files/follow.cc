// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/jobs/commands/files/follow.h"

#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <utility>

#include "launcher/jobs/commands/files/change_watch.h"
#include "launcher/jobs/folder/watched_job.h"

namespace chainmail::launch {
namespace {

void watch_folders_of(const std::vector<FollowedFile>& files, ChangeWatch& watch) {
  for (const FollowedFile& followed : files) {
    for (const std::string& place : followed.file.places()) {
      watch.add(std::filesystem::path(place).parent_path().string());
    }
  }
}

// As it ends whoever writes into a pipe that nobody reads.
void end_with_pipe() {
  signal(SIGPIPE, SIG_DFL);
  raise(SIGPIPE);
}

}  // namespace

Follower::Follower(std::vector<FollowedFile> files, AddFiles add_files)
    : files_(std::move(files)), add_files_(std::move(add_files)) {}

// A piece of each, so that none waits for another. False where there was nothing.
bool Follower::copy_round() {
  bool has_copied = false;
  for (std::size_t i = 0; i < files_.size(); ++i) {
    FollowedFile& followed = files_[i];
    const std::string_view bytes = followed.file.read();
    if (bytes.empty()) continue;
    has_copied = true;
    const std::string what = followed.out == STDERR_FILENO ? "standard error" : "standard output";
    if (last_ != i + 1) write_out(followed.out, followed.heading, what);
    last_ = i + 1;
    write_out(followed.out, bytes, what);
  }
  return has_copied;
}

void Follower::copy() {
  if (add_files_) add_files_(files_);
  while (copy_round()) {
  }
}

FoundJob Follower::follow(const FoundJob& job) {
  WatchedJob watched(job);
  ChangeWatch watch;
  watch.add(job.folder);
  while (true) {
    // What a job has written is there before its final state is, which was seen before this.
    const bool has_ended = watched.has_ended();
    if (has_ended) {
      for (FollowedFile& followed : files_) followed.file.look_anew();
    }
    copy();
    if (has_ended) return watched.job();
    watch_folders_of(files_, watch);
    for (const FollowedFile& followed : files_) {
      if (ChangeWatch::is_reader_gone(followed.out)) end_with_pipe();
    }
    watch.wait(watched.until_look());
    watched.look();
  }
}

}  // namespace chainmail::launch
