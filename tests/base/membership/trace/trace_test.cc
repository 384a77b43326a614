// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Traces of simulated jobs are accepted, and any damage to them is seen.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "tests/base/membership/sim/seeded.h"
#include "tests/base/membership/trace/trace_checker.h"
#include "tests/base/membership/trace/trace_files.h"

namespace chainmail::membership {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

std::vector<std::string> problems_of(const TraceFiles& files) {
  TraceChecker checker;
  std::size_t number = 0;
  for (const std::string& line : files.launcher) {
    checker.add(line, "events.jsonl:" + std::to_string(++number));
  }
  for (const auto& [id, lines] : files.members) {
    number = 0;
    for (const std::string& line : lines) {
      checker.add(line, "member " + std::to_string(id) + ":" + std::to_string(++number));
    }
  }
  return checker.finish();
}

TraceFiles trace_of(std::uint64_t seed) {
  TraceFiles files;
  EXPECT_EQ(sim::run_seed(seed, &files).violation, "");
  return files;
}

// The first line with `text`, counted from the end of the lines.
std::vector<std::string>::iterator find_last(std::vector<std::string>& lines,
                                             const std::string& text) {
  const auto found = std::find_if(lines.rbegin(), lines.rend(), [&](const std::string& line) {
    return line.find(text) != std::string::npos;
  });
  EXPECT_NE(found, lines.rend()) << text;
  return found.base() - 1;
}

void replace(std::string& line, const std::string& from, const std::string& to) {
  const std::size_t at = line.find(from);
  ASSERT_NE(at, std::string::npos) << from << " in " << line;
  line.replace(at, from.size(), to);
}

// A job with a change, whose members are all heard of.
class CorruptedTraceTest : public ::testing::Test {
 protected:
  CorruptedTraceTest() {
    for (std::uint64_t seed = 0; files_.launcher.empty(); ++seed) {
      TraceFiles files;
      const auto result = sim::run_seed(seed, &files);
      const bool has_two = result.generations >= 2 && files.members.size() >= 3;
      const auto has = [&](const std::string& text) {
        return std::any_of(files.members[1].begin(), files.members[1].end(),
                           [&](auto& line) { return line.find(text) != std::string::npos; });
      };
      if (has_two && has("\"kind\":\"resume\"") && has("\"kind\":\"held\"")) files_ = files;
    }
  }
  std::vector<std::string>& member() { return files_.members[1]; }

  TraceFiles files_;
};

TEST(Trace, OfEverySimulatedJobIsAccepted) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    EXPECT_THAT(problems_of(trace_of(seed)), IsEmpty()) << "seed " << seed;
  }
}

TEST(Trace, MayStandAmongOtherLines) {
  TraceFiles files = trace_of(0);
  files.launcher.insert(files.launcher.begin(), R"({"event":"job_started","time":"2026"})");
  replace(files.launcher[2], "{\"machine\"", "{\"time\":\"2026\",\"sequence\":4,\"machine\"");
  EXPECT_THAT(problems_of(files), IsEmpty());
}

TEST(Trace, MayEndAnywhere) {
  TraceFiles files = trace_of(0);
  for (auto& [id, lines] : files.members) lines.resize(lines.size() / 2 + 1);
  const auto problems = problems_of(files);
  // The launcher has heard more than the files still say.
  for (const std::string& problem : problems) EXPECT_THAT(problem, HasSubstr("did not send"));
}

TEST_F(CorruptedTraceTest, ChangedStepIsSeen) {
  auto& line = *find_last(member(), "\"kind\":\"commit\"");
  replace(line, "\"kind\":\"commit\",\"generation\":", "\"kind\":\"commit\",\"generation\":1");
  EXPECT_THAT(problems_of(files_), Not(IsEmpty()));
}

TEST_F(CorruptedTraceTest, ChangedStateIsSeen) {
  auto& line = *find_last(member(), "\"state\":\"");
  const std::size_t at = line.find("\"state\":\"") + 9;
  line[at] = line[at] == '0' ? '1' : '0';
  EXPECT_THAT(problems_of(files_), ElementsAre(HasSubstr("is another one in")));
}

TEST(TraceLineTest, TakesWhateverAProgramHasPrinted) {
  EXPECT_EQ(JsonObject::text_of(std::string("a\xff\n\"")), "\"a\xef\xbf\xbd\\n\\\"\"");
}

TEST_F(CorruptedTraceTest, MissingLineIsSeen) {
  member().erase(find_last(member(), "\"in\":{\"kind\":\"exchanged\""));
  EXPECT_THAT(problems_of(files_), Not(IsEmpty()));
}

TEST_F(CorruptedTraceTest, MissingMessageIsSeen) {
  member().erase(find_last(member(), "\"kind\":\"resume\""));
  EXPECT_THAT(problems_of(files_), Not(IsEmpty()));
}

TEST_F(CorruptedTraceTest, DoubledMessageIsSeen) {
  const auto at = find_last(files_.launcher, "\"in\":{\"kind\":\"said\",\"from\":1");
  files_.launcher.insert(at, std::string(*at));
  EXPECT_THAT(problems_of(files_), Not(IsEmpty()));
}

TEST_F(CorruptedTraceTest, MessageThatNobodySentIsSeen) {
  auto& line = *find_last(member(), "\"kind\":\"held\"");
  replace(line, "\"out\":[", "\"out\":[{\"kind\":\"exit\",\"code\":0},");
  EXPECT_THAT(problems_of(files_), Not(IsEmpty()));
}

TEST_F(CorruptedTraceTest, SwappedLinesAreSeen) {
  const auto at = find_last(member(), "\"kind\":\"commit\"");
  std::iter_swap(at, at - 1);
  EXPECT_THAT(problems_of(files_), Not(IsEmpty()));
}

TEST_F(CorruptedTraceTest, WorldOfOthersIsSeen) {
  auto& line = *find_last(member(), "\"members\":[");
  replace(line, "\"members\":[", "\"members\":[9,");
  EXPECT_THAT(problems_of(files_), Not(IsEmpty()));
}

TEST_F(CorruptedTraceTest, MissingFileIsSeen) {
  files_.members.erase(1);
  EXPECT_THAT(problems_of(files_), ElementsAre(HasSubstr("has no file")));
}

TEST_F(CorruptedTraceTest, LauncherIsJudgedAlone) {
  const auto problems_of_launcher = [this] {
    TraceChecker checker;
    for (const std::string& line : files_.launcher) checker.add(line, "events.jsonl");
    return checker.finish_launcher();
  };
  EXPECT_THAT(problems_of_launcher(), IsEmpty());
  replace(*find_last(files_.launcher, "\"members\":["), "\"members\":[", "\"members\":[9,");
  EXPECT_THAT(problems_of_launcher(), Not(IsEmpty()));
}

TEST_F(CorruptedTraceTest, BrokenLinesAreSeen) {
  member().back().resize(member().back().size() - 3);
  files_.launcher.push_back(R"({"machine":"world","in":{"kind":"nonsense"},"out":[]})");
  files_.launcher.push_back(R"({"machine":"nobody"})");
  EXPECT_THAT(problems_of(files_), ::testing::SizeIs(::testing::Ge(3)));
}

}  // namespace
}  // namespace chainmail::membership
