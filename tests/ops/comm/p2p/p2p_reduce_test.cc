// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Reductions over messages against the scalar reference, on each transport.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <mutex>
#include <random>

#include "tests/ops/comm/rank_threads.h"
#include "tests/ops/kernels/cpu/reference.h"

namespace chainmail::ops {
namespace {

using testing::CommWorld;
using testing::Ops;
using testing::run_ranks;
using testing::Wire;
using Bytes = std::vector<std::byte>;

// Small integers: every sum and product of up to eight of them is exact in every type but int8,
// which wraps, so that any order of the operands gives these bits.
Bytes exact_input(int rank, std::size_t count, DataType type) {
  Bytes data(count * size_of(type));
  for (std::size_t i = 0; i < count; ++i) {
    const int value = static_cast<int>((i * 7 + static_cast<std::size_t>(rank) * 3) % 3) + 1;
    std::byte* to = data.data() + i * size_of(type);
    switch (type) {
      case DataType::kUInt8:
      case DataType::kInt8:
        reference::write(to, static_cast<std::int8_t>(value));
        break;
      case DataType::kInt16:
        reference::write(to, static_cast<std::int16_t>(value));
        break;
      case DataType::kInt32:
        reference::write(to, static_cast<std::int32_t>(value));
        break;
      case DataType::kInt64:
        reference::write(to, static_cast<std::int64_t>(value));
        break;
      case DataType::kUInt16:
        reference::write(to, static_cast<std::uint16_t>(value));
        break;
      case DataType::kUInt32:
        reference::write(to, static_cast<std::uint32_t>(value));
        break;
      case DataType::kUInt64:
        reference::write(to, static_cast<std::uint64_t>(value));
        break;
      case DataType::kBool:
        reference::write(to, static_cast<std::uint8_t>(value & 1));
        break;
      case DataType::kFloat16:
      case DataType::kBFloat16:
        reference::write(to, reference::encode(reference::format_of(type), value));
        break;
      case DataType::kFloat32:
        reference::write(to, static_cast<float>(value));
        break;
      case DataType::kFloat64:
        reference::write(to, static_cast<double>(value));
        break;
    }
  }
  return data;
}

Bytes random_floats(int rank, std::size_t count, DataType type = DataType::kFloat32) {
  std::mt19937 random(static_cast<unsigned>(rank) * 7919U + 1U);
  std::normal_distribution<double> normal;
  Bytes data(count * size_of(type));
  for (std::size_t i = 0; i < count; ++i) {
    const double value = normal(random);
    if (type == DataType::kFloat32) {
      reference::write(data.data() + i * 4, static_cast<float>(value));
    } else {
      reference::write(data.data() + i * 8, value);
    }
  }
  return data;
}

std::vector<const std::byte*> pointers(const std::vector<Bytes>& inputs) {
  std::vector<const std::byte*> result;
  for (const Bytes& input : inputs) result.push_back(input.data());
  return result;
}

Bytes expected(const std::vector<Bytes>& inputs, std::size_t count, const Reduction& reduction) {
  Bytes result(count * size_of(reduction.dtype));
  const auto sources = pointers(inputs);
  const bool divides = reduction.op == ReduceOp::kAvg && !is_floating_point(reduction.dtype) &&
                       reduction.dtype != DataType::kBool;
  for (std::size_t i = 0; i < count; ++i) {
    std::byte* to = result.data() + i * size_of(reduction.dtype);
    reference::reduce_element(to, sources.data(), sources.size(), i, reduction.dtype, reduction.op,
                              reduction.scale);
    if (!divides) continue;
    const auto size = static_cast<int>(inputs.size());
    // int32 stands for all integers here: the kernels' own tests go through the others.
    if (reduction.dtype == DataType::kInt32) {
      reference::write(to, reference::read<std::int32_t>(to) / size);
    }
  }
  return result;
}

// One rank's results in the order of the operations.
using Results = std::vector<Bytes>;

struct Case {
  std::size_t count;
  Reduction reduction;
};

void check_cases(CommWorld& world, const std::vector<Case>& cases) {
  const auto size = static_cast<std::size_t>(world.size);
  std::vector<Results> results(size);
  run_ranks(world.size, [&](int rank) {
    const auto comm = world.make(rank);
    Ops ops;
    for (const Case& one : cases) {
      Bytes data = exact_input(rank, one.count, one.reduction.dtype);
      comm->all_reduce(
          data.data(), one.count, one.reduction,
          ops.next(OpKind::kAllReduce, one.count, one.reduction.dtype, one.reduction.op));
      results[static_cast<std::size_t>(rank)].push_back(std::move(data));
    }
    // To one rank: the same there, and the others keep what they have.
    for (std::size_t c = 0; c < cases.size(); ++c) {
      const auto& [count, reduction] = cases[c];
      const int root = static_cast<int>(c) % world.size;
      const Bytes input = exact_input(rank, count, reduction.dtype);
      Bytes data = input;
      comm->reduce(data.data(), count, reduction, root,
                   ops.next(OpKind::kReduce, count, reduction.dtype, reduction.op));
      const Bytes& all_reduced = results[static_cast<std::size_t>(rank)][c];
      EXPECT_TRUE(data == (rank == root ? all_reduced : input)) << "reduce to " << root;
    }
  });
  for (std::size_t c = 0; c < cases.size(); ++c) {
    std::vector<Bytes> inputs;
    for (int rank = 0; rank < world.size; ++rank) {
      inputs.push_back(exact_input(rank, cases[c].count, cases[c].reduction.dtype));
    }
    const Bytes want = expected(inputs, cases[c].count, cases[c].reduction);
    for (std::size_t rank = 0; rank < size; ++rank) {
      ASSERT_TRUE(results[rank][c] == want)
          << "rank " << rank << " of " << size << ", " << cases[c].count << " "
          << to_string(cases[c].reduction.dtype) << " " << to_string(cases[c].reduction.op);
    }
  }
}

// Everything for short vectors, the usual types for long ones.
std::vector<Case> all_cases(std::size_t longest) {
  std::vector<Case> cases;
  for (const std::size_t count :
       {std::size_t{0}, std::size_t{1}, std::size_t{7}, std::size_t{1000}}) {
    for (int t = 0; t < kDataTypeCount; ++t) {
      const auto type = static_cast<DataType>(t);
      cases.push_back({count, {type, ReduceOp::kSum, 1.0, WireFormat::kNative}});
    }
    for (const ReduceOp op : {ReduceOp::kProduct, ReduceOp::kMin, ReduceOp::kMax}) {
      cases.push_back({count, {DataType::kFloat32, op, 1.0, WireFormat::kNative}});
      cases.push_back({count, {DataType::kInt8, op, 1.0, WireFormat::kNative}});
    }
    for (const ReduceOp op : {ReduceOp::kBitAnd, ReduceOp::kBitOr, ReduceOp::kBitXor}) {
      cases.push_back({count, {DataType::kInt32, op, 1.0, WireFormat::kNative}});
    }
    cases.push_back({count, {DataType::kFloat32, ReduceOp::kAvg, 0.25, WireFormat::kNative}});
    cases.push_back({count, {DataType::kInt32, ReduceOp::kAvg, 1.0, WireFormat::kNative}});
  }
  for (const DataType type : {DataType::kInt8, DataType::kBFloat16, DataType::kFloat32}) {
    cases.push_back({longest, {type, ReduceOp::kSum, 1.0, WireFormat::kNative}});
  }
  return cases;
}

P2pOptions tiny_pieces() {
  P2pOptions options;
  options.piece_bytes = 1000;
  options.slice_bytes = 600;
  options.small_bytes = 64;
  return options;
}

// Three ranks and more: ring and doubling instead of direct and exchange.
P2pOptions few_peers() {
  P2pOptions options = tiny_pieces();
  options.max_direct_ranks = 2;
  return options;
}

class P2pReduceTest : public ::testing::TestWithParam<Wire> {};

TEST_P(P2pReduceTest, AllReduceGivesTheReferenceForEveryTypeAndOperation) {
  for (const int size : {1, 2, 3, 4, 8}) {
    CommWorld world(GetParam(), size);
    check_cases(world, all_cases(65537));
  }
}

TEST_P(P2pReduceTest, ManySmallPiecesGiveTheSame) {
  for (const int size : {2, 3, 4, 8}) {
    CommWorld world(GetParam(), size, tiny_pieces());
    check_cases(world, all_cases(4001));
  }
}

TEST_P(P2pReduceTest, RingAndDoublingGiveTheSame) {
  for (const int size : {3, 4, 5, 8}) {
    CommWorld world(GetParam(), size, few_peers());
    check_cases(world, all_cases(4001));
  }
}

TEST_P(P2pReduceTest, LongFloatsAreSummedInRankOrderOnEveryRankAndInEveryRun) {
  constexpr std::size_t kCount = 300'001;  // more than a window of pieces
  for (const int size : {2, 3, 4}) {
    std::vector<Bytes> inputs;
    for (int rank = 0; rank < size; ++rank) inputs.push_back(random_floats(rank, kCount));
    const Reduction reduction{DataType::kFloat32, ReduceOp::kAvg, 1.0 / size, WireFormat::kNative};
    const Bytes want = expected(inputs, kCount, reduction);
    for (int run = 0; run < 2; ++run) {
      CommWorld world(GetParam(), size);
      std::vector<Bytes> results = inputs;
      run_ranks(size, [&](int rank) {
        const auto comm = world.make(rank);
        Ops ops;
        comm->all_reduce(results[static_cast<std::size_t>(rank)].data(), kCount, reduction,
                         ops.next(OpKind::kAllReduce, kCount, DataType::kFloat32));
      });
      for (const Bytes& result : results) ASSERT_TRUE(result == want);
    }
  }
}

TEST_P(P2pReduceTest, RingGivesTheSameBitsOnEveryRankForAnyFloats) {
  constexpr std::size_t kCount = 10'007;
  for (const std::size_t count : {std::size_t{13}, kCount}) {
    CommWorld world(GetParam(), 5, few_peers());
    std::vector<Bytes> results(5);
    run_ranks(5, [&](int rank) {
      const auto comm = world.make(rank);
      Ops ops;
      Bytes data = random_floats(rank, count);
      comm->all_reduce(data.data(), count, {DataType::kFloat32, ReduceOp::kSum, 0.2, {}},
                       ops.next(OpKind::kAllReduce, count, DataType::kFloat32));
      results[static_cast<std::size_t>(rank)] = std::move(data);
    });
    for (const Bytes& result : results) ASSERT_TRUE(result == results[0]);
  }
}

// What two roundings at most mean.
std::vector<float> compressed(const std::vector<Bytes>& inputs, std::size_t count, double scale,
                              const reference::Half& half, bool rounds_result) {
  std::vector<float> sums(count);
  for (std::size_t rank = 0; rank < inputs.size(); ++rank) {
    std::vector<float> terms(count);
    for (std::size_t i = 0; i < count; ++i) {
      terms[i] = reference::read<float>(inputs[rank].data() + i * 4) * static_cast<float>(scale);
    }
    terms = reference::over_the_wire(half, terms);
    for (std::size_t i = 0; i < count; ++i) sums[i] = rank == 0 ? terms[i] : sums[i] + terms[i];
  }
  return rounds_result ? reference::over_the_wire(half, sums) : sums;
}

TEST_P(P2pReduceTest, CompressedWireRoundsTwiceAtMostAndGivesTheSameBitsEverywhere) {
  constexpr std::size_t kCount = 5003;
  for (const int size : {2, 3, 4, 8}) {
    for (const WireFormat wire : {WireFormat::kFloat16, WireFormat::kBFloat16}) {
      std::vector<Bytes> inputs;
      for (int rank = 0; rank < size; ++rank) inputs.push_back(random_floats(rank, kCount));
      CommWorld world(GetParam(), size, tiny_pieces());
      std::vector<Bytes> results = inputs;
      run_ranks(size, [&](int rank) {
        const auto comm = world.make(rank);
        Ops ops;
        comm->all_reduce(results[static_cast<std::size_t>(rank)].data(), kCount,
                         {DataType::kFloat32, ReduceOp::kAvg, 1.0 / size, wire},
                         ops.next(OpKind::kAllReduce, kCount, DataType::kFloat32));
        EXPECT_FALSE(comm->has_met_non_finite());
      });
      const auto& half = wire == WireFormat::kFloat16 ? reference::kHalf16 : reference::kBrain16;
      const auto want = compressed(inputs, kCount, 1.0 / size, half, size > 2);
      for (const Bytes& result : results) ASSERT_TRUE(result == results[0]);
      for (std::size_t i = 0; i < kCount; ++i) {
        ASSERT_EQ(reference::read<float>(results[0].data() + i * 4), want[i])
            << "element " << i << ", " << size << " ranks";
      }
    }
  }
}

// Factors of blocks change nothing where none is needed: these are the bits of rounding each
// element by itself.
TEST_P(P2pReduceTest, OrdinaryNumbersHaveTheBitsOfPlainRounding) {
  constexpr std::size_t kCount = 3000;
  for (const int size : {2, 3, 4}) {
    for (const WireFormat wire : {WireFormat::kFloat16, WireFormat::kBFloat16}) {
      std::vector<Bytes> inputs;
      for (int rank = 0; rank < size; ++rank) {
        inputs.push_back(random_floats(rank, kCount));
        for (std::size_t i = 0; i < kCount; ++i) {
          // 2^-9 to 2^9, of one sign: neither terms nor sums are below the normal halves.
          const float value = reference::read<float>(inputs.back().data() + i * 4);
          reference::write(inputs.back().data() + i * 4, std::exp2(std::fmod(value * 3, 9.0F)));
        }
      }
      CommWorld world(GetParam(), size, tiny_pieces());
      std::vector<Bytes> results = inputs;
      run_ranks(size, [&](int rank) {
        const auto comm = world.make(rank);
        Ops ops;
        comm->all_reduce(results[static_cast<std::size_t>(rank)].data(), kCount,
                         {DataType::kFloat32, ReduceOp::kAvg, 1.0 / size, wire},
                         ops.next(OpKind::kAllReduce, kCount, DataType::kFloat32));
      });
      const auto& half = wire == WireFormat::kFloat16 ? reference::kHalf16 : reference::kBrain16;
      const auto plain = [&](float value) {
        return static_cast<float>(reference::decode(half, reference::encode(half, double{value})));
      };
      const auto share = static_cast<float>(1.0 / size);
      for (std::size_t i = 0; i < kCount; ++i) {
        float sum = 0;
        for (const Bytes& input : inputs) {
          sum += plain(reference::read<float>(input.data() + i * 4) * share);
        }
        const float want = size > 2 ? plain(sum) : sum;
        ASSERT_EQ(reference::read<float>(results[0].data() + i * 4), want) << "element " << i;
      }
    }
  }
}

// Float64 goes as it is, whoever asks.
TEST_P(P2pReduceTest, DoublesAreNeverRounded) {
  constexpr std::size_t kCount = 100;
  CommWorld world(GetParam(), 3);
  std::vector<Bytes> inputs;
  for (int rank = 0; rank < 3; ++rank) {
    inputs.push_back(random_floats(rank, kCount, DataType::kFloat64));
  }
  const Reduction reduction{DataType::kFloat64, ReduceOp::kSum, 1.0, WireFormat::kFloat16};
  const Bytes want = expected(inputs, kCount, reduction);
  run_ranks(3, [&](int rank) {
    const auto comm = world.make(rank);
    Ops ops;
    Bytes data = inputs[static_cast<std::size_t>(rank)];
    comm->all_reduce(data.data(), kCount, reduction,
                     ops.next(OpKind::kAllReduce, kCount, DataType::kFloat64));
    EXPECT_TRUE(data == want);
  });
}

TEST_P(P2pReduceTest, EveryRankLearnsOfANonFiniteRounding) {
  for (const int size : {2, 3, 4}) {
    CommWorld world(GetParam(), size);
    run_ranks(size, [&](int rank) {
      const auto comm = world.make(rank);
      Ops ops;
      const Reduction sum{DataType::kFloat32, ReduceOp::kSum, 1.0, WireFormat::kFloat16};
      std::vector<float> data(1000, 1.0F);
      const auto run = [&] {
        comm->all_reduce(reinterpret_cast<std::byte*>(data.data()), data.size(), sum,
                         ops.next(OpKind::kAllReduce, data.size(), DataType::kFloat32));
      };
      if (rank == 1) data[7] = 1e6F;  // more than float16 itself can hold
      run();
      EXPECT_FALSE(comm->has_met_non_finite());
      EXPECT_NEAR(data[7], 1e6F, 1e6F / 1000);
      data.assign(data.size(), 1.0F);
      if (rank == 1) data[907] = std::numeric_limits<float>::infinity();
      run();
      EXPECT_TRUE(comm->has_met_non_finite());
      EXPECT_TRUE(std::isinf(data[907]));
      EXPECT_EQ(data[908], static_cast<float>(size));
    });
  }
}

TEST_P(P2pReduceTest, ReduceScatterHandlesUnevenAndEmptySlices) {
  for (const int size : {1, 2, 3, 4, 8}) {
    for (const bool is_tiny : {false, true}) {
      CommWorld world(GetParam(), size, is_tiny ? tiny_pieces() : P2pOptions{});
      std::vector<std::size_t> bounds{0};
      for (int rank = 0; rank < size; ++rank) {
        bounds.push_back(bounds.back() + (rank % 3 == 1 ? 0 : 1201 + 17 * bounds.size()));
      }
      std::vector<Bytes> inputs;
      for (int rank = 0; rank < size; ++rank) inputs.push_back(random_floats(rank, bounds.back()));
      const Reduction reduction{DataType::kFloat32, ReduceOp::kSum, 0.5, WireFormat::kNative};
      const Bytes want = expected(inputs, bounds.back(), reduction);
      run_ranks(size, [&](int rank) {
        const auto comm = world.make(rank);
        Ops ops;
        const auto own = static_cast<std::size_t>(rank);
        std::vector<std::size_t> in_bytes = bounds;
        for (std::size_t& bound : in_bytes) bound *= 4;
        const Bytes& input = inputs[own];
        Bytes sums(in_bytes[own + 1] - in_bytes[own]);
        comm->reduce_scatter(parts_of(input.data(), in_bytes), sums.data(), reduction,
                             ops.next(OpKind::kReduceScatter, bounds.back(), DataType::kFloat32));
        EXPECT_TRUE(std::equal(sums.begin(), sums.end(),
                               want.begin() + static_cast<std::ptrdiff_t>(in_bytes[own])));
      });
    }
  }
}

TEST_P(P2pReduceTest, StartedCallsOverlapAndFinishInAnyOrder) {
  constexpr std::size_t kCount = 20'000;
  constexpr int kCalls = 20;  // more than may be under way at once
  for (const int size : {2, 3, 4}) {
    CommWorld world(GetParam(), size);
    run_ranks(size, [&](int rank) {
      const auto comm = world.make(rank);
      Ops ops;
      std::vector<std::vector<float>> data;
      for (int call = 0; call < kCalls; ++call) {
        data.emplace_back(kCount, static_cast<float>(rank + call));
      }
      std::vector<std::unique_ptr<Request>> requests;
      for (auto& buffer : data) {
        requests.push_back(
            comm->start_all_reduce(reinterpret_cast<std::byte*>(buffer.data()), kCount,
                                   {DataType::kFloat32, ReduceOp::kSum, 1.0, WireFormat::kNative},
                                   ops.next(OpKind::kAllReduce, kCount, DataType::kFloat32)));
      }
      comm->barrier(ops.next(OpKind::kBarrier, 0));
      for (int call = kCalls - 1; call >= 0; --call) {
        requests[static_cast<std::size_t>(call)]->wait();
        EXPECT_TRUE(requests[static_cast<std::size_t>(call)]->test());
        const auto sum = static_cast<float>(size * call + size * (size - 1) / 2);
        const auto& buffer = data[static_cast<std::size_t>(call)];
        EXPECT_EQ(std::count(buffer.begin(), buffer.end(), sum),
                  static_cast<std::ptrdiff_t>(kCount));
      }
    });
  }
}

TEST_P(P2pReduceTest, TwoRanksSendOneMessagePerPieceAndHalfTheBytesWhenCompressed) {
  constexpr std::size_t kCount = 60'000;
  for (const WireFormat wire : {WireFormat::kNative, WireFormat::kFloat16}) {
    CommWorld world(GetParam(), 2);
    run_ranks(2, [&](int rank) {
      const auto comm = world.make(rank);
      Ops ops;
      std::vector<float> data(kCount, 1.0F);
      comm->all_reduce(reinterpret_cast<std::byte*>(data.data()), kCount,
                       {DataType::kFloat32, ReduceOp::kSum, 1.0, wire},
                       ops.next(OpKind::kAllReduce, kCount, DataType::kFloat32));
      const TransportCounters counters = comm->transport().counters();
      EXPECT_EQ(counters.messages_sent, 1U);
      EXPECT_EQ(counters.messages_received, 1U);
      EXPECT_EQ(counters.payload_bytes_sent,
                wire == WireFormat::kNative ? kCount * sizeof(float) : wire_size(kCount));
    });
  }
}

TEST_P(P2pReduceTest, DirectSendsTwoMessagesPerPeerAndTwiceTheSharesBytes) {
  constexpr std::size_t kCount = 64 * 4 * 100;
  CommWorld world(GetParam(), 4);
  run_ranks(4, [&](int rank) {
    const auto comm = world.make(rank);
    Ops ops;
    std::vector<float> data(kCount, 1.0F);
    comm->all_reduce(reinterpret_cast<std::byte*>(data.data()), kCount, {},
                     ops.next(OpKind::kAllReduce, kCount, DataType::kFloat32));
    EXPECT_EQ(comm->transport().counters().messages_sent, 6U);
    EXPECT_EQ(comm->transport().counters().payload_bytes_sent, 2 * kCount * 4 * 3 / 4);
  });
}

INSTANTIATE_TEST_SUITE_P(Wires, P2pReduceTest,
                         ::testing::Values(Wire::kThread, Wire::kTcp, Wire::kAuthenticated,
                                           Wire::kEncrypted, Wire::kMpi),
                         [](const auto& param) { return testing::to_string(param.param); });

}  // namespace
}  // namespace chainmail::ops
