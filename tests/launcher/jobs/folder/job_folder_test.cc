// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The folder of a job as its supervisor has it. What needs other processes is in
// tests/launcher/jobs/verbs/verbs_test.py.

#include "launcher/jobs/folder/job_folder.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <string>

#include "base/error.h"
#include "launcher/job/options.h"
#include "launcher/jobs/folder/disk/job_lock.h"
#include "launcher/jobs/folder/job_list.h"
#include "tests/launcher/jobs/folder/scratch_folder.h"

namespace chainmail::launch {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

JobRecord named(const std::string& name) {
  JobRecord record;
  record.name = name;
  return record;
}

TEST(StateRoot, IsWhereTheEnvironmentSays) {
  EXPECT_EQ(state_root({{"CHAINMAIL_STATE", "/a"}, {"HOME", "/h"}}), "/a");
  EXPECT_EQ(state_root({{"XDG_STATE_HOME", "/x"}, {"HOME", "/h"}}), "/x/chainmail");
  EXPECT_EQ(state_root({{"XDG_STATE_HOME", "x"}, {"HOME", "/h"}}), "/h/.local/state/chainmail");
  EXPECT_EQ(state_root({{"CHAINMAIL_STATE", ""}, {"HOME", "/h"}}), "/h/.local/state/chainmail");
  EXPECT_THROW((void)state_root({{"CHAINMAIL_STATE", "a"}, {"HOME", "/h"}}), UsageError);
  EXPECT_THROW((void)state_root({{"HOME", "h"}}), UsageError);
  EXPECT_THROW((void)state_root({}), UsageError);
}

TEST(JobFolder, IsWholeWhenOthersSeeIt) {
  const ScratchFolder scratch;
  const JobFolder folder(scratch.at("deep/state"), named("mnist"));
  const JobRecord& record = folder.record();
  EXPECT_TRUE(is_job_id(record.id)) << record.id;
  EXPECT_TRUE(is_uuid(record.uuid)) << record.uuid;
  EXPECT_EQ(folder.path(), scratch.at("deep/state/jobs/" + record.id));
  EXPECT_EQ(record.stdouterr, folder.path());
  EXPECT_EQ(record.launcher.pid, getpid());
  EXPECT_GT(record.launcher.start_time, 0U);
  EXPECT_GT(record.created_ms, 1'700'000'000'000);
  EXPECT_EQ(read_job(folder.path()).record.phase, JobPhase::kQueued);
  EXPECT_EQ(lock_state_of(folder.path(), false), LockState::kHeld);
  EXPECT_NE(fcntl(folder.lock(), F_GETFD) & FD_CLOEXEC, 0);
}

TEST(JobFolder, RefusesNamesThatAreNone) {
  const ScratchFolder scratch;
  for (const char* name : {"", ".", "..", ".a", "-a", "a/b", "a b", "a\n"}) {
    EXPECT_THROW(JobFolder(scratch.path(), named(name)), UsageError) << name;
  }
  EXPECT_TRUE(fs::is_empty(scratch.path()));
}

TEST(JobFolder, SaysWhereItCannotBeMade) {
  const ScratchFolder scratch;
  scratch.write("file", "");
  try {
    const JobFolder folder(scratch.at("file/state"), named("a"));
    FAIL();
  } catch (const SystemError& error) {
    EXPECT_THAT(error.what(), HasSubstr("file"));
  }
}

TEST(JobFolder, KeepsItsNameAndReplacesItsState) {
  const ScratchFolder scratch;
  JobFolder folder(scratch.path(), named("a"));
  const std::string id = folder.record().id;
  const std::string uuid = folder.record().uuid;
  JobRecord record = named("another");
  record.phase = JobPhase::kRunning;
  EXPECT_EQ(folder.write(record), "");
  EXPECT_FALSE(folder.is_behind());
  const JobRecord now = read_job(folder.path()).record;
  EXPECT_EQ(now.id, id);
  EXPECT_EQ(now.uuid, uuid);
  EXPECT_EQ(now.name, "a");
  EXPECT_EQ(now.phase, JobPhase::kRunning);
  EXPECT_FALSE(fs::exists(scratch.at("ended/" + id)));
  record.phase = JobPhase::kSucceeded;
  EXPECT_EQ(folder.write(record), "");
  EXPECT_TRUE(fs::exists(scratch.at("ended/" + id)));
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder.path())) {
    names.insert(entry.path().filename().string());
  }
  EXPECT_EQ(names, (std::set<std::string>{"lock", "state.json", "stop"}));
}

TEST(JobFolder, WritesOtherFilesWhole) {
  const ScratchFolder scratch;
  JobFolder folder(scratch.path(), named("a"));
  EXPECT_EQ(folder.write_file("job.json", "{}\n"), "");
  struct stat status {};
  ASSERT_EQ(stat((folder.path() + "/job.json").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777U, 0600U);
  EXPECT_EQ(status.st_size, 3);
  for (const char* name : {"", ".", "..", "../x", "a/b", ".hidden"}) {
    EXPECT_NE(folder.write_file(name, ""), "") << name;
  }
}

TEST(JobFolder, SaysOnceThatItCannotWrite) {
  const ScratchFolder scratch;
  JobFolder folder(scratch.path(), named("a"));
  JobRecord record = folder.record();
  fs::remove_all(folder.path());
  record.attempt = 2;
  EXPECT_THAT(folder.write(record), HasSubstr("state.json"));
  EXPECT_TRUE(folder.is_behind());
  EXPECT_EQ(folder.write(record), "");
  EXPECT_TRUE(folder.is_behind());
  EXPECT_EQ(folder.record().attempt, 2U);
}

TEST(JobFolder, IsAskedToStop) {
  const ScratchFolder scratch;
  const JobFolder folder(scratch.path(), named("a"));
  using Stop = StopRequest;
  EXPECT_EQ(folder.stop_asked(), Stop::kNone);
  request_stop(folder.path(), Stop::kStop);
  EXPECT_EQ(folder.stop_asked(), Stop::kStop);
  request_stop(folder.path(), Stop::kNow);
  EXPECT_EQ(folder.stop_asked(), Stop::kNow);
  request_stop(folder.path(), Stop::kStop);
  EXPECT_EQ(folder.stop_asked(), Stop::kNow);
  // Also of one that had looked before the more urgent one was there.
  const std::string file = "jobs/" + folder.record().id + "/stop";
  std::fstream(scratch.at(file), std::ios::in | std::ios::out) << "stop\n";
  EXPECT_EQ(folder.stop_asked(), Stop::kNow);
  // By hand, with a shell.
  scratch.write(file, "\n");
  EXPECT_EQ(folder.stop_asked(), Stop::kStop);
  scratch.write(file, "now\n");
  EXPECT_EQ(folder.stop_asked(), Stop::kNow);
  scratch.write(file, "");
  EXPECT_EQ(folder.stop_asked(), Stop::kNone);
  fs::remove(scratch.at(file));
  EXPECT_EQ(folder.stop_asked(), Stop::kNone);
  EXPECT_THROW(request_stop(scratch.at("nowhere"), Stop::kStop), SystemError);
}

// As a launcher does that goes on in the background.
TEST(JobFolder, StaysLockedByWhatWasForked) {
  const ScratchFolder scratch;
  std::optional<JobFolder> folder(std::in_place, scratch.path(), named("a"));
  const std::string path = folder->path();
  int ends[2] = {-1, -1};
  ASSERT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    char byte = 0;
    close(ends[1]);
    (void)!read(ends[0], &byte, 1);
    _exit(0);
  }
  close(ends[0]);
  folder.reset();
  EXPECT_EQ(lock_state_of(path, false), LockState::kHeld);
  close(ends[1]);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_EQ(lock_state_of(path, false), LockState::kFree);
  EXPECT_EQ(read_job(path).record.phase, JobPhase::kLost);
}

}  // namespace
}  // namespace chainmail::launch
