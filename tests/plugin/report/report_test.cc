// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>
#include <thread>

#include <chainmail/report.h>
#include <chainmail/report/timing.h>

namespace chainmail {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

const std::vector<std::string> kColumns = {
    "epoch",       "main/loss", "validation/main/loss", "main/accuracy", "validation/main/accuracy",
    "elapsed_time"};

ReportEntry entry(std::int64_t epoch) {
  return {epoch,
          600 * epoch,
          4.5678912,
          {{"main/loss", 0.1912345678},
           {"validation/main/loss", 0.0925},
           {"main/accuracy", 0.942133},
           {"validation/main/accuracy", 0.9712}}};
}

TEST(PrintReport, HasChainersLayout) {
  std::ostringstream out;
  PrintReport report(kColumns, out);
  report.report(entry(1));
  report.report(entry(12));
  EXPECT_EQ(out.str(),
            "epoch       main/loss   validation/main/loss  main/accuracy  "
            "validation/main/accuracy  elapsed_time\n"
            "1           0.191235    0.0925                0.942133       "
            "0.9712                    4.56789       \n"
            "12          0.191235    0.0925                0.942133       "
            "0.9712                    4.56789       \n");
}

TEST(PrintReport, LeavesUnknownValuesEmptyAndPrintsIteration) {
  std::ostringstream out;
  PrintReport report({"iteration", "nothing", "main/loss"}, out);
  report.report(entry(1));
  EXPECT_EQ(out.str(),
            "iteration   nothing     main/loss \n"
            "600                     0.191235    \n");
}

TEST(PrintReport, ClearsOnlyForATerminal) {
  std::ostringstream plain;
  std::ostringstream terminal;
  PrintReport(kColumns, plain).report(entry(1));
  PrintReport(kColumns, terminal, true).report(entry(1));
  EXPECT_THAT(plain.str(), Not(HasSubstr("\033")));
  EXPECT_THAT(terminal.str(), HasSubstr("\n\033[J1  "));
}

class LogReportTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "chainmail_log_XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string content() const {
    std::ifstream file(folder_ / "new/folder/log");
    return {std::istreambuf_iterator<char>(file), {}};
  }
  std::string path() const { return (folder_ / "new/folder/log").string(); }
  fs::path folder_;
};

TEST_F(LogReportTest, WritesAJsonList) {
  LogReport report(path());
  report.report({1, 600, 1.5, {{"main/loss", 0.25}}});
  report.report({2, 1200, 3.0, {{"main/loss", std::numeric_limits<double>::quiet_NaN()}}});
  EXPECT_EQ(content(), R"([
    {
        "main/loss": 0.25,
        "epoch": 1,
        "iteration": 600,
        "elapsed_time": 1.5
    },
    {
        "main/loss": null,
        "epoch": 2,
        "iteration": 1200,
        "elapsed_time": 3.0
    }
]
)");
  EXPECT_FALSE(fs::exists(path() + ".new"));
}

TEST_F(LogReportTest, KeepsEarlierEntriesUpToTheResumedEpoch) {
  {
    LogReport report(path());
    report.report(entry(1));
    report.report(entry(2));
    report.report(entry(3));
  }
  LogReport(path(), 2).report({3, 1800, 9.0, {}});
  EXPECT_THAT(content(), HasSubstr("\"epoch\": 1,"));
  EXPECT_THAT(content(), HasSubstr("\"epoch\": 2,"));
  EXPECT_THAT(content(), HasSubstr("\"elapsed_time\": 9.0"));
  EXPECT_THAT(content(), Not(HasSubstr("\"epoch\": 4,")));
  // What was interrupted after its last report makes that one again.
  LogReport(path(), 3).report({3, 1800, 10.0, {}});
  EXPECT_THAT(content(), Not(HasSubstr("\"elapsed_time\": 9.0")));
  EXPECT_THAT(content(), HasSubstr("\"elapsed_time\": 10.0"));
  EXPECT_THAT(content(), HasSubstr("\"epoch\": 2,"));
  LogReport(path()).report({1, 600, 1.0, {}});
  EXPECT_THAT(content(), Not(HasSubstr("\"epoch\": 2,")));
}

TEST_F(LogReportTest, SaysWhichFolderCannotBeMade) {
  std::ofstream(folder_ / "new") << "a file in the way";
  try {
    const LogReport report(path());
    FAIL() << "made";
  } catch (const SystemError& error) {
    EXPECT_THAT(error.what(), HasSubstr((folder_ / "new/folder").string()));
  }
}

using PlotReportTest = LogReportTest;

TEST_F(PlotReportTest, DrawsCurvesWithGapsAndALegend) {
  PlotReport report(path(), {"main/loss", "a<b&c"}, "iteration");
  report.report({1, 100, 1.0, {{"main/loss", 4.0}, {"a<b&c", 2.0}}});
  report.report({2, 200, 2.0, {{"main/loss", std::numeric_limits<double>::infinity()}}});
  report.report({3, 300, 3.0, {{"main/loss", 3.0}, {"other", 9e9}}});
  report.report({4, 400, 4.0, {{"main/loss", 0.0}}});
  const std::string svg = content();
  // From (100, 4) at the top left to (400, 0) at the bottom right; the second point is missing.
  EXPECT_THAT(svg, HasSubstr("<path d=\"M70.00 20.00 M490.00 112.50 L700.00 390.00 \""));
  EXPECT_THAT(svg, HasSubstr("<path d=\"M70.00 205.00 \""));
  EXPECT_THAT(svg, HasSubstr(">main/loss</text>"));
  EXPECT_THAT(svg, HasSubstr(">a&lt;b&amp;c</text>"));
  EXPECT_THAT(svg, HasSubstr(">iteration</text>"));
  EXPECT_THAT(svg, HasSubstr(">2.5</text>"));  // a tick
  EXPECT_FALSE(fs::exists(path() + ".new"));
  EXPECT_THROW(PlotReport(path(), {}, "main/loss"), InvalidArgument);
}

TEST_F(PlotReportTest, DrawsOnePointAndNone) {
  PlotReport report(path(), {"x"});
  report.report({1, 100, 1.0, {}});
  EXPECT_THAT(content(), HasSubstr("<path d=\"\""));
  report.report({2, 200, 1.0, {{"x", -7.0}}});
  EXPECT_THAT(content(), HasSubstr("<path d=\"M385.00 205.00 \""));
}

using TensorBoardReportTest = LogReportTest;

// What is in the files is checked by another program: tests/examples/read_events.py.
TEST_F(TensorBoardReportTest, WritesOneFilePerObjectAtOnce) {
  TensorBoardReport first((folder_ / "run").string());
  TensorBoardReport second((folder_ / "run").string());
  EXPECT_NE(first.path(), second.path());
  EXPECT_THAT(fs::path(first.path()).filename().string(),
              ::testing::MatchesRegex("events[.]out[.]tfevents[.][0-9]{10}[.].*"));
  const auto empty = fs::file_size(first.path());
  EXPECT_EQ(empty, 16U + 9U + 2U + std::string("brain.Event:2").size());  // frame, time, version
  first.report(entry(1));
  EXPECT_GT(fs::file_size(first.path()), empty + 4 * 20);
  EXPECT_EQ(fs::file_size(second.path()), empty);
  std::ofstream(folder_ / "new") << "a file in the way";
  EXPECT_THROW(TensorBoardReport((folder_ / "new/folder").string()), SystemError);
}

TEST(Timing, FindsTheRankThatOthersWaitFor) {
  const TimingSummary summary = summarize(
      {{"a", 10, 20.0, 10.0}, {"a", 10, 20.0, 12.0}, {"b", 10, 20.0, 2.0}, {"b", 0, 0, 0}});
  EXPECT_EQ(summary.slowest, 2);
  EXPECT_DOUBLE_EQ(summary.slowdown, 1.8);
  EXPECT_DOUBLE_EQ(summary.step_ms, 20.0);
  EXPECT_DOUBLE_EQ(summary.waiting_share, 0.4);
  EXPECT_TRUE(summary.has_straggler());
  EXPECT_EQ(
      summary.text(),
      "step 20 ms, 40 % of it waiting; rank 2 on b is slowest: 18 ms busy, 1.80 x the median");
  EXPECT_EQ(summary.values().at("timing/slowest_rank"), 2);
  EXPECT_EQ(summarize({{"a", 10, 2.0, 0.5}}).text(), "step 2 ms, 25 % of it waiting");
  EXPECT_FALSE(summarize({{"a", 0, 0, 0}}).has_straggler());
}

TEST(ProgressBar, DrawsChainersFourLines) {
  std::ostringstream out;
  ProgressBar bar(out);
  bar.progress({1, 100, 4});
  std::this_thread::sleep_for(std::chrono::milliseconds{250});  // less than that is not redrawn
  bar.progress({150, 100, 4});
  bar.progress({151, 100, 4});
  EXPECT_THAT(out.str(), HasSubstr("     total [##################"));
  EXPECT_THAT(out.str(), HasSubstr("]  37.50%\n"));
  EXPECT_THAT(out.str(), HasSubstr("this epoch [#########################....."));
  EXPECT_THAT(out.str(), HasSubstr("       150 iter, 1 epoch / 4 epochs\n"));
  EXPECT_THAT(out.str(), HasSubstr("iters/sec. Estimated time to finish: 0:00:00.\n\033[4A\r"));
  EXPECT_THAT(out.str(), Not(HasSubstr("151 iter")));
}

// In its place there may be a pipe, or a terminal of the launcher's for each rank.
class OnATerminal {
 public:
  OnATerminal() {
    std::fflush(stdout);
    const int terminal = posix_openpt(O_RDWR | O_NOCTTY);
    EXPECT_EQ(grantpt(terminal) | unlockpt(terminal), 0);
    const int other_end = open(ptsname(terminal), O_RDWR | O_NOCTTY);
    EXPECT_GE(dup2(other_end, STDOUT_FILENO), 0);
    close(other_end);
    terminal_ = terminal;
  }
  ~OnATerminal() {
    std::fflush(stdout);
    dup2(before_, STDOUT_FILENO);
    close(before_);
    close(terminal_);
  }

 private:
  int before_ = dup(STDOUT_FILENO);
  int terminal_ = -1;
};

TEST(CanDrawProgress, UnderTheLauncherWhenThatWritesToATerminal) {
  const auto draws = [](const char* job_fd, const char* watched) {
    const OnATerminal terminal;
    setenv("TERM", "xterm", 1);
    job_fd == nullptr ? unsetenv("CHAINMAIL_JOB_FD") : setenv("CHAINMAIL_JOB_FD", job_fd, 1);
    watched == nullptr ? unsetenv("CHAINMAIL_TERMINAL") : setenv("CHAINMAIL_TERMINAL", watched, 1);
    const bool can = can_draw_progress();
    unsetenv("CHAINMAIL_JOB_FD");
    unsetenv("CHAINMAIL_TERMINAL");
    return can;
  };
  EXPECT_TRUE(draws(nullptr, nullptr));
  EXPECT_TRUE(draws("60", "1"));
  EXPECT_FALSE(draws("60", "0"));
  EXPECT_FALSE(draws("60", nullptr));
}

TEST(CanDrawProgress, NotUnderStartersThatDoNotSayWhereTheirOutputGoes) {
  const auto draws = [](const std::vector<const char*>& variables) {
    const OnATerminal terminal;
    setenv("TERM", "xterm", 1);
    for (const char* name : variables) setenv(name, name == variables.front() ? "0" : "2", 1);
    const bool can = can_draw_progress();
    for (const char* name : variables) unsetenv(name);
    return can;
  };
  EXPECT_TRUE(draws({}));
  EXPECT_FALSE(
      draws({"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"}));
  EXPECT_FALSE(draws({"PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS"}));
  EXPECT_FALSE(draws({"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}));
  EXPECT_FALSE(draws({"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_ID", "SLURM_JOB_ID"}));
}

TEST(CanDrawProgress, NotOnAPipe) {
  // Tests run with their output in a pipe or a file, or in a terminal that says what it is.
  ASSERT_EQ(setenv("TERM", "dumb", 1), 0);
  EXPECT_FALSE(can_draw_progress());
}

}  // namespace
}  // namespace chainmail
