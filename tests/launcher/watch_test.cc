// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The parts that watch ranks: who is stuck, who was killed for its memory, and what is recorded.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "launcher/cgroup/memory_watch.h"
#include "launcher/controller/ranks/stall_watch.h"
#include "launcher/controller/state/event_log.h"
#include "launcher/output/line_writer.h"

namespace chainmail::launch {
namespace {

using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const StallWatch::Time kStart{};

TEST(StallWatch, RanksThatHaveSaidNothingYetAreStarting) {
  const StallWatch watch(2);
  EXPECT_FALSE(watch.find(kStart + seconds(1000), seconds(10)));
}

TEST(StallWatch, WhoGoesOnIsNotStuck) {
  StallWatch watch(1);
  for (unsigned i = 0; i < 10; ++i) watch.update(0, {i, 0}, kStart + seconds(9 * i));
  EXPECT_FALSE(watch.find(kStart + seconds(90), seconds(10)));
  watch.update(0, {9, 0}, kStart + seconds(90));  // the same again is no progress
  EXPECT_TRUE(watch.find(kStart + seconds(92), seconds(10)));
}

TEST(StallWatch, TheRankThatOthersWaitForIsNamed) {
  StallWatch watch(3);
  for (const std::uint32_t rank : {0U, 1U, 2U}) watch.update(rank, {5, 50}, kStart);
  watch.update(0, {5, 51}, kStart);
  watch.update(2, {5, 51}, kStart);
  const auto stall = watch.find(kStart + seconds(60), seconds(60));
  ASSERT_TRUE(stall);
  EXPECT_THAT(stall->culprits, ElementsAre(1));
  EXPECT_EQ(stall->text,
            "no progress for 60 s: stands at step 5, operation 50, where others that wait are at "
            "step 5, operation 51");
}

TEST(StallWatch, WhoWaitsForARankThatWasHeardOfLastIsNotNamed) {
  StallWatch watch(3);
  watch.update(1, {5, 51}, kStart);
  watch.update(2, {5, 50}, kStart + seconds(1));
  watch.update(0, {5, 50}, kStart + seconds(2));
  EXPECT_FALSE(watch.find(kStart + seconds(60), seconds(60)));
  EXPECT_FALSE(watch.find(kStart + seconds(61), seconds(60)));
  const auto stall = watch.find(kStart + seconds(62), seconds(60));
  ASSERT_TRUE(stall);
  EXPECT_THAT(stall->culprits, ElementsAre(0, 2));
}

TEST(StallWatch, WhoIsFurtherThanOthersThatGoOnIsStuckAfterTwiceTheLimit) {
  StallWatch watch(2);
  watch.update(0, {5, 50}, kStart);
  for (unsigned i = 0; i < 13; ++i) watch.update(1, {0, i}, kStart + seconds(10 * i));
  EXPECT_FALSE(watch.find(kStart + seconds(119), seconds(60)));
  const auto stall = watch.find(kStart + seconds(120), seconds(60));
  ASSERT_TRUE(stall);
  EXPECT_THAT(stall->culprits, ElementsAre(0));
}

TEST(StallWatch, NobodyIsNamedWhenAllAreEquallyFar) {
  StallWatch watch(2);
  watch.update(0, {0, 7}, kStart);
  watch.update(1, {0, 7}, kStart);
  const auto stall = watch.find(kStart + seconds(60), seconds(60));
  ASSERT_TRUE(stall);
  EXPECT_THAT(stall->culprits, IsEmpty());
  EXPECT_EQ(stall->text, "no progress for 60 s: stands at operation 7");
}

TEST(StallWatch, RanksThatHaveEndedAndHeldUpLaunchersCountForNothing) {
  StallWatch watch(2);
  watch.update(0, {1, 1}, kStart);
  watch.update(1, {1, 1}, kStart);
  watch.forget(0);
  watch.start_anew(kStart + seconds(50));
  EXPECT_FALSE(watch.find(kStart + seconds(60), seconds(60)));
  const auto stall = watch.find(kStart + seconds(110), seconds(60));
  ASSERT_TRUE(stall);
  EXPECT_THAT(stall->culprits, IsEmpty()) << "all that are left";
}

constexpr char kMounts[] =
    "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n"
    "32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n"
    "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory\n"
    "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";

TEST(MemoryGroup, OfTheFirstVersion) {
  const MemoryGroup group =
      find_memory_group("9:name=systemd:/\n4:cpu,memory:/batch/job 7\n0::/x\n", kMounts);
  EXPECT_EQ(group.folder, "/sys/fs/cgroup/memory/batch/job 7");
  EXPECT_FALSE(group.is_unified);
}

TEST(MemoryGroup, OfTheSecondVersion) {
  const MemoryGroup group = find_memory_group("0::/user.slice/job", kMounts);
  EXPECT_EQ(group.folder, "/sys/fs/cgroup/unified/user.slice/job");
  EXPECT_TRUE(group.is_unified);
}

TEST(MemoryGroup, InAContainerThatSeesAPart) {
  const MemoryGroup group = find_memory_group(
      "0::/docker/abc/job", "30 1 0:2 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup rw\n");
  EXPECT_EQ(group.folder, "/sys/fs/cgroup/job");
}

TEST(MemoryGroup, NothingToBeSeenIsNoError) {
  EXPECT_EQ(find_memory_group("", kMounts).folder, "");
  EXPECT_EQ(find_memory_group("0::/x", "").folder, "");
  EXPECT_EQ(find_memory_group("::::\n4:memory\n", "- - -\n a b - c\n").folder, "");
}

TEST(MemoryWatch, AKillByAPersonIsNoLackOfMemory) {
  MemoryWatch watch;
  watch.look(getpid());
  const KillReport report = watch.explain(getpid(), 3 << 10);
  EXPECT_FALSE(report.is_out_of_memory);
  EXPECT_THAT(report.detail, HasSubstr("it had used up to 3 MiB"));
}

TEST(EventLog, WritesOneObjectPerLine) {
  std::string lines;
  EventLog log("0123", 4, [&](const std::string& line) { lines += line; });
  Options options;
  options.program = {"./train", "a\nb", "\xff"};
  Host host;
  host.name = "n1";
  log.record_start(options, {{host}, {1}, {PlacedRank{}}});
  log.record("rank_exited", {{"rank", 3}, {"host", "n1"}});
  const std::size_t end = lines.find('\n');
  ASSERT_EQ(lines.find('\n', end + 1), lines.size() - 1) << lines;
  const auto start = nlohmann::json::parse(lines.substr(0, end));
  EXPECT_EQ(start["event"], "job_started");
  EXPECT_EQ(start["job"], "0123");
  EXPECT_EQ(start["programs"][0][1], "a\nb");
  const auto exited = nlohmann::json::parse(lines.substr(end));
  EXPECT_EQ(exited["sequence"], 1);
  EXPECT_EQ(exited["generation"], 4);
  EXPECT_EQ(exited["rank"], 3);
  EXPECT_EQ(exited["time"].get<std::string>().size(),
            std::string("2026-01-31T23:59:59.123456Z").size());
}

class LineWriterTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "line_writer.XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string folder_;
};

TEST_F(LineWriterTest, WritesWhatOnlyItsOwnerReads) {
  const std::string path = folder_ + "/new/events.jsonl";
  LineWriter writer(path);
  writer.write("one\n");
  writer.write("two\n");
  EXPECT_EQ(writer.finish(), "");
  std::ifstream file(path);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  EXPECT_EQ(text, "one\ntwo\n");
  using std::filesystem::perms;
  EXPECT_EQ(std::filesystem::status(path).permissions(), perms::owner_read | perms::owner_write);
}

TEST_F(LineWriterTest, GoesOnOrBeginsAnew) {
  const std::string path = folder_ + "/events.jsonl";
  const auto text_after = [&path](bool goes_on) {
    LineWriter writer(path, goes_on);
    writer.write("line\n");
    EXPECT_EQ(writer.finish(), "");
    std::ifstream file(path);
    return std::string((std::istreambuf_iterator<char>(file)), {});
  };
  EXPECT_EQ(text_after(false), "line\n");
  EXPECT_EQ(text_after(true), "line\nline\n");
  EXPECT_EQ(text_after(false), "line\n");
}

TEST_F(LineWriterTest, TakesNoMoreRoomThanTwoFiles) {
  const std::string path = folder_ + "/events.jsonl";
  LineWriter writer(path, false, 10);
  for (const char* line : {"one\n", "two\n", "three\n", "four\n", "five\n"}) writer.write(line);
  EXPECT_EQ(writer.finish(), "");
  const auto text_of = [](const std::string& name) {
    std::ifstream file(name);
    return std::string((std::istreambuf_iterator<char>(file)), {});
  };
  EXPECT_EQ(text_of(path), "four\nfive\n");
  EXPECT_EQ(text_of(path + ".1"), "three\n");
  EXPECT_FALSE(std::filesystem::exists(path + ".2"));
}

TEST_F(LineWriterTest, SaysWhatIsLost) {
  LineWriter writer("/dev/full");
  writer.write("one\n");
  EXPECT_EQ(writer.finish(),
            "cannot write /dev/full: No space left on device; lines of it are lost");
}

}  // namespace
}  // namespace chainmail::launch
