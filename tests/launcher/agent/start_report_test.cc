// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What the process of a rank says of itself before its program runs, and what it finds.

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <span>
#include <string>

#include "launcher/agent/rank_process.h"

namespace chainmail::launch {
namespace {

TEST(StartReport, TheLastStageCountsHoweverTheBytesCome) {
  const std::string bytes = StartReport::encode(StartStage::kFolder, 0, "") +
                            StartReport::encode(StartStage::kSearch, 0, "/slow/p") +
                            StartReport::encode(StartStage::kExec, 0, std::string(5000, 'x'));
  const std::size_t last = bytes.size() - 1;
  for (std::size_t piece = 1; piece <= last; ++piece) {
    StartReport report;
    const auto all = std::as_bytes(std::span(bytes));
    for (std::size_t at = 0; at < last; at += piece) {
      report.append(all.subspan(at, std::min(piece, last - at)));
    }
    EXPECT_EQ(report.stage(), StartStage::kSearch);
    EXPECT_EQ(report.path(), "/slow/p");
    report.append(all.subspan(last));
    EXPECT_EQ(report.stage(), StartStage::kExec);
    EXPECT_EQ(report.path(), std::string(1024, 'x'));
    EXPECT_EQ(report.error(), 0);
    const std::string failure = StartReport::encode(StartStage::kExec, ENOENT, "");
    report.append(std::as_bytes(std::span(failure)));
    EXPECT_EQ(report.error(), ENOENT);
  }
}

class SpawnRank : public ::testing::Test {
 protected:
  SpawnRank() { getrlimit(RLIMIT_NOFILE, &limit_); }
  ~SpawnRank() override { setrlimit(RLIMIT_NOFILE, &limit_); }

  // Its output and its report, after its end.
  void run(const std::string& script, const WindowSize& window) {
    RankRequest request{.program = {"/bin/sh", "-c", script},
                        .working_directory = "/",
                        .environment = current_environment(),
                        .cpus = {},
                        .ignored_signals = {},
                        .pmi = {},
                        .descriptors = limit_,
                        .window = window};
    const RankHandles rank = spawn_rank(request);
    const std::string news = read_all(rank.start.get());
    report_.append(std::as_bytes(std::span(news)));
    output_ = read_all(rank.output.get());
    EXPECT_EQ(waitpid(rank.pid, nullptr, 0), rank.pid);
  }
  static std::string read_all(int fd) {
    std::array<char, 4096> block{};
    std::string text;
    for (ssize_t count = 0; (count = read(fd, block.data(), block.size())) > 0;) {
      text.append(block.data(), static_cast<std::size_t>(count));
    }
    return text;
  }

  rlimit limit_{};
  StartReport report_;
  std::string output_;
};

TEST_F(SpawnRank, ItsTerminalHasItsSizeFromTheFirstMoment) {
  run("stty size <&1", {40, 100});
  EXPECT_EQ(output_, "40 100\n");
  run("stty size <&1", {});
  EXPECT_EQ(output_, "0 0\n");
}

TEST_F(SpawnRank, ALowLimitOnOpenFilesIsCalledSo) {
  for (const rlim_t files : {70U, 100U, 103U}) {
    rlimit low = limit_;
    low.rlim_cur = files;
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
    report_ = {};
    run("echo ran", {});
    EXPECT_EQ(report_.stage(), StartStage::kSpawn) << files;
    EXPECT_EQ(report_.error(), EMFILE) << files;
    EXPECT_EQ(output_, "") << files;
  }
}

}  // namespace
}  // namespace chainmail::launch
