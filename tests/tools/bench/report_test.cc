// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "tools/bench/report/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "tools/bench/report/plot.h"

namespace chainmail::bench {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Result result_of(const std::string& name, double us) {
  Result result;
  result.name = name;
  result.timing = {us / 2, us, us * 2, {us, us * 1.5}};
  return result;
}

Measured measured_of(std::size_t bytes, std::vector<Result> results) {
  return {"all_reduce", bytes, bytes / 4, "float32", "sum", 1, 1.5, std::move(results)};
}

RunFacts facts() {
  RunFacts facts;
  facts.ranks = 4;
  facts.nodes = 2;
  facts.topology = "2 nodes x 2 ranks";
  facts.machine.processor = "<Q&A>";
  return facts;
}

std::vector<std::string> words_of(const std::string& line) {
  std::istringstream stream(line);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

TEST(ReportTest, ColumnsStandInNcclTestsOrder) {
  const Measured measured =
      measured_of(4'000'000, {result_of("chainmail", 1000), result_of("gloo", 3000)});
  const auto words = words_of(table_line(measured));
  // size count type redop time algbw busbw #wrong min med p90 wirebw cpu | gloo ratio (min) [worst]
  ASSERT_EQ(words.size(), 17u);
  EXPECT_THAT(std::vector<std::string>(words.begin(), words.begin() + 11),
              ::testing::ElementsAre("4000000", "1000000", "float32", "sum", "1000.00", "4.00",
                                     "6.00", "0", "500.00", "1000.00", "2000.00"));
  EXPECT_THAT(std::vector<std::string>(words.begin() + 13, words.end()),
              ::testing::ElementsAre("3000.00", "3.00", "(3.00)", "[3.00]"));
}

TEST(ReportTest, WrongElementsOfAnyoneShow) {
  Measured measured = measured_of(4, {result_of("chainmail", 1), result_of("mpi", 2)});
  EXPECT_THAT(table_line(measured), Not(HasSubstr("WRONG")));
  measured.results[1].wrong = 3;
  EXPECT_THAT(table_line(measured), HasSubstr("3 WRONG"));
}

TEST(ReportTest, OneJsonObjectPerContestant) {
  Measured measured =
      measured_of(16, {result_of("chainmail", 2), result_of("gloo", 60), result_of("mpi", 3)});
  measured.results[0].wrong = 1;
  std::istringstream lines(json_lines(facts(), measured));
  std::string line;
  ASSERT_TRUE(std::getline(lines, line));
  const auto gloo = nlohmann::json::parse(line);
  EXPECT_EQ(gloo["base"], "gloo");
  EXPECT_EQ(gloo["ratio"], 30);
  EXPECT_EQ(gloo["ranks"], 4);
  EXPECT_EQ(gloo["size"], 16);
  EXPECT_EQ(gloo["wrong"], 1);
  ASSERT_TRUE(std::getline(lines, line));
  EXPECT_EQ(nlohmann::json::parse(line)["base_us"], 3);
  EXPECT_FALSE(std::getline(lines, line));
}

TEST(ReportTest, WithoutABaseThereIsNoRatio) {
  const auto line =
      nlohmann::json::parse(json_lines(facts(), measured_of(16, {result_of("chainmail", 2)})));
  EXPECT_EQ(line["base"], "none");
  EXPECT_TRUE(line["ratio"].is_null());
  EXPECT_EQ(line["ours_us"], 2);
}

TEST(PlotTest, HasALineForEveryContestantInBothPanels) {
  std::vector<Measured> run;
  for (const std::size_t bytes : {4u, 65536u, 1u << 20}) {
    run.push_back(measured_of(bytes, {result_of("chainmail", 2), result_of("gloo", 60)}));
  }
  const std::string svg = plot_svg(facts(), run);
  std::size_t lines = 0;
  for (std::size_t at = 0; (at = svg.find("<path", at)) != std::string::npos; ++at) ++lines;
  EXPECT_EQ(lines, 3u);  // two times, one ratio
  EXPECT_THAT(svg, HasSubstr(">64K</text>"));
  EXPECT_THAT(svg, HasSubstr("&lt;Q&amp;A&gt;"));
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
  EXPECT_THAT(svg, Not(HasSubstr("inf")));
}

TEST(PlotTest, OneSizeAndNoBaseAreAPictureToo) {
  const std::string svg = plot_svg(facts(), {measured_of(4, {result_of("chainmail", 2)})});
  EXPECT_THAT(svg, ::testing::StartsWith("<svg "));
  EXPECT_THAT(svg, HasSubstr("<circle"));
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
  EXPECT_THAT(plot_svg(facts(), {}), ::testing::EndsWith("</svg>\n"));
}

}  // namespace
}  // namespace chainmail::bench
