// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Memory that is offered by a descriptor's number: found while it is there, told apart from
// whatever has the number afterwards, and refused to who may not look into the process.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <functional>
#include <string>

#include "base/error.h"
#include "base/unique_fd.h"
#include "ops/comm/shm/memory/memory_file.h"

namespace chainmail::ops::shm {
namespace {

using internal::UniqueFd;

constexpr std::size_t kBytes = 8192;

UniqueFd memory_file(int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) {
  UniqueFd file(::memfd_create("chainmail-test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(::ftruncate(file.get(), kBytes), 0);
  EXPECT_EQ(::fcntl(file.get(), F_ADD_SEALS, seals), 0);
  return file;
}

std::string path_of(int fd, pid_t pid = ::getpid()) {
  return "/proc/" + std::to_string(pid) + "/fd/" + std::to_string(fd);
}

/// 0 or the code of the error.
int code_of(const std::string& path) {
  try {
    return open_memory_file(path, kBytes).is_open() ? 0 : -1;
  } catch (const SystemError& error) {
    return error.native_code();
  }
}

/// What `body` returns in a process of its own, below 256.
int in_child(const std::function<int()>& body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(MemoryFile, IsThatOfTheOtherProcess) {
  const UniqueFd file = memory_file();
  const std::string path = path_of(file.get());
  EXPECT_EQ(in_child([&] {
              const UniqueFd found = open_memory_file(path, kBytes);
              return ::pwrite(found.get(), "here", 4, 100) == 4 ? 0 : 1;
            }),
            0);
  std::string text(4, ' ');
  EXPECT_EQ(::pread(file.get(), text.data(), 4, 100), 4);
  EXPECT_EQ(text, "here");
}

// Some of these cannot be opened for writing even by root, some could be, with an effect on those
// who use them.
TEST(MemoryFile, IsNotWhateverHasItsNumberNow) {
  const auto number_then = [](int fd) {
    const UniqueFd other(fd);
    EXPECT_TRUE(other.is_open());
    return code_of(path_of(other.get()));
  };
  EXPECT_EQ(number_then(::open("/proc/sys/kernel/random/boot_id", O_RDONLY)), EPROTO);
  EXPECT_EQ(number_then(::open("/sys/devices/system/cpu/online", O_RDONLY)), EPROTO);
  EXPECT_EQ(number_then(::open("/proc/self/maps", O_RDONLY)), EPROTO);
  EXPECT_EQ(number_then(::open("/", O_RDONLY)), EPROTO);
  EXPECT_EQ(number_then(::open("/dev/null", O_RDONLY)), EPROTO);
  EXPECT_EQ(number_then(::open("/dev/shm", O_PATH)), EPROTO);
  EXPECT_EQ(number_then(::epoll_create1(0)), EPROTO);
  EXPECT_EQ(number_then(::eventfd(0, 0)), EPROTO);
  EXPECT_EQ(number_then(::socket(AF_UNIX, SOCK_STREAM, 0)), EPROTO);
  EXPECT_EQ(number_then(memory_file(F_SEAL_GROW).release()), EPROTO);
  UniqueFd larger(::memfd_create("chainmail-test", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(larger.get(), 2 * kBytes), 0);
  EXPECT_EQ(number_then(larger.release()), EPROTO);
}

TEST(MemoryFile, IsGoneWithItsNumberAndWithItsProcess) {
  UniqueFd file = memory_file();
  const std::string path = path_of(file.get());
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_EQ(code_of(path_of(file.get(), child)), ENOENT);
  file.reset();
  EXPECT_EQ(code_of(path), ENOENT);
}

// The kernel says "permission denied" of what a process has that is ending, to everybody but root.
void expect_gone_while_ending(int fd) {
  const auto before = std::signal(SIGCHLD, SIG_IGN);  // nobody waits: the kernel forgets them
  for (int i = 0; i < 1000; ++i) {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(0);
    const std::string path = path_of(fd, child);
    int code = 0;
    while (code == 0) code = code_of(path);
    ASSERT_EQ(code, ENOENT);
  }
  std::signal(SIGCHLD, before);
}

void expect_gone_until_it_is_waited_for(int fd) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  siginfo_t ended{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOWAIT), 0);
  EXPECT_EQ(code_of(path_of(fd, child)), ENOENT);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
}

TEST(MemoryFile, IsNeverForbiddenBecauseItsProcessEnds) {
  const UniqueFd file = memory_file();
  expect_gone_while_ending(file.get());
  expect_gone_until_it_is_waited_for(file.get());
}

TEST(MemoryFile, IsNeverForbiddenToOthersThanRootEither) {
  if (::geteuid() != 0) {
    GTEST_SKIP() << "the test above has done it";
  }
  EXPECT_EQ(in_child([] {
              // Who changes its user may not be looked into until it says so.
              if (::setgid(65534) != 0 || ::setuid(65534) != 0) return 2;
              if (::prctl(PR_SET_DUMPABLE, 1) != 0) return 3;
              const UniqueFd file = memory_file();
              expect_gone_while_ending(file.get());
              expect_gone_until_it_is_waited_for(file.get());
              return ::testing::Test::HasFailure() ? 1 : 0;
            }),
            0);
}

TEST(MemoryFile, IsForbiddenToWhoMayNotLookIntoTheProcess) {
  if (::geteuid() != 0) {
    GTEST_SKIP() << "only root can become somebody else";
  }
  const UniqueFd file = memory_file();
  const std::string path = path_of(file.get());
  EXPECT_EQ(in_child([&] { return ::setuid(65534) == 0 ? code_of(path) : 255; }), EACCES);
}

}  // namespace
}  // namespace chainmail::ops::shm
