// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Every all-reduce algorithm over ranks as threads, against an exact reference: sizes, shapes of
// nodes, dtypes, reductions, wire formats; and the same bits on all ranks and in every run.

#include <array>
#include <chrono>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "ops/algorithms/all_reduce.h"
#include "ops/kernels/wire_block.h"
#include "tests/ops/algorithms/rank_comms.h"
#include "tests/ops/support/ranks.h"
#include "tests/ops/support/reference.h"
#include "tests/ops/support/tolerance.h"

namespace chainmail::ops {
namespace {

using test::get_element;
using test::set_element;

struct Job {
  std::vector<int> nodes;
  Algorithm algorithm = Algorithm::kFlat;
  DataType dtype = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  WireFormat wire = WireFormat::kNative;
  std::size_t count = 0;
  std::size_t chunk_bytes = std::size_t{64} << 10;

  std::string describe() const {
    return Topology::from_node_sizes(nodes).describe() + " " + to_string(algorithm) + " " +
           to_string(op) + " of " + std::to_string(count) + " " + to_string(dtype) + " wire " +
           to_string(wire);
  }
};

/// What rank `rank` contributes: small numbers of both signs, exact in every dtype, so that integer
/// and product results fit.
double term(const Job& job, int rank, std::size_t index) {
  const auto mixed = static_cast<double>((index * 7 + static_cast<std::size_t>(rank) * 3) % 5);
  if (job.op == ReduceOp::kProduct) {
    return 1 + static_cast<double>((index + static_cast<std::size_t>(rank)) % 2);
  }
  const bool is_unsigned = job.dtype == DataType::kUInt8 || job.dtype == DataType::kUInt16 ||
                           job.dtype == DataType::kUInt32 || job.dtype == DataType::kUInt64;
  if (is_unsigned || job.dtype == DataType::kBool || is_bitwise(job.op)) {
    return job.dtype == DataType::kBool ? static_cast<double>(mixed > 2) : mixed;
  }
  const double value = mixed - 2;
  return is_floating_point(job.dtype) ? value * 0.37 + 0.011 * rank : value;
}

std::vector<std::byte> input_of(const Job& job, int rank) {
  std::vector<std::byte> data(job.count * size_of(job.dtype));
  for (std::size_t i = 0; i < job.count; ++i) {
    set_element(data.data(), job.dtype, i, term(job, rank, i));
  }
  return data;
}

class AllReduce : public testing::TestWithParam<test::CommKind> {
 protected:
  /// Runs the job; the buffers of all ranks afterwards.
  static std::vector<std::vector<std::byte>> run(const Job& job) {
    std::vector<std::vector<std::byte>> buffers;
    for (int rank = 0; rank < Topology::from_node_sizes(job.nodes).size(); ++rank) {
      buffers.push_back(input_of(job, rank));
    }
    return run_on(job, std::move(buffers));
  }

  static std::vector<std::vector<std::byte>> run_on(const Job& job,
                                                    std::vector<std::vector<std::byte>> buffers) {
    const Topology topology = Topology::from_node_sizes(job.nodes);
    test::CommMaker maker(GetParam());
    test::run_ranks_ok(topology.size(), [&](int rank) {
      run_rank(job, topology, maker, rank, buffers[static_cast<std::size_t>(rank)].data());
    });
    return buffers;
  }

  static void check(const Job& job) {
    SCOPED_TRACE(job.describe());
    const auto results = run(job);
    for (std::size_t rank = 1; rank < results.size(); ++rank) {
      ASSERT_EQ(results[rank], results[0]) << "rank " << rank << " has other bits than rank 0";
    }
    const int ranks = static_cast<int>(results.size());
    for (std::size_t i = 0; i < job.count; ++i) {
      std::vector<double> terms;
      double magnitude = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        std::byte stored[8];
        set_element(stored, job.dtype, 0, term(job, rank, i));
        terms.push_back(get_element(stored, job.dtype, 0));
        magnitude += std::fabs(terms.back());
      }
      const double exact = test::reduce_exactly(terms, job.dtype, job.op);
      if (job.op == ReduceOp::kAvg) magnitude /= ranks;
      const bool is_sum = job.op == ReduceOp::kSum || job.op == ReduceOp::kAvg;
      const double allowed = is_sum ? test::sum_tolerance(job.dtype, job.wire, ranks, magnitude) +
                                          test::block_tolerance(job.wire, ranks, ranks)
                                    : 0.0;
      ASSERT_NEAR(get_element(results[0].data(), job.dtype, i), exact, allowed) << "element " << i;
    }
  }

 private:
  static void run_rank(const Job& job, const Topology& topology, test::CommMaker& maker, int rank,
                       std::byte* data) {
    const test::RankComms own(topology, maker, rank);
    FailureState failure;
    OpContext context{{}, internal::Deadline::after(std::chrono::seconds{60}), &failure, {}};
    context.header.count = job.count;
    Reduction reduction{job.dtype, job.op, 1.0, job.wire};
    if (job.op == ReduceOp::kAvg && is_floating_point(job.dtype)) {
      reduction.scale = 1.0 / topology.size();
    }
    all_reduce(job.algorithm, own.comms, data, job.count, reduction, context, job.chunk_bytes);
  }
};

const std::vector<std::vector<int>> kShapes = {
    {1}, {2}, {3}, {4}, {8}, {2, 2}, {3, 1}, {1, 3}, {1, 1, 1, 1}, {2, 2, 2, 2}, {4, 4}, {1, 2}};
const std::vector<Algorithm> kAlgorithms = {Algorithm::kFlat, Algorithm::kHierarchical,
                                            Algorithm::kTwoDimensional};

TEST_P(AllReduce, EverySizeOnEveryShape) {
  for (const auto& nodes : kShapes) {
    for (const Algorithm algorithm : kAlgorithms) {
      for (const std::size_t count : std::vector<std::size_t>{0, 1, 7, 1000, 65537}) {
        check({nodes, algorithm, DataType::kFloat32, ReduceOp::kSum, WireFormat::kNative, count});
      }
    }
  }
}

TEST_P(AllReduce, EveryDtypeAndReduction) {
  const std::vector<ReduceOp> ops = {ReduceOp::kSum,    ReduceOp::kProduct, ReduceOp::kMin,
                                     ReduceOp::kMax,    ReduceOp::kBitAnd,  ReduceOp::kBitOr,
                                     ReduceOp::kBitXor, ReduceOp::kAvg};
  for (int t = 0; t < kDataTypeCount; ++t) {
    const auto dtype = static_cast<DataType>(t);
    for (const ReduceOp op : ops) {
      const bool is_float = is_floating_point(dtype);
      // Integer averages are divided by the group, not here.
      if ((is_float && is_bitwise(op)) || (!is_float && op == ReduceOp::kAvg)) continue;
      for (const Algorithm algorithm : kAlgorithms) {
        for (const auto& nodes : {std::vector<int>{2, 2}, std::vector<int>{3, 1}}) {
          check({nodes, algorithm, dtype, op, WireFormat::kNative, 131});
        }
      }
    }
  }
}

TEST_P(AllReduce, SixteenBitWire) {
  for (const WireFormat wire : {WireFormat::kFloat16, WireFormat::kBFloat16}) {
    for (const auto& nodes : {std::vector<int>{2, 2}, {3, 1}, {4, 4}, {1, 1}, {3}}) {
      for (const DataType dtype : {DataType::kFloat32, DataType::kFloat64, DataType::kInt32}) {
        for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax}) {
          for (const Algorithm algorithm : kAlgorithms) {
            check({nodes, algorithm, dtype, op, wire, 1000});
          }
        }
      }
      check({nodes, Algorithm::kHierarchical, DataType::kFloat32, ReduceOp::kAvg, wire, 65537});
    }
  }
}

/// Numbers that a plain rounding to 16 bits makes infinite or zero: block by block of one size, and
/// blocks of all of them. One rank in turn has the full size and the others a thousandth, so that
/// sums inside a node stay within float32.
float extreme_term(int rank, int ranks, std::size_t index) {
  constexpr std::array kSizes = {70000.0, 1e-7, 3e-8,  3e38, 1e-39, 0x1p-149, 65520.0,
                                 1e30,    1.0,  2e-20, 6e-5, 1e-38, 0.0,      3.39e38};
  const std::size_t block = index / kWireBlock;
  const std::size_t which = block % (kSizes.size() + 2);
  const std::size_t kind = which < kSizes.size() ? which : index % kSizes.size();
  const bool is_full = index % static_cast<std::size_t>(ranks) == static_cast<std::size_t>(rank);
  const double sign = (index + static_cast<std::size_t>(rank)) % 3 == 0 ? -1 : 1;
  const double size = kSizes[kind] * (1 - 0.001 * static_cast<double>(index % 100));
  return static_cast<float>(sign * (is_full ? size : size / 1000));
}

/// Every result against float64, within the bounds of docs/algorithms.md.
void expect_extremes(const Job& job, int ranks, const std::vector<std::byte>& result) {
  for (std::size_t begin = 0; begin < job.count; begin += kWireBlock) {
    const std::size_t end = std::min(job.count, begin + kWireBlock);
    const double scale = job.op == ReduceOp::kAvg ? 1.0 / ranks : 1.0;
    double block_magnitude = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      double largest = 0;
      for (std::size_t i = begin; i < end; ++i) {
        largest = std::max(largest, std::fabs(double{extreme_term(rank, ranks, i)}));
      }
      block_magnitude += largest * scale;
    }
    for (std::size_t i = begin; i < end; ++i) {
      double exact = 0;
      double magnitude = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        exact += extreme_term(rank, ranks, i) * scale;
        magnitude += std::fabs(extreme_term(rank, ranks, i) * scale);
      }
      const double allowed = test::sum_tolerance(job.dtype, job.wire, ranks, magnitude) +
                             test::block_tolerance(job.wire, ranks, block_magnitude);
      ASSERT_NEAR(get_element(result.data(), job.dtype, i), exact, allowed)
          << "element " << i << ", " << extreme_term(0, ranks, i) << " on rank 0";
    }
  }
}

TEST_P(AllReduce, NothingFiniteIsLostOnA16BitWire) {
  for (const WireFormat wire : {WireFormat::kFloat16, WireFormat::kBFloat16}) {
    for (const auto& nodes : {std::vector<int>{4}, {2, 2}, {3, 1}, {1, 1, 1}, {1, 1, 1, 1}}) {
      for (const Algorithm algorithm : kAlgorithms) {
        for (const ReduceOp op : {ReduceOp::kAvg, ReduceOp::kSum}) {
          const Job job{nodes, algorithm, DataType::kFloat32, op, wire, 9001, 8192};
          SCOPED_TRACE(job.describe());
          const int ranks = Topology::from_node_sizes(nodes).size();
          std::vector<std::vector<std::byte>> inputs;
          for (int rank = 0; rank < ranks; ++rank) {
            auto& input = inputs.emplace_back(job.count * sizeof(float));
            for (std::size_t i = 0; i < job.count; ++i) {
              test::store(input.data() + i * sizeof(float), extreme_term(rank, ranks, i));
            }
          }
          const auto results = run_on(job, inputs);
          for (const auto& result : results) ASSERT_EQ(result, results[0]);
          ASSERT_EQ(run_on(job, inputs)[0], results[0]) << "the next run";
          ASSERT_NO_FATAL_FAILURE(expect_extremes(job, ranks, results[0]));
        }
      }
    }
  }
}

// What auto may choose between must not matter: blocks are cut at the same places.
TEST_P(AllReduce, BothLevelsGiveTheSameBitsOnA16BitWire) {
  for (const auto& nodes : {std::vector<int>{2, 2}, {3, 3}}) {
    const int ranks = Topology::from_node_sizes(nodes).size();
    Job job{nodes,
            Algorithm::kHierarchical,
            DataType::kFloat32,
            ReduceOp::kAvg,
            WireFormat::kFloat16,
            9001,
            8192};
    std::vector<std::vector<std::byte>> inputs;
    for (int rank = 0; rank < ranks; ++rank) {
      auto& input = inputs.emplace_back(job.count * sizeof(float));
      for (std::size_t i = 0; i < job.count; ++i) {
        test::store(input.data() + i * sizeof(float), extreme_term(rank, ranks, i));
      }
    }
    const auto of_leaders = run_on(job, inputs);
    job.algorithm = Algorithm::kTwoDimensional;
    EXPECT_EQ(run_on(job, inputs)[0], of_leaders[0]) << job.describe();
  }
}

TEST_P(AllReduce, ManyChunks) {
  for (const auto& nodes : {std::vector<int>{2, 2}, std::vector<int>{3, 1}}) {
    for (const Algorithm algorithm : {Algorithm::kHierarchical, Algorithm::kTwoDimensional}) {
      for (const std::size_t count : std::vector<std::size_t>{4097, 300'001}) {
        check({nodes, algorithm, DataType::kFloat32, ReduceOp::kSum, WireFormat::kNative, count,
               4096});
      }
    }
  }
}

TEST_P(AllReduce, SameBitsInEveryRun) {
  for (const Algorithm algorithm : kAlgorithms) {
    for (const WireFormat wire : {WireFormat::kNative, WireFormat::kFloat16}) {
      const Job job{{2, 2}, algorithm, DataType::kFloat32, ReduceOp::kSum, wire, 65537};
      const auto first = run(job);
      for (int repeat = 0; repeat < 3; ++repeat) EXPECT_EQ(run(job)[0], first[0]) << job.describe();
    }
  }
}

// Largest error of a mean over an fp16 wire: two roundings whatever the number of ranks, each at
// most 2^-11 of the largest term.
TEST_P(AllReduce, TwoRoundingsWhateverTheNumberOfRanks) {
  for (const auto& nodes : {std::vector<int>{1, 1}, {2, 2}, {4, 4}, {2, 2, 2, 2}}) {
    const Job job{nodes,          Algorithm::kTwoDimensional, DataType::kFloat32,
                  ReduceOp::kAvg, WireFormat::kFloat16,       5000};
    const auto results = run(job);
    const int ranks = static_cast<int>(results.size());
    for (std::size_t i = 0; i < job.count; ++i) {
      double exact = 0;
      double largest = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        exact += term(job, rank, i) / ranks;
        largest = std::max(largest, std::fabs(term(job, rank, i)));
      }
      ASSERT_NEAR(get_element(results[0].data(), job.dtype, i), exact, 1.1e-3 * largest);
    }
  }
}

// The mean of halves near the top of their range must not pass through infinity, also beside a
// rank that is alone on its node.
TEST_P(AllReduce, MeanOfLargeHalvesDoesNotOverflow) {
  for (const auto& nodes : {std::vector<int>{4, 4}, {3, 1}, {2, 2}}) {
    for (const Algorithm algorithm : {Algorithm::kHierarchical, Algorithm::kTwoDimensional}) {
      const Topology topology = Topology::from_node_sizes(nodes);
      const Job job{nodes, algorithm, DataType::kFloat16, ReduceOp::kAvg, WireFormat::kNative, 9};
      std::vector<std::byte> large(job.count * size_of(job.dtype));
      for (std::size_t i = 0; i < job.count; ++i) set_element(large.data(), job.dtype, i, 60000.0);
      const auto results =
          run_on(job, std::vector(static_cast<std::size_t>(topology.size()), large));
      for (const auto& result : results) {
        for (std::size_t i = 0; i < job.count; ++i) {
          ASSERT_NEAR(get_element(result.data(), job.dtype, i), 60000.0,
                      test::sum_tolerance(job.dtype, job.wire, topology.size(), 60000.0))
              << job.describe();
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Carriers, AllReduce,
                         testing::Values(test::CommKind::kReference, test::CommKind::kThread),
                         [](const auto& of) {
                           return of.param == test::CommKind::kReference ? "board" : "thread";
                         });

}  // namespace
}  // namespace chainmail::ops
