// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The table of tensors and its walk on the CPU, against the kernels that the CPU engine rounds
// with: the GPU's results are compared with these.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "base/error.h"
#include "ops/kernels/cpu/kernels.h"
#include "ops/kernels/pack.h"
#include "ops/kernels/wire_block.h"
#include "tests/ops/kernels/cpu/reference.h"
#include "tests/ops/support/reference.h"

namespace chainmail::ops {
namespace {

constexpr DataType kFloats[] = {DataType::kFloat16, DataType::kBFloat16, DataType::kFloat32,
                                DataType::kFloat64};

bool is_nan_half(std::uint16_t half, WireFormat wire) {
  return (half & 0x7fffU) > (wire == WireFormat::kFloat16 ? 0x7c00U : 0x7f80U);
}

DataType type_of(WireFormat wire) {
  return wire == WireFormat::kFloat16 ? DataType::kFloat16 : DataType::kBFloat16;
}

TEST(Convert, RoundsToNearestEven) {
  // Every exponent, with mantissas around every tie that 16 bits can have.
  std::vector<float> values;
  for (std::uint32_t high = 0; high < 0x10000; ++high) {
    for (const std::uint32_t low :
         {0x0U, 0x1U, 0x0fffU, 0x1000U, 0x1001U, 0x7fffU, 0x8000U, 0x8001U, 0xffffU}) {
      values.push_back(std::bit_cast<float>(high << 16U | low));
    }
  }
  for (const WireFormat wire : {WireFormat::kFloat16, WireFormat::kBFloat16}) {
    for (const double scale : {1.0, 1.0 / 3}) {
      std::vector<std::uint16_t> expected(values.size());
      std::vector<std::uint16_t> got(values.size());
      bool expected_flag = false;
      for (std::size_t i = 0; i < values.size(); ++i) {
        const float product = values[i] * static_cast<float>(scale);
        expected[i] = reference::encode(reference::format_of(type_of(wire)), double{product});
        expected_flag |=
            !std::isfinite(reference::decode(reference::format_of(type_of(wire)), expected[i]));
      }
      EXPECT_EQ(convert(got.data(), type_of(wire), values.data(), DataType::kFloat32, values.size(),
                        scale),
                expected_flag);
      for (std::size_t i = 0; i < values.size(); ++i) {
        if (is_nan_half(expected[i], wire)) {
          ASSERT_EQ(got[i], 0x7fff);
        } else {
          ASSERT_EQ(got[i], expected[i]) << values[i] << " * " << scale;
        }
      }
    }
  }
}

TEST(Convert, WidensEveryHalf) {
  for (const WireFormat wire : {WireFormat::kFloat16, WireFormat::kBFloat16}) {
    for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
      const auto half = static_cast<std::uint16_t>(bits);
      const auto expected =
          static_cast<float>(reference::decode(reference::format_of(type_of(wire)), half));
      float got = 0;
      double got_double = 0;
      static_cast<void>(convert(&got, DataType::kFloat32, &half, type_of(wire), 1, 1.0));
      static_cast<void>(convert(&got_double, DataType::kFloat64, &half, type_of(wire), 1, 1.0));
      if (is_nan_half(half, wire)) {
        ASSERT_EQ(std::bit_cast<std::uint32_t>(got), 0x7fffffffU);
        ASSERT_TRUE(std::isnan(got_double));
      } else {
        ASSERT_EQ(std::bit_cast<std::uint32_t>(got), std::bit_cast<std::uint32_t>(expected));
        ASSERT_EQ(got_double, static_cast<double>(expected));
      }
    }
  }
}

TEST(Convert, RoundsDoublesOnce) {
  // 1 + 2^-11 + 2^-40: rounding to float32 first would make it a tie, and the tie even.
  const double value = 1 + std::ldexp(1, -11) + std::ldexp(1, -40);
  std::uint16_t half = 0;
  EXPECT_FALSE(convert(&half, DataType::kFloat16, &value, DataType::kFloat64, 1, 1.0));
  EXPECT_EQ(half, 0x3c01);
  const double below = -(1 + 3 * std::ldexp(1, -11) - std::ldexp(1, -40));
  EXPECT_FALSE(convert(&half, DataType::kFloat16, &below, DataType::kFloat64, 1, 1.0));
  EXPECT_EQ(half, 0xbc01);
}

// A row of messages as GPUs have it holds what the CPU's messages do, and adds up to the same.
TEST(Parts, MatchTheWiresSteps) {
  constexpr std::size_t kPart = 768;
  constexpr int kMessages = 5;
  for (const WireFormat wire : {WireFormat::kFloat16, WireFormat::kBFloat16}) {
    for (const std::size_t count : {0U, 1U, 255U, 256U, 700U, 768U}) {
      const std::size_t stride = wire_stride(kPart);
      std::vector<std::byte> row(stride * kMessages);
      std::vector<std::vector<std::byte>> messages;
      std::vector<const std::byte*> pointers;
      for (std::size_t r = 0; r < kMessages; ++r) {
        std::vector<float> values(count);
        for (std::size_t i = 0; i < count; ++i) {
          values[i] = static_cast<float>(std::sin(static_cast<double>(i + r)) *
                                         std::pow(2.0, double(i % 20) - 10 + 20 * double(r)));
        }
        round_parts(row.data() + r * stride, kPart, values.data(), count, 0.2, wire);
        messages.emplace_back(wire_size(count));
        EXPECT_FALSE(round_to_wire(messages.back().data(),
                                   reinterpret_cast<const std::byte*>(values.data()), count, 0.2,
                                   wire));
      }
      for (const auto& message : messages) pointers.push_back(message.data());
      std::vector<std::byte> sum(count * sizeof(float));
      sum_from_wire(sum.data(), pointers, count, wire);
      std::vector<std::byte> rounded(wire_size(count));
      EXPECT_FALSE(round_to_wire(rounded.data(), sum.data(), count, 1.0, wire));
      widen_from_wire(sum.data(), rounded.data(), count, wire);
      // The own message lies elsewhere, and the result on top of it.
      const auto at = [&](std::size_t r) { return row.begin() + static_cast<long>(r * stride); };
      std::vector<std::byte> own(at(2), at(3));
      std::fill(at(2), at(3), std::byte{0x7f});
      add_parts(own.data(), row.data(), kPart, kMessages, 2, own.data(), count, wire, false);
      std::vector<std::byte> widened(sum.size());
      EXPECT_FALSE(widen_parts(widened.data(), own.data(), kPart, count, wire));
      EXPECT_EQ(widened, sum) << count;
    }
    // Several messages in a row, the last of them short.
    std::vector<float> values(2000);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i) * 100;
    std::vector<std::byte> row(3 * wire_stride(kPart));
    round_parts(row.data(), kPart, values.data(), values.size(), 1.0, wire);
    std::vector<float> got(values.size());
    EXPECT_FALSE(widen_parts(got.data(), row.data(), kPart, got.size(), wire));
    for (std::size_t i = 0; i < got.size(); ++i) {
      ASSERT_NEAR(got[i], values[i], values[i] * (wire == WireFormat::kFloat16 ? 5e-4 : 4e-3));
    }
    got[1999] = std::numeric_limits<float>::infinity();
    round_parts(row.data(), kPart, got.data(), got.size(), 1.0, wire);
    EXPECT_TRUE(widen_parts(got.data(), row.data(), kPart, got.size(), wire));
    EXPECT_TRUE(std::isinf(got[1999]));
  }
}

TEST(Pack, PutsTensorsOfAllTypesInPlaceAndBack) {
  for (const DataType buffer_type : kFloats) {
    std::vector<std::vector<std::byte>> storage;
    std::vector<PackedTensor> tensors;
    std::size_t offset = 3;  // nothing begins where vectors would
    for (const DataType type : kFloats) {
      for (const std::size_t count : {0U, 1U, 17U, 8192U, 20001U}) {
        storage.emplace_back(count * size_of(type) + 1);
        std::byte* data = storage.back().data() + 1;
        for (std::size_t i = 0; i < count; ++i) {
          test::set_element(data, type, i, static_cast<double>(i % 97) - 48);
        }
        tensors.push_back({data, type, count, offset});
        offset += count + 1;
      }
    }
    const auto blocks = plan_pack(tensors);
    std::vector<std::byte> buffer(offset * size_of(buffer_type));
    EXPECT_FALSE(pack(blocks, buffer.data(), buffer_type, 0.5));
    for (const PackedTensor& tensor : tensors) {
      for (std::size_t i = 0; i < tensor.count; ++i) {
        ASSERT_EQ(test::get_element(buffer.data(), buffer_type, tensor.offset + i),
                  (static_cast<double>(i % 97) - 48) / 2);
      }
    }
    EXPECT_FALSE(unpack(blocks, buffer.data(), buffer_type, 4.0));
    for (const PackedTensor& tensor : tensors) {
      for (std::size_t i = 0; i < tensor.count; ++i) {
        ASSERT_EQ(test::get_element(static_cast<std::byte*>(tensor.data), tensor.type, i),
                  (static_cast<double>(i % 97) - 48) * 2);
      }
    }
  }
}

TEST(Pack, TellsOfOverflowAndNan) {
  float values[3] = {1, 70000, 2};
  const std::vector<PackedTensor> tensors = {{values, DataType::kFloat32, 3, 0}};
  const auto blocks = plan_pack(tensors);
  std::uint16_t halves[3];
  EXPECT_TRUE(pack(blocks, halves, DataType::kFloat16, 1.0));
  EXPECT_FALSE(pack(blocks, halves, DataType::kFloat16, 0.5));
  EXPECT_FALSE(pack(blocks, halves, DataType::kBFloat16, 1.0));
  values[1] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(pack(blocks, halves, DataType::kBFloat16, 1.0));
  EXPECT_EQ(halves[1], 0x7fff);
}

TEST(Pack, RefusesWhatIsNotFloatingPoint) {
  int value = 1;
  const std::vector<PackedTensor> tensors = {{&value, DataType::kInt32, 1, 0}};
  EXPECT_THROW(static_cast<void>(plan_pack(tensors)), InvalidArgument);
  const std::vector<PackedTensor> null = {{nullptr, DataType::kFloat32, 1, 0}};
  EXPECT_THROW(static_cast<void>(plan_pack(null)), InvalidArgument);
}

}  // namespace
}  // namespace chainmail::ops
