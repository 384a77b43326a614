// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What tells the folders and control groups of a job that was killed from those in use.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string>

#include "base/unique_fd.h"
#include "launcher/cgroup/control_group.h"
#include "launcher/files/agent_folders.h"
#include "launcher/process/children.h"
#include "launcher/process/fork_exec.h"
#include "launcher/process/owner_tag.h"

namespace chainmail::launch {
namespace {

namespace fs = std::filesystem;

TEST(OwnerTag, NamesThisProcess) {
  const std::string tag = own_tag();
  EXPECT_THAT(
      tag, testing::MatchesRegex("owner-[0-9a-f]+-[0-9]+-" + std::to_string(getpid()) + "-[0-9]+"));
  EXPECT_EQ(owner_of("chainmail-job.1." + tag + ".abcdef"), Owner::kAlive);
  EXPECT_EQ(owner_of(tag), Owner::kAlive);
}

TEST(OwnerTag, OfAProcessThatHasEnded) {
  // As its child: it is still there, to be reaped.
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe(ends.data()), 0);
  const pid_t child = fork();
  if (child == 0) {
    const std::string tag = own_tag();
    _exit(write(ends[1], tag.data(), tag.size()) > 0 ? 0 : 1);
  }
  close(ends[1]);
  std::string tag(100, '\0');
  const ssize_t count = read(ends[0], tag.data(), tag.size());
  close(ends[0]);
  ASSERT_GT(count, 0);
  tag.resize(static_cast<std::size_t>(count));
  siginfo_t info{};
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  EXPECT_EQ(owner_of("x." + tag), Owner::kGone);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_EQ(owner_of("x." + tag), Owner::kGone);
}

TEST(OwnerTag, IsTakenForNothingElse) {
  for (const char* name :
       {"", ".", "chainmail-job.1.abcdef", "chainmail-0123456789abcdef.mpi.abcdef", "a-1-2-3",
        "01234567-1-2-", "01234567-1-2", "01234567-1-2-3-4", "01234567-1-x-3", "01234567--2-3",
        "01234567-1-222222222222222222222222-3", "chainmail-nodes.Ab01-2",
        "chainmail-run.20260714-12-30-05", "chainmail-a.owner-20260714-12-30",
        "chainmail-a.owner-2026071x-12-30-05"}) {
    EXPECT_EQ(owner_of(name), Owner::kUnknown) << name;
  }
}

TEST(OwnerTag, OfOthersTellsNothing) {
  const std::string tag = own_tag();
  const std::string boot = "owner-00000000";
  EXPECT_EQ(owner_of(boot + tag.substr(boot.size())), Owner::kEarlierBoot);
  // A container's processes have numbers of their own.
  const std::size_t begin = boot.size() + 1;
  EXPECT_EQ(owner_of(tag.substr(0, begin) + "7" + tag.substr(tag.find('-', begin))),
            Owner::kUnknown);
}

TEST(Sweep, FollowsNoLinksAndTakesFoldersOnly) {
  std::string folder = fs::temp_directory_path() / "leftovers.XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const std::string tag = own_tag();
  const std::string gone = tag.substr(0, tag.rfind('-')) + "-1";
  const std::string left = folder + "/chainmail-a.mpi." + gone + ".b";
  const std::string link = folder + "/chainmail-c.mpi." + gone + ".d";
  fs::create_directories(left + "/deep");
  fs::create_directory(folder + "/elsewhere");
  fs::create_directory_symlink(folder + "/elsewhere", link);
  fs::create_directory_symlink(folder + "/elsewhere", left + "/deep/link");
  fs::create_directory(folder + "/elsewhere/kept");
  const std::string fresh = folder + "/chainmail-e.mpi.owner-00000000" + tag.substr(14) + ".f";
  const std::string results = folder + "/chainmail-run.20260714-12-30-05";
  fs::create_directory(fresh);
  fs::create_directory(results);
  remove_stale_folders(folder);
  EXPECT_TRUE(fs::exists(fresh)) << "it is younger than the kernel, whatever boot it names";
  EXPECT_TRUE(fs::exists(results));
  EXPECT_FALSE(fs::exists(left));
  EXPECT_TRUE(fs::is_symlink(link));
  EXPECT_TRUE(fs::exists(folder + "/elsewhere/kept"));
  remove_stale_folders(folder + "/missing");
  fs::remove_all(folder);
}

#ifndef __SANITIZE_THREAD__  // which turns vfork() into fork()
// Whoever is killed and takes its time is not left behind; whoever cannot be killed is.
TEST(LeftBehind, IsWhoSleepsInTheKernelAndNobodyElse) {
  const pid_t runs = fork();
  if (runs == 0) {
    while (true) pause();
  }
  // vfork()'s caller sleeps there until its child is done.
  const pid_t sleeps = fork();
  if (sleeps == 0) {
    if (vfork() == 0) {
      sleep(60);
      _exit(0);
    }
    _exit(0);
  }
  std::string why;
  for (int look = 0; look < 500 && why.empty(); ++look) {
    why = why_left(sleeps);
    usleep(10000);
  }
  EXPECT_THAT(why, testing::HasSubstr("process " + std::to_string(sleeps) +
                                      " is in uninterruptible sleep"));
  EXPECT_EQ(why_left(runs), "");
  kill(runs, SIGKILL);
  EXPECT_EQ(why_left(runs), "");
  adopt_orphans();
  EXPECT_THAT(end_all_children(internal::Deadline::after(std::chrono::seconds(10))),
              testing::IsEmpty());
}
#endif

TEST(ControlGroup, EndsWhateverIsInItInAnySession) {
  const ControlGroup group = ControlGroup::make_below_own();
  if (!group.exists()) {
    GTEST_SKIP() << "no control group (v2) can be made below this process's own";
  }
  const auto live = [] {
    if (fork() == 0) setsid();
    while (true) pause();
  };
  const pid_t child = fork_beside(live, group.folder()).pid;
  ASSERT_GT(child, 0);
  // As a container that a rank starts does.
  const std::string below = "/proc/self/fd/" + std::to_string(group.folder()) + "/below";
  ASSERT_EQ(mkdir(below.c_str(), 0755), 0);
  ASSERT_EQ(mkdir((below + "/lower").c_str(), 0755), 0);
  std::array<char, 4096> names{};
  for (int look = 0; look < 500; ++look) {
    names.fill('\0');
    FILE* list = popen(("cat /proc/" + std::to_string(child) + "/cgroup").c_str(), "r");
    ASSERT_NE(list, nullptr);
    ASSERT_GE(fread(names.data(), 1, names.size() - 1, list), 0U);
    pclose(list);
    if (std::string(names.data()).find(own_tag()) != std::string::npos) break;
    usleep(10000);
  }
  EXPECT_THAT(names.data(), testing::HasSubstr(own_tag()));
  group.kill_all();
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
  group.remove();
  const ControlGroup again = ControlGroup::make_below_own();
  EXPECT_TRUE(again.exists());  // the name is free, so nobody was left in it
  again.remove();
}

// Of a child that fork has made.
std::string group_of(pid_t child) {
  char letter = 0;
  std::string text;
  FILE* file = fopen(("/proc/" + std::to_string(child) + "/cgroup").c_str(), "r");
  while (file != nullptr && fread(&letter, 1, 1, file) == 1) text += letter;
  if (file != nullptr) fclose(file);
  return text;
}

TEST(ControlGroup, ChildrenAreBornInItOrMoveThere) {
  const ControlGroup group = ControlGroup::make_below_own();
  if (!group.exists()) {
    GTEST_SKIP() << "no control group (v2) can be made below this process's own";
  }
  const pid_t born = fork_detail::clone_into(group.folder());
  if (born == 0) {
    while (true) pause();
  }
  if (born < 0 && errno == ENOSYS) {
    GTEST_SKIP() << "no clone3 here";
  }
  ASSERT_GT(born, 0) << strerror(errno);
  EXPECT_THAT(group_of(born), testing::HasSubstr(own_tag()));
  const pid_t moved = fork_detail::fork_and_move(group.folder());
  if (moved == 0) {
    while (true) pause();
  }
  ASSERT_GT(moved, 0);
  for (int look = 0; look < 500 && group_of(moved).find(own_tag()) == std::string::npos; ++look) {
    usleep(10000);
  }
  EXPECT_THAT(group_of(moved), testing::HasSubstr(own_tag()));
  group.kill_all();
  ASSERT_EQ(waitpid(born, nullptr, 0), born);
  ASSERT_EQ(waitpid(moved, nullptr, 0), moved);
  group.remove();
}

TEST(ControlGroup, WhatIsNoneIsNotEntered) {
  const internal::UniqueFd folder(open("/tmp", O_PATH | O_DIRECTORY | O_CLOEXEC));
  const Forked child = fork_beside([] { _exit(7); }, folder.get());
  ASSERT_GT(child.pid, 0);
  int status = 0;
  ASSERT_EQ(waitpid(child.pid, &status, 0), child.pid);
  EXPECT_EQ(WEXITSTATUS(status), 7);
}

TEST(ControlGroup, OfNobodyDoesNothing) {
  const ControlGroup none;
  EXPECT_FALSE(none.exists());
  EXPECT_EQ(none.folder(), -1);
  none.kill_all();
  none.remove();
}

}  // namespace
}  // namespace chainmail::launch
