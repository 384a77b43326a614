// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What is measured is what was asked for: on the CPU, and through the calls that a GPU gets.

#include "tools/bench/device/kernel_place.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "ops/kernels/wire_block.h"
#include "tests/ops/support/fake_gpu/fake_nccl.h"

namespace chainmail::bench {
namespace {

using ops::DataType;

constexpr std::uint16_t kOne = 0x3c00;  // in float16
constexpr std::uint16_t kTwo = 0x4000;

/// Packs two tensors with a gap between them, and unpacks them again; `run` lets a stream end.
void pack_and_unpack(KernelPlace& place, ops::DeviceStream stream,
                     const std::function<void()>& run) {
  std::vector<float> first(5, 2.0F);
  std::vector<float> second(9000, 4.0F);
  const std::array<ops::PackedTensor, 2> tensors{
      ops::PackedTensor{first.data(), DataType::kFloat32, first.size(), 0},
      ops::PackedTensor{second.data(), DataType::kFloat32, second.size(), 8}};
  const auto table = place.make_pack(tensors);
  std::vector<std::uint16_t> buffer(9008, 0xffff);
  std::uint32_t flag = 0;
  table->pack(buffer.data(), DataType::kFloat16, 0.5, &flag, stream);
  run();
  EXPECT_EQ(buffer[4], kOne);
  EXPECT_EQ(buffer[5], 0xffff) << "nobody's";
  EXPECT_EQ(buffer[8], kTwo);
  EXPECT_EQ(buffer[9007], kTwo);
  EXPECT_EQ(flag, 0U);
  buffer[0] = 0x7c00;  // infinity
  table->unpack(buffer.data(), DataType::kFloat16, 1.0, &flag, stream);
  run();
  EXPECT_EQ(first[1], 1.0F);
  EXPECT_EQ(second[8999], 2.0F);
  EXPECT_EQ(flag, 1U);
}

void add(KernelPlace& place, ops::DeviceStream stream, const std::function<void()>& run) {
  constexpr std::size_t kCount = 3;
  constexpr std::size_t kPart = ops::kWireBlock;
  constexpr std::size_t kHalves = ops::wire_stride(kPart) / 2;
  const auto message = [](std::uint16_t half) {
    std::vector<std::uint16_t> halves(kHalves, 0);  // the factor is 2^0
    std::fill_n(halves.begin(), kPart, half);
    return halves;
  };
  const std::vector<std::uint16_t> parts = message(kTwo);
  const std::vector<std::uint16_t> own = message(kOne);
  std::vector<std::uint16_t> result(kHalves, 0);
  place.add_parts(result.data(), parts.data(), kPart, 2, 1, own.data(), kCount,
                  ops::WireFormat::kFloat16, stream);
  run();
  EXPECT_EQ(result[0], 0x7a00) << "3 * 2^14";
  EXPECT_EQ(result[kCount], 0);
  EXPECT_EQ(result[kPart] & 0xffU, 14U);
}

TEST(KernelPlace, OfTheHost) {
  const auto place = make_host_place();
  pack_and_unpack(*place, {}, [] {});
  add(*place, {}, [] {});
}

TEST(KernelPlace, OfADevice) {
  const auto cluster = std::make_shared<test::FakeCluster>(std::vector<int>{0}, 1U);
  test::FakeLibrary library(cluster, 0);
  ops::DeviceStream stream;
  ASSERT_EQ(library.device().create_stream(stream), ops::kDeviceSuccess);
  const auto run = [&] {
    const std::lock_guard lock(cluster->machine->mutex());
    cluster->machine->pump();
  };
  const auto place = make_device_place(library, 0);
  pack_and_unpack(*place, stream, run);
  add(*place, stream, run);
  library.device().destroy_stream(stream);
}

}  // namespace
}  // namespace chainmail::bench
