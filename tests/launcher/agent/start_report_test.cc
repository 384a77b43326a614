// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What the process of a rank says of itself before its program runs.

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <span>
#include <string>

#include "launcher/agent/rank_process.h"

namespace chainmail::launch {
namespace {

TEST(StartReport, TheLastStageCountsHoweverTheBytesCome) {
  const std::string bytes = StartReport::encode(StartStage::kFolder, 0, "") +
                            StartReport::encode(StartStage::kSearch, 0, "/slow/p") +
                            StartReport::encode(StartStage::kExec, 0, std::string(5000, 'x'));
  const std::size_t last = bytes.size() - 1;
  for (std::size_t piece = 1; piece <= last; ++piece) {
    StartReport report;
    const auto all = std::as_bytes(std::span(bytes));
    for (std::size_t at = 0; at < last; at += piece) {
      report.append(all.subspan(at, std::min(piece, last - at)));
    }
    EXPECT_EQ(report.stage(), StartStage::kSearch);
    EXPECT_EQ(report.path(), "/slow/p");
    report.append(all.subspan(last));
    EXPECT_EQ(report.stage(), StartStage::kExec);
    EXPECT_EQ(report.path(), std::string(1024, 'x'));
    EXPECT_EQ(report.error(), 0);
    const std::string failure = StartReport::encode(StartStage::kExec, ENOENT, "");
    report.append(std::as_bytes(std::span(failure)));
    EXPECT_EQ(report.error(), ENOENT);
  }
}

}  // namespace
}  // namespace chainmail::launch
