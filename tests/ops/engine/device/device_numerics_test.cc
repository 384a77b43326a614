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

#include "ops/kernels/wire_block.h"
#include "tests/ops/engine/device/device_world.h"
#include "tests/ops/support/tolerance.h"

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
    Collective sum;
    sum.wire = way.wire;
    rank.all_reduce(sum, bytes_of(data), count);
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
        // A message of a block of 256: halves, a factor, and what it takes to fill 16 bytes.
        Row{DataType::kFloat32, WireFormat::kFloat16, "float16", "recv 528 uint8"},
        Row{DataType::kFloat32, WireFormat::kBFloat16, "bfloat16", "recv 528 uint8"},
        Row{DataType::kFloat64, WireFormat::kNative, "float64", "all_reduce 64 float64"},
        Row{DataType::kFloat64, WireFormat::kFloat16, "float64", "all_reduce 64 float64"},
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
      collective.reduce_op = ReduceOp::kAvg;
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

// A group's wire is for means; a call's for sums of float32, too. What auto makes flat stays as it
// is: too small to be worth a rounding.
TEST(DeviceWire, SumsAreRoundedOnlyWhereACallAsksForIt) {
  GroupOptions options;
  options.wire = WireFormat::kFloat16;
  DeviceWorld world({2, 2}, options);
  const float value = 1.0F + 1e-5F;  // not a float16
  world.run_ok([&](DeviceRank& rank) {
    const auto reduced = [&](const Collective& what, std::size_t count) {
      std::vector<float> data(count, value);
      rank.all_reduce(what, bytes_of(data), count);
      return data[count / 2];
    };
    constexpr std::size_t kLong = 100000;
    Collective sum;
    EXPECT_EQ(reduced(sum, kLong), 4 * value);
    Collective mean;
    mean.reduce_op = ReduceOp::kAvg;
    EXPECT_EQ(reduced(mean, kLong), 1.0F);
    EXPECT_NEAR(reduced(mean, 10), value, 1e-7F);
    sum.wire = WireFormat::kFloat16;
    EXPECT_EQ(reduced(sum, kLong), 4.0F);
  });
}

// What a plain rounding would make infinite or zero, and what stays infinite.
TEST(DeviceWire, NothingFiniteIsLostBetweenTheNodes) {
  for (const std::vector<int>& nodes : {std::vector<int>{1, 1}, {2, 2}, {3, 1}, {1, 1, 1}}) {
    for (const WireFormat wire : {WireFormat::kFloat16, WireFormat::kBFloat16}) {
      for (const Algorithm algorithm : {Algorithm::kHierarchical, Algorithm::kTwoDimensional}) {
        for (const float value : {70000.0F, 1e-7F, 3e-8F, 1e30F, 1e-39F, 8e37F}) {
          SCOPED_TRACE(std::to_string(value) + " " + to_string(wire) + " " + to_string(algorithm));
          GroupOptions options;
          options.algorithm = algorithm;
          options.wire = wire;
          DeviceWorld world(nodes, options);
          std::vector<std::vector<float>> results(static_cast<std::size_t>(world.size()));
          world.run_ok([&](DeviceRank& rank) {
            std::vector<float> data(3000, value);
            Collective mean;
            mean.reduce_op = ReduceOp::kAvg;
            EXPECT_FALSE(rank.all_reduce(mean, bytes_of(data), data.size())->has_nonfinite());
            results[static_cast<std::size_t>(rank.rank)] = data;
          });
          for (const auto& result : results) EXPECT_EQ(result, results[0]);
          const double allowed =
              test::sum_tolerance(DataType::kFloat32, wire, world.size(), double{value}) +
              test::block_tolerance(wire, world.size(), double{value});
          for (const float element : results[0]) ASSERT_NEAR(element, value, allowed);
        }
      }
    }
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
      // A sum that has no half is infinite where NCCL adds halves, and all ranks are told.
      std::vector<float> large(1000, 1.0F);
      large[999] = 65000.0F;
      Collective sum;
      sum.wire = WireFormat::kFloat16;
      const auto overflown = rank.all_reduce(sum, bytes_of(large), large.size());
      const bool is_flat = algorithm == Algorithm::kFlat;
      EXPECT_EQ(overflown->has_nonfinite(), is_flat) << "rank " << rank.rank;
      EXPECT_EQ(std::isinf(large[999]), is_flat);
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
    Collective sum;
    sum.wire = WireFormat::kBFloat16;
    EXPECT_TRUE(rank.all_reduce(sum, bytes_of(data), data.size())->has_nonfinite());
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
    constexpr std::size_t kPart = 2 * kWireBlock;
    std::vector<std::byte> messages(nodes * wire_stride(kPart));
    std::vector<std::byte> rounded(wire_stride(kPart));
    std::vector<float> mean(kCount);
    std::uint32_t flag = 0;
    DeviceKernels& kernels = device.kernels();
    for (std::size_t node = 0; node < nodes; ++node) {
      kernels.round_parts(messages.data() + node * wire_stride(kPart), kPart,
                          sums.data() + node * kCount, kCount, 1.0 / kRanks, WireFormat::kFloat16,
                          stream);
    }
    kernels.add_parts(rounded.data(), messages.data(), kPart, static_cast<int>(nodes), 0,
                      messages.data(), kCount, WireFormat::kFloat16, true, stream);
    kernels.widen_parts(mean.data(), rounded.data(), kPart, kCount, WireFormat::kFloat16, &flag,
                        stream);
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
