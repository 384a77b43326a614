// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Ranks as processes, for tests in which one is killed or stopped.

#pragma once

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/deadline.h"
#include "base/error.h"
#include "base/unique_fd.h"
#include "ops/core/rendezvous.h"

namespace chainmail::test {

/// Keys as files, written under another name first so that nobody reads half a value.
class DirectoryRendezvous final : public ops::Rendezvous {
 public:
  explicit DirectoryRendezvous(std::filesystem::path directory) : directory_(std::move(directory)) {
    std::filesystem::create_directories(directory_);
  }
  void set(const std::string& key, const std::string& value) override {
    const std::filesystem::path temporary =
        path(key + "." + std::to_string(::getpid()) + "." + std::to_string(++writes_));
    std::ofstream(temporary) << value;
    std::filesystem::rename(temporary, path(key));
  }
  using Rendezvous::try_get;
  std::optional<std::string> try_get(const std::string& key,
                                     internal::Deadline /*deadline*/) override {
    std::ifstream file(path(key));
    if (!file) return std::nullopt;
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  }
  std::string get(const std::string& key, internal::Deadline deadline) override {
    while (!deadline.has_passed()) {
      if (auto value = try_get(key)) return *value;
      std::this_thread::sleep_for(std::chrono::milliseconds{1});
    }
    throw TimeoutError(key);
  }

 private:
  std::filesystem::path path(std::string key) const {
    std::replace(key.begin(), key.end(), '/', '_');
    return directory_ / key;
  }
  std::filesystem::path directory_;
  std::atomic<int> writes_{0};
};

/// A test whose ranks are processes: its own binary, started again with "--role NAME DIRECTORY RANK
/// SIZE". They are killed when the test ends.
class RankProcesses : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "ranks_XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
  }
  void TearDown() override {
    for (const pid_t pid : pids_) {
      if (pid <= 0) continue;
      ::kill(pid, SIGKILL);
      ::waitpid(pid, nullptr, 0);
    }
    std::filesystem::remove_all(directory_);
  }

  void start(const std::string& role, int size) {
    for (int rank = 0; rank < size; ++rank) {
      int ends[2];
      ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
      const std::string rank_text = std::to_string(rank);
      const std::string size_text = std::to_string(size);
      const pid_t pid = ::fork();
      ASSERT_GE(pid, 0);
      if (pid == 0) {
        ::dup2(ends[1], STDOUT_FILENO);
        ::execl("/proc/self/exe", "rank", "--role", role.c_str(), directory_.c_str(),
                rank_text.c_str(), size_text.c_str(), nullptr);
        ::_exit(127);
      }
      ::close(ends[1]);
      outputs_.emplace_back(ends[0]);
      pids_.push_back(pid);
    }
  }

  /// What a rank printed until it ended; a rank that hangs is an error of the test.
  std::string output_of(int rank) {
    std::string text;
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds{30};
    const int fd = outputs_[static_cast<std::size_t>(rank)].get();
    for (char buffer[512]; std::chrono::steady_clock::now() < end;) {
      pollfd one{fd, POLLIN, 0};
      if (::poll(&one, 1, 100) <= 0) continue;
      const ssize_t got = ::read(fd, buffer, sizeof(buffer));
      if (got <= 0) return text;
      text.append(buffer, static_cast<std::size_t>(got));
    }
    ADD_FAILURE() << "rank " << rank << " hangs; it printed: " << text;
    return text;
  }

  std::filesystem::path directory_;
  std::vector<pid_t> pids_;
  std::vector<internal::UniqueFd> outputs_;
};

}  // namespace chainmail::test
