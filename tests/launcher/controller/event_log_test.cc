// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What is recorded of a job.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <string>

#include "launcher/controller/state/event_log.h"

namespace chainmail::launch {
namespace {

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

}  // namespace
}  // namespace chainmail::launch
