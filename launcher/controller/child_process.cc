// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/controller/child_process.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <unistd.h>

#include <array>
#include <cstring>

#include "base/error.h"

namespace chainmail::launch {
namespace {

using internal::UniqueFd;

struct Pipe {
  UniqueFd read_end;
  UniqueFd write_end;

  Pipe() {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0) throw system_error("cannot make a pipe");
    read_end.reset(ends[0]);
    write_end.reset(ends[1]);
  }
};

// posix_spawn and not fork: the launcher has a second thread that writes output.
class SpawnSettings {
 public:
  SpawnSettings() {
    posix_spawn_file_actions_init(&actions_);
    posix_spawnattr_init(&attributes_);
    sigset_t none;
    sigset_t all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_setsigmask(&attributes_, &none);
    posix_spawnattr_setsigdefault(&attributes_, &all);
    posix_spawnattr_setpgroup(&attributes_, 0);
    posix_spawnattr_setflags(
        &attributes_, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  }
  SpawnSettings(const SpawnSettings&) = delete;
  SpawnSettings& operator=(const SpawnSettings&) = delete;
  ~SpawnSettings() {
    posix_spawn_file_actions_destroy(&actions_);
    posix_spawnattr_destroy(&attributes_);
  }
  void connect(int from, int to) { posix_spawn_file_actions_adddup2(&actions_, from, to); }
  const posix_spawn_file_actions_t* actions() const { return &actions_; }
  const posix_spawnattr_t* attributes() const { return &attributes_; }

 private:
  posix_spawn_file_actions_t actions_{};
  posix_spawnattr_t attributes_{};
};

}  // namespace

ChildProcess start_child(const std::vector<std::string>& arguments) {
  Pipe input;
  Pipe output;
  Pipe error;
  SpawnSettings settings;
  settings.connect(input.read_end.get(), STDIN_FILENO);
  settings.connect(output.write_end.get(), STDOUT_FILENO);
  settings.connect(error.write_end.get(), STDERR_FILENO);
  std::vector<std::string> words = arguments;
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  ChildProcess child;
  const int failure = posix_spawnp(&child.pid, pointers[0], settings.actions(),
                                   settings.attributes(), pointers.data(), environ);
  if (failure != 0) {
    throw SystemError("cannot run " + arguments.front() + ": " + std::strerror(failure), failure);
  }
  child.input = std::move(input.write_end);
  child.output = std::move(output.read_end);
  child.error = std::move(error.read_end);
  return child;
}

}  // namespace chainmail::launch
