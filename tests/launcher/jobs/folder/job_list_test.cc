// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Jobs as others find them.

#include "launcher/jobs/folder/job_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "launcher/job/options.h"
#include "launcher/jobs/folder/disk/job_places.h"
#include "launcher/jobs/folder/job_folder.h"
#include "launcher/jobs/folder/watched_job.h"
#include "tests/launcher/jobs/folder/scratch_folder.h"

namespace chainmail::launch {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class JobListTest : public ::testing::Test {
 protected:
  JobFolder& add(const std::string& name, JobPhase phase) {
    JobRecord record;
    record.name = name;
    record.phase = JobPhase::kRunning;
    record.created_ms = ++created_;
    folders_.push_back(std::make_unique<JobFolder>(scratch_.path(), record));
    set(*folders_.back(), phase);
    return *folders_.back();
  }
  static void set(JobFolder& folder, JobPhase phase) {
    JobRecord record = folder.record();
    record.phase = phase;
    EXPECT_EQ(folder.write(record), "");
  }
  std::vector<std::string> list(bool with_ended) {
    unreadable_.clear();
    std::vector<std::string> ids;
    for (const FoundJob& job : list_jobs(scratch_.path(), with_ended, unreadable_)) {
      ids.push_back(job.record.id);
    }
    return ids;
  }
  std::string found(const std::string& name) {
    try {
      return find_job(scratch_.path(), name).record.id;
    } catch (const UsageError& error) {
      return error.what();
    }
  }

  const ScratchFolder scratch_;
  std::vector<std::unique_ptr<JobFolder>> folders_;
  std::vector<std::string> unreadable_;
  std::int64_t created_ = 1000;
};

TEST_F(JobListTest, NoFolderHasNoJobs) {
  EXPECT_THAT(list(true), IsEmpty());
  EXPECT_THAT(found("a"), AllOf(HasSubstr("no job 'a'"), HasSubstr(scratch_.path())));
}

TEST_F(JobListTest, NewestFirst) {
  const std::string a = add("b", JobPhase::kRunning).record().id;
  const std::string b = add("a", JobPhase::kSucceeded).record().id;
  const std::string c = add("c", JobPhase::kStopping).record().id;
  EXPECT_THAT(list(false), ElementsAre(c, a));
  EXPECT_THAT(list(true), ElementsAre(c, b, a));
  EXPECT_THAT(unreadable_, IsEmpty());
}

TEST_F(JobListTest, LostJobsAreAlwaysShown) {
  const std::string a = add("a", JobPhase::kRunning).record().id;
  folders_.clear();
  EXPECT_THAT(list(false), ElementsAre(a));
  EXPECT_EQ(find_job(scratch_.path(), "a").record.phase, JobPhase::kLost);
}

// What is noted of those that have ended is no more than that.
TEST_F(JobListTest, NotesDecideNothing) {
  const std::string a = add("a", JobPhase::kFailed).record().id;
  fs::remove_all(scratch_.at("ended"));
  EXPECT_THAT(list(false), IsEmpty());
  EXPECT_TRUE(fs::exists(scratch_.at("ended/" + a)));
  fs::remove_all(scratch_.at("jobs/" + a));
  EXPECT_THAT(list(true), IsEmpty());
  EXPECT_FALSE(fs::exists(scratch_.at("ended/" + a)));
  fs::remove_all(scratch_.at("ended"));
  scratch_.write("ended", "a file in its place");
  const std::string b = add("b", JobPhase::kFailed).record().id;
  EXPECT_THAT(list(false), IsEmpty());
  EXPECT_THAT(list(true), ElementsAre(b));
}

TEST_F(JobListTest, UnreadableFoldersAreNamedUnlessLocked) {
  const JobFolder& made = add("a", JobPhase::kRunning);
  fs::remove(made.path() + "/state.json");
  fs::create_directories(scratch_.at("jobs/dead-abcdef"));
  fs::create_directories(scratch_.at("jobs/.new-b-abcdef"));
  fs::create_directories(scratch_.at("jobs/.snapshot"));
  scratch_.write("jobs/file", "x");
  EXPECT_THAT(list(false), IsEmpty());
  EXPECT_EQ(unreadable_.size(), 1U) << ::testing::PrintToString(unreadable_);
  EXPECT_EQ(unreadable_folder(scratch_.path(), "dead-abcdef"), scratch_.at("jobs/dead-abcdef"));
  for (const std::string& none :
       {std::string("file"), made.record().id, std::string(".."), std::string(""), std::string("x"),
        std::string(".new-b-abcdef")}) {
    EXPECT_EQ(unreadable_folder(scratch_.path(), none), "") << none;
  }
}

// As with cp -r of a folder.
TEST_F(JobListTest, CopiesAreNotTheJob) {
  const JobFolder& made = add("a", JobPhase::kSucceeded);
  fs::copy(made.path(), scratch_.at("jobs/a-copied"), fs::copy_options::recursive);
  EXPECT_THAT(list(true), ElementsAre(made.record().id));
  EXPECT_THAT(unreadable_, ElementsAre(HasSubstr(made.record().id)));
}

TEST_F(JobListTest, NamesMeanTheLatest) {
  const std::string old = add("mnist", JobPhase::kSucceeded).record().id;
  const std::string latest = add("mnist", JobPhase::kSucceeded).record().id;
  const std::string large = add("mnist-large", JobPhase::kRunning).record().id;
  EXPECT_EQ(found("mnist"), latest);
  EXPECT_EQ(found(old), old);
  EXPECT_EQ(found("mnist-large"), large);
  EXPECT_EQ(found("mnist-larg"), large);
  EXPECT_EQ(found(scratch_.at("jobs/" + old)), old);
  EXPECT_EQ(found(scratch_.at("jobs/../jobs/" + old + "/")), old);
  EXPECT_THAT(found("mnis"), HasSubstr("3 jobs"));
  EXPECT_THAT(found("mnits"), AllOf(HasSubstr(old), HasSubstr(latest), HasSubstr(large)));
  EXPECT_THAT(found(""), HasSubstr("no job ''"));
  EXPECT_THAT(found(std::string(100'000, 'x')), HasSubstr("no job"));
  EXPECT_THAT(found("./" + old), HasSubstr("no folder"));
}

TEST_F(JobListTest, RemovedJobsLeaveNothing) {
  JobFolder& made = add("a", JobPhase::kSucceeded);
  fs::create_directory_symlink(scratch_.path(), made.path() + "/link");
  scratch_.write("precious", "x");
  remove_job_folder(scratch_.path(), made.path());
  EXPECT_TRUE(fs::is_empty(scratch_.at("jobs")));
  EXPECT_TRUE(fs::is_empty(scratch_.at("ended")));
  EXPECT_EQ(scratch_.read("precious"), "x");
  EXPECT_THROW(remove_job_folder(scratch_.path(), made.path()), SystemError);
}

TEST_F(JobListTest, AJobThatIsWatchedAndRemoved) {
  JobFolder& made = add("a", JobPhase::kRunning);
  WatchedJob watched(read_job(made.path()));
  watched.look();
  EXPECT_FALSE(watched.has_ended());
  fs::remove_all(made.path());
  const auto look_in_time = [&watched] {
    while (watched.until_look().count() > 0) {
    }
    watched.look();
  };
  EXPECT_THROW(look_in_time(), SystemError);
}

}  // namespace
}  // namespace chainmail::launch
