// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The head of a frame: what is written is read, what is damaged is not.

#include "ops/comm/frames/frame.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace chainmail::ops {
namespace {

FrameHead sample() {
  FrameHead head;
  head.header.kind = OpKind::kAllReduce;
  head.header.count = 123;
  head.header.flags = kFlagNonFinite;
  head.type = FrameType::kData;
  head.has_checksum = true;
  head.length = 1000;
  head.tag = 0x8877665544332211;
  head.message_bytes = std::uint64_t{5} << 32;
  head.offset = std::uint64_t{4} << 32;
  head.checksum = 0xdeadbeef;
  return head;
}

TEST(FrameTest, HeadComesBackAsItWasWritten) {
  const auto head = FrameHead::decode(sample().encode());
  ASSERT_TRUE(head);
  EXPECT_TRUE(head->header.matches(sample().header));
  EXPECT_EQ(head->header.flags, kFlagNonFinite);
  EXPECT_EQ(head->type, FrameType::kData);
  EXPECT_TRUE(head->has_checksum);
  EXPECT_EQ(head->length, 1000U);
  EXPECT_EQ(head->tag, sample().tag);
  EXPECT_EQ(head->message_bytes, sample().message_bytes);
  EXPECT_EQ(head->offset, sample().offset);
  EXPECT_EQ(head->checksum, 0xdeadbeefU);
}

TEST(FrameTest, EveryFlippedBitIsFound) {
  const auto good = sample().encode();
  for (std::size_t bit = 0; bit < 8 * good.size(); ++bit) {
    auto bad = good;
    bad[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
    EXPECT_FALSE(FrameHead::decode(bad)) << "bit " << bit;
  }
}

TEST(FrameTest, HeadsThatCannotBeRightAreRefused) {
  const auto good = sample().encode();
  EXPECT_FALSE(FrameHead::decode(std::span(good).first(FrameHead::kBytes - 1)));
  FrameHead too_long = sample();
  too_long.length = kMaxFramePayload + 1;
  EXPECT_FALSE(FrameHead::decode(too_long.encode()));
  FrameHead beyond = sample();
  beyond.offset = beyond.message_bytes - 999;
  EXPECT_FALSE(FrameHead::decode(beyond.encode()));
  FrameHead wrapping = sample();
  wrapping.offset = ~std::uint64_t{0} - 10;
  EXPECT_FALSE(FrameHead::decode(wrapping.encode()));
  FrameHead empty = sample();
  empty.length = 0;
  EXPECT_FALSE(FrameHead::decode(empty.encode()));
  FrameHead unknown = sample();
  unknown.type = static_cast<FrameType>(77);
  EXPECT_FALSE(FrameHead::decode(unknown.encode()));
}

}  // namespace
}  // namespace chainmail::ops
