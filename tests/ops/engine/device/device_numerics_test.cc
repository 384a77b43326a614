// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Bytes between nodes and numerics of the 16-bit wire, on a fake NCCL that counts and records.

#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/ops/engine/device/device_world.h"

namespace chainmail::ops {
namespace {

using test::DeviceRank;
using test::DeviceWorld;

std::byte* bytes_of(std::vector<float>& data) { return reinterpret_cast<std::byte*>(data.data()); }

struct Way {
  std::vector<int> nodes;
  Algorithm algorithm = Algorithm::kFlat;
  WireFormat wire = WireFormat::kNative;
};

/// The most bytes that any node sends to others in one all-reduce of `count` float32.
std::size_t most_bytes_out(const Way& way, std::size_t count) {
  GroupOptions options;
  options.algorithm = way.algorithm;
  options.wire = way.wire;
  DeviceGroupOptions device;
  device.chunk_bytes = std::size_t{64} << 10;
  DeviceWorld world(way.nodes, options, device);
  world.run_ok([&](DeviceRank& rank) {
    std::vector<float> data(count, 1.0F);
    rank.all_reduce({}, bytes_of(data), count);
    EXPECT_EQ(data.back(), static_cast<float>(world.size()));
  });
  std::size_t most = 0;
  for (std::size_t node = 0; node < way.nodes.size(); ++node) {
    most = std::max(most, world.cluster().bytes_out_of(static_cast<int>(node)));
  }
  return most;
}

TEST(DeviceBytes, HierarchicalStaysBelowTwoTensorsAndHalvesWithTheWire) {
  constexpr std::size_t kCount = 100000;
  constexpr double kTensor = kCount * sizeof(float);
  for (const std::vector<int>& nodes :
       {std::vector<int>{2, 2}, {4, 4}, {3, 1}, {2, 2, 2, 2}, {3, 2, 3}}) {
    const auto n = static_cast<double>(nodes.size());
    const double bound = 2 * kTensor * (n - 1) / n;
    int ranks = 0;
    for (const int size : nodes) ranks += size;
    for (const Algorithm algorithm : {Algorithm::kHierarchical, Algorithm::kTwoDimensional}) {
      // Chunks end where parts would not be whole: some elements per chunk and node.
      const double rest = 32 * n * n * 16 * kTensor / (64 << 10);
      const auto native = static_cast<double>(most_bytes_out({nodes, algorithm}, kCount));
      EXPECT_LE(native, bound * 1.0001) << to_string(algorithm);
      EXPECT_GE(native, bound * 0.99) << to_string(algorithm);
      const auto halves =
          static_cast<double>(most_bytes_out({nodes, algorithm, WireFormat::kFloat16}, kCount));
      EXPECT_LE(halves, bound / 2 + rest) << to_string(algorithm);
      EXPECT_LE(halves, bound * 0.52) << to_string(algorithm);
    }
    // A ring over all ranks, numbered node by node.
    const auto flat = static_cast<double>(most_bytes_out({nodes, Algorithm::kFlat}, kCount));
    EXPECT_NEAR(flat, 2 * kTensor * (ranks - 1) / ranks, kTensor * 0.001);
    EXPECT_GT(flat, bound);
  }
}

// Which type NCCL is given, for every model's type and option (what the wire really is).
TEST(DeviceWire, IsWhatTheOptionSays) {
  struct Row {
    DataType dtype;
    WireFormat wire;
    const char* flat;   // of NCCL's all_reduce in pure_nccl
    const char* cross;  // of what goes between the nodes in hierarchical
  };
  for (const Row& row :
       {Row{DataType::kFloat32, WireFormat::kNative, "float32", "all_reduce 64 float32"},
        Row{DataType::kFloat32, WireFormat::kFloat16, "float16", "send 64 uint8"},
        Row{DataType::kFloat32, WireFormat::kBFloat16, "bfloat16", "send 64 uint8"},
        Row{DataType::kFloat64, WireFormat::kNative, "float64", "all_reduce 64 float64"},
        Row{DataType::kFloat64, WireFormat::kFloat16, "float16", "send 64 uint8"},
        Row{DataType::kFloat16, WireFormat::kNative, "float16", "all_reduce 64 float16"},
        Row{DataType::kFloat16, WireFormat::kBFloat16, "float16", "all_reduce 64 float16"},
        Row{DataType::kBFloat16, WireFormat::kFloat16, "bfloat16", "all_reduce 64 bfloat16"}}) {
    SCOPED_TRACE(std::string(to_string(row.dtype)) + " " + to_string(row.wire));
    GroupOptions options;
    options.wire = row.wire;
    DeviceWorld world({1, 1}, options);
    world.run_ok([&](DeviceRank& rank) {
      std::vector<std::byte> data(64 * size_of(row.dtype));
      Collective collective;
      collective.dtype = row.dtype;
      for (const Algorithm algorithm : {Algorithm::kFlat, Algorithm::kHierarchical}) {
        collective.algorithm = algorithm;
        rank.all_reduce(collective, data.data(), 64);
      }
    });
    auto log = world.library(0).nccl().log();
    EXPECT_EQ(log["world/flat"].at(0).find(std::string("all_reduce 64 ") + row.flat + " "), 0U)
        << log["world/flat"].at(0);
    EXPECT_EQ(log["world/cross/0"].at(0).find(row.cross), 0U) << log["world/cross/0"].at(0);
  }
}

// Sums of 16-bit halves overflow where every rank has a quarter of the largest half and there are
// five; means do not, since contributions are scaled first.
TEST(DeviceWire, MeansNearTheLargestHalfDoNotOverflow) {
  const std::vector<int> nodes = {3, 2};
  for (const Algorithm algorithm :
       {Algorithm::kFlat, Algorithm::kHierarchical, Algorithm::kTwoDimensional}) {
    SCOPED_TRACE(to_string(algorithm));
    GroupOptions options;
    options.algorithm = algorithm;
    options.wire = WireFormat::kFloat16;
    DeviceWorld world(nodes, options);
    world.run_ok([&](DeviceRank& rank) {
      Collective mean;
      mean.reduce_op = ReduceOp::kAvg;
      std::vector<float> data(1000, 65000.0F);
      const auto fine = rank.all_reduce(mean, bytes_of(data), data.size());
      EXPECT_FALSE(fine->has_nonfinite());
      EXPECT_NEAR(data[7], 65000.0F, 65000.0F / 1000);
      // A sum that has no half is infinite, and all ranks are told.
      std::vector<float> large(1000, 1.0F);
      large[999] = 65000.0F;
      Collective sum;
      const auto overflown = rank.all_reduce(sum, bytes_of(large), large.size());
      EXPECT_TRUE(overflown->has_nonfinite()) << "rank " << rank.rank;
      EXPECT_TRUE(std::isinf(large[999]));
      EXPECT_EQ(large[0], 5.0F);
    });
  }
}

TEST(DeviceWire, ANanOnOneRankIsToldToAll) {
  GroupOptions options;
  options.algorithm = Algorithm::kTwoDimensional;
  options.wire = WireFormat::kBFloat16;
  DeviceWorld world({2, 2}, options);
  world.run_ok([&](DeviceRank& rank) {
    std::vector<float> data(5000, 1.0F);
    if (rank.rank == 1) data[4000] = std::numeric_limits<float>::quiet_NaN();
    EXPECT_TRUE(rank.all_reduce({}, bytes_of(data), data.size())->has_nonfinite());
    EXPECT_TRUE(std::isnan(data[4000]));
    EXPECT_EQ(data[3999], 4.0F);
  });
}

// Two roundings, whatever the number of ranks: 2^-11 each of the largest term.
TEST(DeviceWire, ErrsByTwoRoundings) {
  for (const std::vector<int>& nodes : {std::vector<int>{1, 1}, {4, 4}, {1, 1, 1, 1, 1, 1, 1, 1}}) {
    for (const Algorithm algorithm : {Algorithm::kHierarchical, Algorithm::kTwoDimensional}) {
      GroupOptions options;
      options.algorithm = algorithm;
      options.wire = WireFormat::kFloat16;
      DeviceWorld world(nodes, options);
      const int ranks = world.size();
      const auto value = [](int rank, std::size_t i) {
        return static_cast<float>(std::sin(static_cast<double>(i) * 0.7 + rank)) * 100.0F;
      };
      world.run_ok([&](DeviceRank& rank) {
        std::vector<float> data(4000);
        for (std::size_t i = 0; i < data.size(); ++i) data[i] = value(rank.rank, i);
        Collective mean;
        mean.reduce_op = ReduceOp::kAvg;
        EXPECT_FALSE(rank.all_reduce(mean, bytes_of(data), data.size())->has_nonfinite());
        for (std::size_t i = 0; i < data.size(); ++i) {
          double exact = 0;
          double largest = 0;
          for (int r = 0; r < ranks; ++r) {
            exact += static_cast<double>(value(r, i)) / ranks;
            largest = std::max(largest, std::abs(static_cast<double>(value(r, i))));
          }
          ASSERT_LE(std::abs(static_cast<double>(data[i]) - exact), 1.1e-3 * largest + 1e-6);
        }
      });
    }
  }
}

// The cross step of very many ranks: only its kernels, since a thousand threads are too many. What
// a node sends is its float32 sum times 1/n, rounded once; the owner adds the nodes in float32.
TEST(DeviceWire, AThousandRanksErrByTwoRoundingsAndDoNotOverflow) {
  constexpr std::size_t kRanks = 1024;
  constexpr std::size_t kCount = 300;
  const auto value = [](std::size_t rank, std::size_t i) {
    // Every third element is 100 on all ranks, whose sum no half can hold.
    return i % 3 == 0
               ? 100.0F
               : static_cast<float>(std::sin(static_cast<double>(i * kRanks + rank))) * 100.0F;
  };
  const auto cluster = std::make_shared<test::FakeCluster>(std::vector<int>{0}, 1);
  test::FakeLibrary library(cluster, 0);
  DeviceApi& device = library.device();
  DeviceStream stream;
  DeviceEvent end;
  ASSERT_EQ(device.create_stream(stream), kDeviceSuccess);
  ASSERT_EQ(device.create_event(end), kDeviceSuccess);
  for (const std::size_t nodes : {kRanks, std::size_t{128}, std::size_t{2}}) {
    SCOPED_TRACE(nodes);
    std::vector<float> sums(nodes * kCount);
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
      for (std::size_t i = 0; i < kCount; ++i) {
        sums[rank * nodes / kRanks * kCount + i] += value(rank, i);
      }
    }
    std::vector<std::uint16_t> halves(sums.size());
    std::vector<std::uint16_t> rounded(kCount);
    std::vector<float> mean(kCount);
    std::uint32_t flag = 0;
    DeviceKernels& kernels = device.kernels();
    kernels.convert(halves.data(), DataType::kFloat16, sums.data(), DataType::kFloat32, sums.size(),
                    1.0 / kRanks, &flag, stream);
    kernels.add_halves(rounded.data(), halves.data(), kCount, static_cast<int>(nodes), 0,
                       halves.data(), kCount, WireFormat::kFloat16, false, stream);
    kernels.convert(mean.data(), DataType::kFloat32, rounded.data(), DataType::kFloat16, kCount,
                    1.0, &flag, stream);
    ASSERT_EQ(device.record(end, stream), kDeviceSuccess);
    for (int i = 0; i < 1000 && device.query(end) == kDeviceNotReady; ++i) {
    }
    ASSERT_EQ(device.query(end), kDeviceSuccess);
    EXPECT_EQ(flag, 0U) << "nothing became infinite";
    for (std::size_t i = 0; i < kCount; ++i) {
      double exact = 0;
      for (std::size_t rank = 0; rank < kRanks; ++rank) {
        exact += static_cast<double>(value(rank, i)) / kRanks;
      }
      ASSERT_LE(std::abs(static_cast<double>(mean[i]) - exact), 1.1e-3 * 100) << "element " << i;
    }
    EXPECT_NEAR(mean[0], 100.0F, 1.1e-3 * 100);
  }
  device.destroy_event(end);
  device.destroy_stream(stream);
}

}  // namespace
}  // namespace chainmail::ops
