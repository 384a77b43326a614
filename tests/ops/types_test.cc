// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/types.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace chainmail::ops {
namespace {

using ::testing::HasSubstr;

TEST(TypesTest, SizesAreThoseOfTheElements) {
  EXPECT_EQ(size_of(DataType::kUInt8), 1u);
  EXPECT_EQ(size_of(DataType::kInt8), 1u);
  EXPECT_EQ(size_of(DataType::kBool), 1u);
  EXPECT_EQ(size_of(DataType::kInt16), 2u);
  EXPECT_EQ(size_of(DataType::kFloat16), 2u);
  EXPECT_EQ(size_of(DataType::kBFloat16), 2u);
  EXPECT_EQ(size_of(DataType::kInt32), 4u);
  EXPECT_EQ(size_of(DataType::kFloat32), 4u);
  EXPECT_EQ(size_of(DataType::kInt64), 8u);
  EXPECT_EQ(size_of(DataType::kFloat64), 8u);
  EXPECT_EQ(size_of(DataType::kUInt16), 2u);
  EXPECT_EQ(size_of(DataType::kUInt32), 4u);
  EXPECT_EQ(size_of(DataType::kUInt64), 8u);
  for (int i = 0; i < kDataTypeCount; ++i) {
    EXPECT_STRNE(to_string(static_cast<DataType>(i)), "unknown") << i;
  }
  EXPECT_STREQ(to_string(static_cast<DataType>(kDataTypeCount)), "unknown");
}

TEST(TypesTest, NamesAreReadBackAsPrinted) {
  for (int i = 0; i <= static_cast<int>(Algorithm::kSingleNode); ++i) {
    const auto algorithm = static_cast<Algorithm>(i);
    EXPECT_EQ(parse_algorithm(to_string(algorithm)), algorithm);
  }
  for (int i = 0; i <= static_cast<int>(ReduceOp::kBitXor); ++i) {
    const auto op = static_cast<ReduceOp>(i);
    EXPECT_EQ(parse_reduce_op(to_string(op)), op);
  }
  for (int i = 0; i <= static_cast<int>(WireFormat::kInt4); ++i) {
    const auto wire = static_cast<WireFormat>(i);
    EXPECT_EQ(parse_wire_format(to_string(wire)), wire);
  }
}

TEST(TypesTest, AnUnknownNameIsRefusedWithTheValidOnes) {
  try {
    (void)parse_algorithm("hierarchic");
    FAIL() << "no exception";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("\"hierarchic\""));
    EXPECT_THAT(error.what(), HasSubstr("auto, naive, flat, hierarchical, two_dimensional"));
  }
  EXPECT_THROW((void)parse_reduce_op("mean"), InvalidArgument);
  EXPECT_THROW((void)parse_wire_format(""), InvalidArgument);
}

TEST(TypesTest, OnlySumsAndMeansOfFloat32AreCompressed) {
  EXPECT_TRUE(is_compressed(WireFormat::kFloat16, DataType::kFloat32, ReduceOp::kSum));
  EXPECT_TRUE(is_compressed(WireFormat::kBFloat16, DataType::kFloat32, ReduceOp::kAvg));
  EXPECT_FALSE(is_compressed(WireFormat::kBFloat16, DataType::kFloat64, ReduceOp::kAvg));
  EXPECT_FALSE(is_compressed(WireFormat::kNative, DataType::kFloat32, ReduceOp::kSum));
  EXPECT_FALSE(is_compressed(WireFormat::kFloat16, DataType::kFloat32, ReduceOp::kMax));
  EXPECT_FALSE(is_compressed(WireFormat::kFloat16, DataType::kFloat16, ReduceOp::kSum));
  EXPECT_FALSE(is_compressed(WireFormat::kFloat16, DataType::kInt32, ReduceOp::kSum));
}

TEST(TypesTest, AGroupSpeaksForMeansAndACallForSumsToo) {
  constexpr auto kHalf = WireFormat::kFloat16;
  constexpr auto kNative = WireFormat::kNative;
  constexpr auto kFloat = DataType::kFloat32;
  EXPECT_EQ(wire_of(std::nullopt, kHalf, kFloat, ReduceOp::kAvg), kHalf);
  EXPECT_EQ(wire_of(std::nullopt, kHalf, kFloat, ReduceOp::kSum), kNative);
  EXPECT_EQ(wire_of(kHalf, kNative, kFloat, ReduceOp::kSum), kHalf);
  EXPECT_EQ(wire_of(WireFormat::kBFloat16, kHalf, kFloat, ReduceOp::kAvg), WireFormat::kBFloat16);
  EXPECT_EQ(wire_of(kNative, kHalf, kFloat, ReduceOp::kAvg), kNative);
  EXPECT_EQ(wire_of(kHalf, kHalf, kFloat, ReduceOp::kMax), kNative);
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg}) {
    EXPECT_EQ(wire_of(kHalf, kHalf, DataType::kFloat64, op), kNative);
    EXPECT_EQ(wire_of(kHalf, kHalf, DataType::kFloat16, op), kNative);
    EXPECT_EQ(wire_of(kHalf, kHalf, DataType::kUInt16, op), kNative);
  }
}

}  // namespace
}  // namespace chainmail::ops
