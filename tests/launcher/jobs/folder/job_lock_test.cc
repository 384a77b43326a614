// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The lock of a job, and which mounts keep locks to themselves.

#include "launcher/jobs/folder/disk/job_lock.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <string>

#include "base/error.h"
#include "base/unique_fd.h"
#include "launcher/jobs/folder/launcher_process.h"
#include "tests/launcher/jobs/folder/scratch_folder.h"

namespace chainmail::launch {
namespace {

using internal::UniqueFd;

TEST(JobLock, IsSeenWithoutTheRightToWrite) {
  const ScratchFolder scratch;
  EXPECT_EQ(lock_state_of(scratch.path(), false), LockState::kUnknown);
  const UniqueFd folder(open(scratch.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  {
    const UniqueFd lock = take_job_lock(folder.get(), scratch.path());
    ASSERT_EQ(fchmod(lock.get(), 0400), 0);
    EXPECT_EQ(lock_state_of(scratch.path(), false), LockState::kHeld);
    EXPECT_EQ(lock_state_of(scratch.path(), true), LockState::kHeld);
    EXPECT_THROW((void)take_job_lock(folder.get(), scratch.path()), SystemError);
  }
  EXPECT_EQ(lock_state_of(scratch.path(), false), LockState::kFree);
}

constexpr char kMounts[] =
    "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
    "30 22 0:40 / /a rw shared:2 master:1 - nfs s:/a rw,vers=3,local_lock=none,addr=1\n"
    "31 22 0:41 / /b rw - nfs s:/b rw,vers=3,nolock,local_lock=all\n"
    "32 22 0:42 / /c rw - nfs s:/c rw,local_lock=posix\n"
    "33 22 0:43 / /d rw - nfs s:/d rw,local_lock=flock\n"
    "34 22 0:44 / /e rw - lustre s:/e rw,localflock\n"
    "35 22 0:45 / /f rw - fuse.sshfs s:/f rw\n"
    "36 22 0:46 / /nolock rw - nfs s:/g rw\n"
    "37 22 0:47 / /h rw\n"
    "39 22 0:49 / /i rw - virtiofs i rw\n"
    "40 22 0:50 / /j rw - 9p j rw,trans=virtio\n"
    "41 22 0:51 / /k rw - fuse.rclone k rw\n"
    "42 22 0:52 / /l rw - fuse.glusterfs l rw\n"
    "38";

TEST(JobLock, MountsWithLocksOfTheirOwn) {
  for (const unsigned int number : {41U, 42U, 44U, 45U, 49U, 50U, 51U}) {
    EXPECT_TRUE(has_local_locks(kMounts, 0, number)) << number;
  }
  for (const unsigned int number : {40U, 43U, 46U, 47U, 48U, 52U}) {
    EXPECT_FALSE(has_local_locks(kMounts, 0, number)) << number;
  }
  EXPECT_FALSE(has_local_locks(kMounts, 8, 1));
  EXPECT_FALSE(has_local_locks("", 0, 0));
}

TEST(LauncherProcess, IsKnownByItsStart) {
  JobRecord::Launcher launcher = this_launcher();
  EXPECT_EQ(trace_of(launcher), LauncherTrace::kAlive);
  ++launcher.start_time;
  EXPECT_EQ(trace_of(launcher), LauncherTrace::kGone);
  EXPECT_FALSE(signal_launcher(launcher, 0));
  launcher = this_launcher();
  EXPECT_TRUE(signal_launcher(launcher, 0));
  launcher.boot_id = "another";
  EXPECT_EQ(trace_of(launcher), LauncherTrace::kRebooted);
  EXPECT_FALSE(signal_launcher(launcher, 0));
  launcher.host = "n7";
  EXPECT_EQ(trace_of(launcher), LauncherTrace::kElsewhere);
  launcher = this_launcher();
  for (const std::int64_t pid : {std::int64_t{-1}, std::int64_t{0}, std::int64_t{1} << 40}) {
    launcher.pid = pid;
    EXPECT_EQ(trace_of(launcher), LauncherTrace::kGone) << pid;
    EXPECT_FALSE(signal_launcher(launcher, 0));
  }
}

}  // namespace
}  // namespace chainmail::launch
