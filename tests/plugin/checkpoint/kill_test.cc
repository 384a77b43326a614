// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Processes that save one generation after another and end by SIGKILL at a given call of the file
// system, before it or after it: what the next one finds is whole, and no older than it must be.

#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>

#include <string>
#include <vector>

#include "tests/plugin/checkpoint/faulty_file_system.h"
#include "tests/plugin/checkpoint/one_rank_save.h"

namespace chainmail::testing {
namespace {

constexpr int kDeaths = 200;
constexpr int kSavesPerLife = 3;
constexpr int kParts = 2;

// Goes on from the newest generation, three saves at a time; the value is the iteration.
int live(const std::string& folder, Fault fault) {
  FaultyFileSystem files(fault);
  const auto found = whole(folder);
  const std::int64_t newest = found.empty() ? 0 : found.rbegin()->first;
  for (std::int64_t i = newest + 1; i <= newest + kSavesPerLife; ++i) {
    save(files, folder, i, static_cast<int>(i % 120), 2, kParts);
  }
  return 0;
}

// The signal that ended a process which lives as above; 0 when it returned.
int spawn_life(const std::string& folder, Fault::Kind kind, int at) {
  std::vector<std::string> words = {"kill_test", "--live", folder,
                                    kind == Fault::Kind::kKill ? "before" : "after",
                                    std::to_string(at)};
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  pid_t child = 0;
  EXPECT_EQ(::posix_spawn(&child, "/proc/self/exe", nullptr, nullptr, arguments.data(), environ),
            0);
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

TEST(Kill, EveryCallMayBeTheLastOfAProcess) {
  const ScratchFolder scratch;
  std::int64_t newest = 0;
  int deaths = 0;
  for (int at = 1; deaths < kDeaths; ++at) {
    for (const Fault::Kind kind : {Fault::Kind::kKill, Fault::Kind::kKillAfter}) {
      // Three saves have fewer calls than this: begin again, from what is there now.
      if (spawn_life(scratch.path(), kind, at) != SIGKILL) {
        at = 0;
        newest += kSavesPerLife;
        break;
      }
      ++deaths;
      const auto found = whole(scratch.path());
      if (found.empty()) {
        EXPECT_EQ(newest, 0) << "nothing is left after death " << deaths << " at call " << at;
        continue;
      }
      const auto [iteration, value] = *found.rbegin();
      EXPECT_GE(iteration, newest) << "death " << deaths << " at call " << at;
      EXPECT_LE(iteration, newest + kSavesPerLife);
      EXPECT_EQ(value, static_cast<int>(iteration % 120));
      newest = iteration;
    }
  }
  EXPECT_GE(deaths, kDeaths);
  std::printf("%d of %d deaths resumable, at iteration %lld\n", deaths, deaths,
              static_cast<long long>(newest));
}

}  // namespace

int live_as_told(char** argv) {
  const std::string when = argv[3];
  return live(argv[2], {.kind = when == "before" ? Fault::Kind::kKill : Fault::Kind::kKillAfter,
                        .at = std::stoi(argv[4])});
}

}  // namespace chainmail::testing

int main(int argc, char** argv) {
  if (argc == 5 && std::string(argv[1]) == "--live") return chainmail::testing::live_as_told(argv);
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
