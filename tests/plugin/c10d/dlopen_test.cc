// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// A program that does not link Chainmail: it opens the library and finds the operators by name.
// Two processes, since one would not communicate.

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <torch/types.h>
#include <unistd.h>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

extern char** environ;

namespace {

constexpr int kRanks = 2;

void call(const char* name, std::vector<c10::IValue> stack) {
  c10::Dispatcher::singleton().findSchemaOrThrow(name, "").callBoxed(stack);
}

int run_rank(int rank, const std::string& file) {
  if (c10::Dispatcher::singleton().findSchema({"chainmail::all_reduce_", ""})) return 10;
  if (dlopen(CHAINMAIL_LIBRARY, RTLD_NOW | RTLD_GLOBAL) == nullptr) {
    std::cerr << dlerror() << "\n";
    return 11;
  }
  auto store = c10::make_intrusive<c10d::FileStore>(file, kRanks);
  auto group = c10::make_intrusive<c10d::ProcessGroup>(store, rank, kRanks);
  group->setGroupName("ours");
  c10d::register_process_group("ours", group);
  call("chainmail::attach", {"ours", "algorithm=flat,timeout_ms=20000"});
  at::Tensor tensor = torch::full({1000}, rank + 1.0);
  call("chainmail::hierarchical_all_reduce_", {tensor, "sum", "ours"});
  call("chainmail::fp16_all_reduce_", {tensor, "avg", "ours"});
  c10d::unregister_process_group("ours");
  return at::equal(tensor, torch::full({1000}, 3.0F)) ? 0 : 12;
}

// Exit code, or -1 after killing a child that did not end.
int wait_for(pid_t child) {
  for (int tenths = 0; tenths < 600; ++tenths) {
    int status = 0;
    if (::waitpid(child, &status, WNOHANG) == child) {
      return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  return -1;
}

TEST(Dlopen, OperatorsAreFoundByName) {
  std::string folder = std::filesystem::temp_directory_path() / "chainmail_dlopen_XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  const std::string file = folder + "/store";
  std::vector<pid_t> children;
  for (int rank = 0; rank < kRanks; ++rank) {
    std::string program = "/proc/self/exe";
    std::string flag = "--rank=" + std::to_string(rank);
    std::string path = file;
    std::vector<char*> arguments{program.data(), flag.data(), path.data(), nullptr};
    pid_t child = -1;
    ASSERT_EQ(::posix_spawn(&child, program.c_str(), nullptr, nullptr, arguments.data(), environ),
              0);
    children.push_back(child);
  }
  for (const pid_t child : children) EXPECT_EQ(wait_for(child), 0);
  std::filesystem::remove_all(folder);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string flag = argc > 2 ? argv[1] : "";
  if (flag.rfind("--rank=", 0) == 0) {
    try {
      return run_rank(std::stoi(flag.substr(7)), argv[2]);
    } catch (const std::exception& error) {
      std::cerr << error.what() << "\n";
      return 13;
    }
  }
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
