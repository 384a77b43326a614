// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The table of tensors and its walk on the CPU, against the kernels that the CPU engine rounds
// with: the GPU's results are compared with these.

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "base/error.h"
#include "ops/kernels/cpu/kernels.h"
#include "ops/kernels/pack.h"
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

TEST(Convert, RoundsAsTheWireDoes) {
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
      const bool expected_flag = round_to_wire(reinterpret_cast<std::byte*>(expected.data()),
                                               reinterpret_cast<const std::byte*>(values.data()),
                                               values.size(), DataType::kFloat32, scale, wire);
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
      float expected = 0;
      widen_from_wire(reinterpret_cast<std::byte*>(&expected),
                      reinterpret_cast<const std::byte*>(&half), 1, DataType::kFloat32, wire);
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

TEST(AddHalves, MatchesTheWiresSteps) {
  constexpr std::size_t kCount = 1000;
  constexpr std::size_t kStride = 1008;
  constexpr int kParts = 5;
  for (const WireFormat wire : {WireFormat::kFloat16, WireFormat::kBFloat16}) {
    for (const bool is_double : {false, true}) {
      const DataType type = is_double ? DataType::kFloat64 : DataType::kFloat32;
      std::vector<std::uint16_t> parts(kStride * kParts);
      for (std::size_t i = 0; i < parts.size(); ++i) {
        const double value = std::sin(static_cast<double>(i)) * std::pow(2.0, double(i % 20) - 10);
        parts[i] = wire == WireFormat::kFloat16 ? test::double_to_half(value)
                                                : test::double_to_bfloat16(value);
      }
      std::vector<std::byte> sum(kCount * 8);
      widen_from_wire(sum.data(), reinterpret_cast<std::byte*>(parts.data()), kCount, type, wire);
      for (std::size_t r = 1; r < kParts; ++r) {
        accumulate_from_wire(sum.data(), reinterpret_cast<std::byte*>(&parts[r * kStride]), kCount,
                             type, wire);
      }
      std::vector<std::uint16_t> expected(kCount);
      static_cast<void>(round_to_wire(reinterpret_cast<std::byte*>(expected.data()), sum.data(),
                                      kCount, type, 1.0, wire));
      // The own part lies elsewhere, and the result on top of it.
      std::vector<std::uint16_t> own(parts.begin() + 2 * kStride, parts.begin() + 3 * kStride);
      std::fill(parts.begin() + 2 * kStride, parts.begin() + 3 * kStride, std::uint16_t{0x7fff});
      add_halves(own.data(), parts.data(), kStride, kParts, 2, own.data(), kCount, wire, is_double);
      own.resize(kCount);
      EXPECT_EQ(own, expected);
    }
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
