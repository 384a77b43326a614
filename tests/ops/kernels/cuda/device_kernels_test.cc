// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The GPU's kernels against the CPU's, bit for bit: every pairing of types, tails, misaligned
// starts, special values. Skipped where libchainmail_cuda.so finds no device.

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <iostream>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "base/error.h"
#include "ops/device/device_memory.h"
#include "ops/device_library/device_library.h"
#include "ops/kernels/cpu/kernels.h"
#include "ops/kernels/pack.h"
#include "ops/kernels/wire_block.h"

namespace chainmail::ops {
namespace {

constexpr DataType kFloats[] = {DataType::kFloat16, DataType::kBFloat16, DataType::kFloat32,
                                DataType::kFloat64};
constexpr std::size_t kCounts[] = {1, 7, 8, 31, 257, 8191, 8192, 8193, 100003};

class DeviceKernelsTest : public testing::Test {
 protected:
  void SetUp() override {
    try {
      library_ = &open_device_library();
    } catch (const InvalidArgument& error) {
      // ctest looks for this line: the test counts as skipped, not as passed.
      std::cout << "skipped: " << error.what() << std::endl;
      GTEST_SKIP() << error.what();
    }
    guard_ = std::make_unique<DeviceGuard>(api(), 0);
    check_device(api(), api().create_stream(stream_), "making a stream");
    events_ = std::make_unique<EventPool>(api());
  }
  void TearDown() override {
    free_memory();
    events_.reset();
    if (library_ != nullptr) api().destroy_stream(stream_);
  }

  void free_memory() {
    for (void* memory : memory_) api().free(memory);
    memory_.clear();
  }
  DeviceApi& api() { return library_->device(); }
  DeviceKernels& kernels() { return api().kernels(); }

  /// Device memory with these bytes at `shift` from an aligned place.
  std::byte* upload(const std::vector<std::byte>& bytes, std::size_t shift = 0) {
    void* memory = nullptr;
    check_device(api(), api().allocate(memory, bytes.size() + shift + 16), "allocating");
    memory_.push_back(memory);
    std::byte* const place = static_cast<std::byte*>(memory) + shift;
    check_device(api(), api().copy(place, bytes.data(), bytes.size(), stream_), "copying");
    wait();
    return place;
  }
  std::vector<std::byte> download(const std::byte* place, std::size_t size) {
    std::vector<std::byte> bytes(size);
    check_device(api(), api().copy(bytes.data(), place, size, stream_), "copying");
    wait();
    return bytes;
  }
  void wait() {
    const DeviceEvent event = events_->take();
    check_device(api(), api().record(event, stream_), "recording");
    DeviceCode code = kDeviceNotReady;
    while ((code = api().query(event)) == kDeviceNotReady) std::this_thread::yield();
    events_->give_back(event);
    check_device(api(), code, "a kernel");
  }

  void check_wire(WireFormat wire, std::size_t messages, std::size_t count, float size);

  DeviceLibrary* library_ = nullptr;
  DeviceStream stream_;
  std::unique_ptr<DeviceGuard> guard_;
  std::unique_ptr<EventPool> events_;
  std::vector<void*> memory_;
};

/// float32 of about this size: gradients' sums stay far from infinity, others' from what 16 bits
/// with a factor can say.
std::vector<std::byte> calm_elements(std::size_t count, unsigned seed, float size = 1e-3F) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0F, size);
  std::vector<std::byte> bytes(count * sizeof(float));
  for (std::size_t i = 0; i < count; ++i) {
    const float value = i % 97 == 0 ? 0.0F : normal(random);
    std::memcpy(bytes.data() + i * sizeof(float), &value, sizeof(float));
  }
  return bytes;
}

/// Any bits, as often as not near those that round in special ways.
std::vector<std::byte> random_elements(DataType type, std::size_t count, unsigned seed) {
  std::mt19937_64 random(seed);
  std::vector<std::byte> bytes(count * size_of(type));
  for (std::size_t i = 0; i < count; ++i) {
    std::uint64_t bits = random();
    if (type == DataType::kFloat32 && random() % 2 == 0) {
      // Exponents that 16 bits have, with what decides a tie cleared or set.
      bits = (bits & 0x807fe000U) | (100 + bits % 50) << 23U | (random() % 3 == 0 ? 0x1000U : 0U);
    }
    std::memcpy(bytes.data() + i * size_of(type), &bits, size_of(type));
  }
  return bytes;
}

TEST_F(DeviceKernelsTest, ConvertAsTheCpuDoes) {
  unsigned seed = 0;
  for (const DataType from : kFloats) {
    for (const DataType to : kFloats) {
      for (const std::size_t count : kCounts) {
        for (const std::size_t shift : {0U, 1U, 3U}) {
          for (const double scale : {1.0, 1.0 / 3}) {
            const auto source = random_elements(from, count, ++seed);
            std::vector<std::byte> expected(count * size_of(to));
            const bool expected_flag =
                convert(expected.data(), to, source.data(), from, count, scale);
            std::byte* const device_source = upload(source, shift * size_of(from));
            std::byte* const target = upload(expected, (3 - shift) * size_of(to));
            std::byte* const flag = upload(std::vector<std::byte>(4));
            ASSERT_EQ(kernels().convert(target, to, device_source, from, count, scale,
                                        reinterpret_cast<std::uint32_t*>(flag), stream_),
                      kDeviceSuccess);
            ASSERT_EQ(download(target, expected.size()), expected)
                << to_string(from) << " to " << to_string(to) << ", " << count << " at " << shift;
            ASSERT_EQ(download(flag, 4)[0] != std::byte{0}, expected_flag);
          }
        }
      }
      free_memory();
    }
  }
}

TEST_F(DeviceKernelsTest, PackAndUnpackAsTheCpuDoes) {
  for (const DataType buffer_type : kFloats) {
    std::vector<PackedTensor> host;
    std::vector<PackedTensor> device;
    std::vector<std::unique_ptr<std::vector<std::byte>>> storage;
    std::size_t offset = 3;
    unsigned seed = 100;
    for (const DataType type : kFloats) {
      for (const std::size_t count : kCounts) {
        storage.push_back(
            std::make_unique<std::vector<std::byte>>(random_elements(type, count, ++seed)));
        host.push_back({storage.back()->data(), type, count, offset});
        device.push_back({upload(*storage.back(), seed % 3 * size_of(type)), type, count, offset});
        offset += count + seed % 5;
      }
    }
    const auto host_blocks = plan_pack(host);
    const auto device_blocks = plan_pack(device);
    std::vector<std::byte> expected(offset * size_of(buffer_type));
    std::byte* const buffer = upload(expected);
    std::vector<std::byte> table(device_blocks.size() * sizeof(PackBlock));
    std::memcpy(table.data(), device_blocks.data(), table.size());
    const auto* const blocks = reinterpret_cast<const PackBlock*>(upload(table));

    static_cast<void>(pack(host_blocks, expected.data(), buffer_type, 0.2));
    ASSERT_EQ(
        kernels().pack(blocks, device_blocks.size(), buffer, buffer_type, 0.2, nullptr, stream_),
        kDeviceSuccess);
    ASSERT_EQ(download(buffer, expected.size()), expected) << to_string(buffer_type);

    static_cast<void>(unpack(host_blocks, expected.data(), buffer_type, 3.0));
    ASSERT_EQ(
        kernels().unpack(blocks, device_blocks.size(), buffer, buffer_type, 3.0, nullptr, stream_),
        kDeviceSuccess);
    for (std::size_t t = 0; t < host.size(); ++t) {
      ASSERT_EQ(download(static_cast<std::byte*>(device[t].data), storage[t]->size()), *storage[t])
          << "tensor " << t << " out of " << to_string(buffer_type);
    }
    free_memory();
  }
}

// One message of every rank, the last rank's own: rounded, added, widened. `size` 0: any bits.
void DeviceKernelsTest::check_wire(WireFormat wire, std::size_t messages, std::size_t count,
                                   float size) {
  constexpr std::size_t kPart = 100096;  // whole blocks
  const std::size_t stride = wire_stride(kPart);
  const int last = static_cast<int>(messages) - 1;
  const std::size_t length = std::min(count, kPart);
  const bool is_mean = count % 2 == 0;
  std::vector<std::byte> expected(stride * messages);
  std::byte* const row = upload(expected, count % 4 == 3 ? 2 : 0);  // no access of 16 bytes then
  for (std::size_t r = 0; r < messages; ++r) {
    const auto seed = static_cast<unsigned>(r);
    const auto values = size > 0 ? calm_elements(length, seed, size)
                                 : random_elements(DataType::kFloat32, length, seed);
    const std::size_t at = r * stride;
    round_parts(expected.data() + at, kPart, values.data(), length, 0.3, wire);
    ASSERT_EQ(kernels().round_parts(row + at, kPart, upload(values, r % 3 * 4), length, 0.3, wire,
                                    stream_),
              kDeviceSuccess);
  }
  ASSERT_EQ(download(row, expected.size()), expected) << "rounded";
  const std::size_t own = (messages - 1) * stride;
  add_parts(expected.data() + own, expected.data(), kPart, last + 1, last, expected.data() + own,
            length, wire, is_mean);
  ASSERT_EQ(kernels().add_parts(row + own, row, kPart, last + 1, last, row + own, length, wire,
                                is_mean, stream_),
            kDeviceSuccess);
  ASSERT_EQ(download(row, expected.size()), expected) << "added";
  std::vector<std::byte> wide(length * sizeof(float));
  static_cast<void>(widen_parts(wide.data(), expected.data() + own, kPart, length, wire));
  std::byte* const target = upload(std::vector<std::byte>(wide.size()), count % 2 * 4);
  ASSERT_EQ(kernels().widen_parts(target, row + own, kPart, length, wire, nullptr, stream_),
            kDeviceSuccess);
  ASSERT_EQ(download(target, wide.size()), wide) << "widened";
}

TEST_F(DeviceKernelsTest, RoundAddAndWidenPartsAsTheCpuDoes) {
  for (const WireFormat wire : {WireFormat::kFloat16, WireFormat::kBFloat16}) {
    for (const std::size_t messages : {1U, 2U, 4U, 5U, 9U}) {
      for (const std::size_t count : kCounts) {
        for (const float size : {0.0F, 1e-3F, 1e-36F}) {
          SCOPED_TRACE(std::string(to_string(wire)) + ", " + std::to_string(messages) +
                       " messages of " + std::to_string(count) + " of " + std::to_string(size));
          check_wire(wire, messages, count, size);
          if (HasFatalFailure()) return;
        }
      }
      free_memory();
    }
  }
}

// A tensor that is cut into a message for every node.
TEST_F(DeviceKernelsTest, RoundAndWidenARowOfMessagesAsTheCpuDoes) {
  constexpr std::size_t kParts[] = {256, 768, 8192};
  for (const WireFormat wire : {WireFormat::kFloat16, WireFormat::kBFloat16}) {
    for (const std::size_t part : kParts) {
      const std::size_t count = 5 * part - 100;
      const auto values = calm_elements(count, static_cast<unsigned>(part));
      std::vector<std::byte> expected(5 * wire_stride(part));
      std::byte* const row = upload(expected);
      round_parts(expected.data(), part, values.data(), count, 0.5, wire);
      ASSERT_EQ(kernels().round_parts(row, part, upload(values), count, 0.5, wire, stream_),
                kDeviceSuccess);
      ASSERT_EQ(download(row, expected.size()), expected) << to_string(wire) << " " << part;
      std::vector<std::byte> wide(count * sizeof(float));
      static_cast<void>(widen_parts(wide.data(), expected.data(), part, count, wire));
      std::byte* const target = upload(std::vector<std::byte>(wide.size()));
      ASSERT_EQ(kernels().widen_parts(target, row, part, count, wire, nullptr, stream_),
                kDeviceSuccess);
      ASSERT_EQ(download(target, wide.size()), wide) << to_string(wire) << " " << part;
      free_memory();
    }
  }
}

TEST_F(DeviceKernelsTest, DivideAsTheCpuDoes) {
  for (const DataType type :
       {DataType::kUInt8, DataType::kInt8, DataType::kInt16, DataType::kInt32, DataType::kInt64,
        DataType::kUInt16, DataType::kUInt32, DataType::kUInt64}) {
    auto expected = random_elements(type, 10007, 9);
    std::byte* const data = upload(expected);
    divide_in_place(expected.data(), 10007, type, 3);
    ASSERT_EQ(kernels().divide(data, type, 10007, 3, stream_), kDeviceSuccess);
    ASSERT_EQ(download(data, expected.size()), expected) << to_string(type);
  }
}

// More than 2^31 elements: the last ones are converted, too.
TEST_F(DeviceKernelsTest, MoreThanTwoToThe31) {
  const std::size_t count = (std::size_t{1} << 31U) + 11;
  void* memory = nullptr;
  if (api().allocate(memory, count * 2 + 64) != kDeviceSuccess) {
    GTEST_SKIP() << "the device has no " << count * 2 << " bytes free";
  }
  memory_.push_back(memory);
  auto* const data = static_cast<std::byte*>(memory);
  const std::vector<std::byte> half = {std::byte{0x00}, std::byte{0x40}};  // 2.0
  check_device(api(), api().copy(data + (count - 1) * 2, half.data(), 2, stream_), "copying");
  ASSERT_EQ(kernels().convert(data, DataType::kFloat16, data, DataType::kFloat16, count, 0.5,
                              nullptr, stream_),
            kDeviceSuccess);
  EXPECT_EQ(download(data + (count - 1) * 2, 2), (std::vector<std::byte>{{}, std::byte{0x3c}}));
}

}  // namespace
}  // namespace chainmail::ops
