// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// How the output of a rank is cut into pieces that end where a line ends.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "launcher/output/line_splitter.h"

namespace chainmail::launch {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> split(const std::vector<std::string>& chunks, bool carriage_returns) {
  std::vector<std::string> pieces;
  LineSplitter splitter(carriage_returns,
                        [&](std::string_view piece) { pieces.emplace_back(piece); });
  for (const std::string& chunk : chunks) splitter.append(chunk);
  splitter.finish();
  return pieces;
}

TEST(LineSplitter, HandsOutWholeLines) {
  EXPECT_THAT(split({"a", "b\nc", "\nd\ne\nf"}, false), ElementsAre("ab\n", "c\nd\ne\n", "f"));
  EXPECT_THAT(split({"", "\n"}, false), ElementsAre("\n"));
}

TEST(LineSplitter, CarriageReturnsCountOnlyOnTerminals) {
  EXPECT_THAT(split({"10%\r20%\r3"}, false), ElementsAre("10%\r20%\r3"));
  EXPECT_THAT(split({"10%\r20%\r3"}, true), ElementsAre("10%\r20%\r", "3"));
}

TEST(LineSplitter, LongLinesAreCutBetweenCharacters) {
  // Two-, three- and four-byte characters at every offset towards the cut.
  for (const std::string character : {"\xc3\xb6", "\xe2\x82\xac", "\xf0\x9f\x98\x80"}) {
    for (std::size_t offset = 0; offset < 4; ++offset) {
      std::string line(LineSplitter::kMaxPieceBytes - 4 + offset, 'x');
      for (int i = 0; i < 4; ++i) line += character;
      const auto pieces = split({line}, false);
      ASSERT_EQ(pieces.size(), 2U);
      EXPECT_EQ(pieces[0] + pieces[1], line);
      EXPECT_NE(static_cast<unsigned char>(pieces[1][0]) & 0xc0U, 0x80U) << offset;
    }
  }
  const std::string no_text(LineSplitter::kMaxPieceBytes + 10, '\x80');
  const auto pieces = split({no_text}, false);
  EXPECT_EQ(pieces[0] + pieces[1], no_text);
}

}  // namespace
}  // namespace chainmail::launch
