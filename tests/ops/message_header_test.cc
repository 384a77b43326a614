// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/message_header.h"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <span>

namespace chainmail::ops {
namespace {

MessageHeader example() {
  MessageHeader header;
  header.kind = OpKind::kAllReduce;
  header.generation = 0x01020304;
  header.sequence = 0x1112131415161718;
  header.count = 0x2122232425262728;
  header.layout = 0x31323334;
  header.dtype = DataType::kBFloat16;
  header.reduce_op = ReduceOp::kMax;
  header.flags = 0x4142;
  return header;
}

TEST(MessageHeaderTest, TheLayoutOfTheBytesIsFixed) {
  const std::array<int, MessageHeader::kBytes> expected = {
      0x43, 0x4d, 1,    0,    0x04, 0x03, 0x02, 0x01, 0x18, 0x17, 0x16,
      0x15, 0x14, 0x13, 0x12, 0x11, 0x28, 0x27, 0x26, 0x25, 0x24, 0x23,
      0x22, 0x21, 0x34, 0x33, 0x32, 0x31, 7,    4,    0x42, 0x41};
  const auto bytes = example().encode();
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    EXPECT_EQ(std::to_integer<int>(bytes[i]), expected[i]) << "byte " << i;
  }
}

TEST(MessageHeaderTest, WhatWasEncodedIsDecoded) {
  const auto decoded = MessageHeader::decode(example().encode());
  ASSERT_TRUE(decoded.has_value());
  EXPECT_TRUE(decoded->matches(example()));
  EXPECT_EQ(decoded->flags, example().flags);
}

TEST(MessageHeaderTest, EveryFieldButTheFlagsIsCompared) {
  const auto differs = [](auto change) {
    MessageHeader other = example();
    change(other);
    return !other.matches(example());
  };
  EXPECT_TRUE(differs([](MessageHeader& h) { h.kind = OpKind::kBroadcast; }));
  EXPECT_TRUE(differs([](MessageHeader& h) { ++h.generation; }));
  EXPECT_TRUE(differs([](MessageHeader& h) { ++h.sequence; }));
  EXPECT_TRUE(differs([](MessageHeader& h) { ++h.count; }));
  EXPECT_TRUE(differs([](MessageHeader& h) { ++h.layout; }));
  EXPECT_TRUE(differs([](MessageHeader& h) { h.dtype = DataType::kFloat16; }));
  EXPECT_TRUE(differs([](MessageHeader& h) { h.reduce_op = ReduceOp::kSum; }));
  EXPECT_FALSE(differs([](MessageHeader& h) { h.flags = 0; }));
}

TEST(MessageHeaderTest, BytesThatAreNoHeaderAreRefused) {
  const auto good = example().encode();
  const auto with = [&good](std::size_t index, int value) {
    auto bytes = good;
    bytes[index] = static_cast<std::byte>(value);
    return MessageHeader::decode(bytes).has_value();
  };
  EXPECT_FALSE(MessageHeader::decode(std::span(good).first(31)).has_value());
  EXPECT_FALSE(MessageHeader::decode({}).has_value());
  EXPECT_FALSE(with(0, 0)) << "magic";
  EXPECT_FALSE(with(2, 2)) << "version";
  EXPECT_FALSE(with(3, 12)) << "kind";
  EXPECT_FALSE(with(28, 13)) << "dtype";
  EXPECT_FALSE(with(29, 8)) << "reduce operation";
  EXPECT_TRUE(with(31, 0xff)) << "unknown flags are not an error";
}

TEST(MessageHeaderTest, TheDescriptionNamesWhatAUserCalled) {
  MessageHeader header;
  header.kind = OpKind::kAllReduce;
  header.sequence = 12;
  header.count = 1000;
  header.dtype = DataType::kFloat32;
  header.layout = 0x5f3a;
  EXPECT_EQ(header.describe(), "all_reduce #12 of 1000 float32 (sum, layout 00005f3a)");
  header.kind = OpKind::kBroadcast;
  header.generation = 3;
  EXPECT_EQ(header.describe(), "broadcast #12 of 1000 float32 (layout 00005f3a, generation 3)");
  header.kind = OpKind::kBarrier;
  header.generation = 0;
  EXPECT_EQ(header.describe(), "barrier #12 (layout 00005f3a)");
}

}  // namespace
}  // namespace chainmail::ops
