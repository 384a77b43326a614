// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// All-reduces on the integer wires: how far one exchange may be off, what feedback keeps, that all
// ranks end with the same bits. "--full" adds shapes, sizes and runs.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "ops/kernels/block_wire.h"
#include "tests/ops/support/groups.h"

namespace chainmail::ops {
namespace {

using test::bytes_of;
using test::GroupMaker;
using test::on;
using test::TransportKind;

bool is_full = false;

constexpr WireFormat kWires[] = {WireFormat::kInt8, WireFormat::kInt4};
constexpr Algorithm kAlgorithms[] = {Algorithm::kFlat, Algorithm::kHierarchical,
                                     Algorithm::kTwoDimensional};

using Floats = std::vector<float>;
using Shape = std::vector<int>;

/// A mean that is made again and again, and what rounding has lost of it on one rank.
class Means {
 public:
  Means(Group& group, std::size_t count, WireFormat wire, Algorithm algorithm = Algorithm::kAuto)
      : contributions(count), results(count), group_(group), wire_(wire), algorithm_(algorithm) {}

  Floats contributions;
  Floats results;
  bool has_feedback = true;
  std::optional<std::size_t> compressed_count;

  Floats of(Floats values) {
    Collective collective = on(values);
    collective.reduce_op = ReduceOp::kAvg;
    collective.wire = wire_;
    collective.algorithm = algorithm_;
    collective.compressed_count = compressed_count;
    if (has_feedback) {
      collective.feedback = WireFeedback{bytes_of(contributions), bytes_of(results), exchanges_++};
    }
    group_.run(collective);
    return values;
  }

 private:
  Group& group_;
  WireFormat wire_;
  Algorithm algorithm_;
  std::uint64_t exchanges_ = 0;
};

/// What a rank brings in a step; elements of one block differ by orders of magnitude.
Floats values_of(int rank, std::size_t count, unsigned step = 0) {
  std::mt19937 random(static_cast<unsigned>(rank) * 1000U + step);
  std::normal_distribution<float> normal(0.0F, 1.0F);
  Floats values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = std::ldexp(normal(random), -static_cast<int>(i % 7));
  }
  return values;
}

std::vector<double> exact_mean(int ranks, std::size_t count, unsigned step = 0) {
  std::vector<double> mean(count);
  for (int rank = 0; rank < ranks; ++rank) {
    const Floats values = values_of(rank, count, step);
    for (std::size_t i = 0; i < count; ++i) mean[i] += double{values[i]} / ranks;
  }
  return mean;
}

std::vector<std::uint32_t> bits_of(const Floats& values) {
  std::vector<std::uint32_t> bits(values.size());
  if (!values.empty()) std::memcpy(bits.data(), values.data(), values.size() * sizeof(float));
  return bits;
}

/// `body` on all ranks; the ranks' results, which must have the same bits.
Floats same_on_all(GroupMaker& maker, const std::function<Floats(int, Group&)>& body) {
  std::vector<Floats> results(static_cast<std::size_t>(maker.size()));
  maker.run_ok(
      [&](int rank, Group& group) { results[static_cast<std::size_t>(rank)] = body(rank, group); });
  for (const Floats& result : results) EXPECT_TRUE(bits_of(result) == bits_of(results[0]));
  return results[0];
}

std::vector<Shape> shapes() {
  std::vector<Shape> all = {{1, 1}, {2, 2}, {3, 1}, {1, 1, 1}};
  if (is_full) all.insert(all.end(), {{1, 2}, {2, 1, 3}, {4, 4}, {1, 1, 1, 1}, {2, 2, 2, 2}});
  return all;
}

std::string describe(const Shape& nodes, WireFormat wire, Algorithm algorithm) {
  return Topology::from_node_sizes(nodes).describe() + ", " + to_string(wire) + ", " +
         to_string(algorithm);
}

/// Runs `body` for every shape, format and algorithm.
void for_all(const std::function<void(GroupMaker&, WireFormat, Algorithm)>& body) {
  for (const Shape& nodes : shapes()) {
    for (const WireFormat wire : kWires) {
      for (const Algorithm algorithm : kAlgorithms) {
        SCOPED_TRACE(describe(nodes, wire, algorithm));
        GroupMaker maker(nodes, TransportKind::kReal);
        body(maker, wire, algorithm);
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

/// The largest of |values| in the block of element i.
double block_largest(const std::vector<double>& values, std::size_t i, WireFormat wire) {
  const std::size_t block = block_format(wire).block;
  const std::size_t begin = i / block * block;
  double largest = 0;
  for (std::size_t k = begin; k < std::min(values.size(), begin + block); ++k) {
    largest = std::max(largest, std::fabs(values[k]));
  }
  return largest;
}

/// Half the scales that one exchange may use for each element: of what ranks or their nodes
/// contribute, and of the result.
std::vector<double> bounds_of(int ranks, std::size_t count, WireFormat wire) {
  const double scale = (1 + 0x1p-7) / block_format(wire).most;
  std::vector<double> bounds(count);
  std::vector<double> whole(count);
  for (int rank = 0; rank < ranks; ++rank) {
    const Floats values = values_of(rank, count);
    for (std::size_t i = 0; i < count; ++i) whole[i] = double{values[i]} / ranks;
    for (std::size_t i = 0; i < count; ++i) {
      bounds[i] += scale / 2 * block_largest(whole, i, wire);  // a node's are no larger together
    }
  }
  const std::vector<double> mean = exact_mean(ranks, count);
  for (std::size_t i = 0; i < count; ++i) {  // the result is off already when its scale is chosen
    bounds[i] += scale / 2 * (block_largest(mean, i, wire) + bounds[i]) + 1e-6;
  }
  return bounds;
}

TEST(GroupBlocks, OneExchangeIsWithinHalfOfAllScales) {
  std::vector<std::size_t> counts = {0, 1, 63, 64, 65, 255, 256, 257, 20'003};
  if (is_full) counts.push_back(1'000'007);
  for_all([&](GroupMaker& maker, WireFormat wire, Algorithm algorithm) {
    std::vector<std::vector<Floats>> by_rank(static_cast<std::size_t>(maker.size()));
    maker.run_ok([&](int rank, Group& group) {
      for (const std::size_t count : counts) {
        Means mean(group, count, wire, algorithm);
        by_rank[static_cast<std::size_t>(rank)].push_back(mean.of(values_of(rank, count)));
      }
    });
    for (std::size_t k = 0; k < counts.size(); ++k) {
      const Floats& got = by_rank[0][k];
      for (const auto& other : by_rank) ASSERT_TRUE(bits_of(other[k]) == bits_of(got));
      const auto want = exact_mean(maker.size(), counts[k]);
      const auto bounds = bounds_of(maker.size(), counts[k], wire);
      for (std::size_t i = 0; i < counts[k]; ++i) {
        ASSERT_LE(std::fabs(got[i] - want[i]), bounds[i]) << i << " of " << counts[k];
      }
    }
  });
}

/// Sums over steps, of what one rank sees and owes.
struct Ledger {
  std::vector<double> received;
  Floats contributions;
  Floats results;
};

std::vector<Ledger> keep_ledgers(GroupMaker& maker, std::size_t count, unsigned steps,
                                 const std::function<Means(Group&)>& make) {
  std::vector<Ledger> ledgers(static_cast<std::size_t>(maker.size()));
  maker.run_ok([&](int rank, Group& group) {
    Means means = make(group);
    std::vector<double> sum(count);
    for (unsigned step = 0; step < steps; ++step) {
      const Floats mean = means.of(values_of(rank, count, step % 10));
      for (std::size_t i = 0; i < count; ++i) sum[i] += double{mean[i]};
    }
    ledgers[static_cast<std::size_t>(rank)] = {sum, means.contributions, means.results};
  });
  return ledgers;
}

std::vector<double> exact_sum(int ranks, std::size_t count, unsigned steps) {
  std::vector<double> sum(count);
  for (unsigned step = 0; step < 10; ++step) {
    const auto mean = exact_mean(ranks, count, step);
    const unsigned times = steps / 10 + (step < steps % 10 ? 1 : 0);
    for (std::size_t i = 0; i < count; ++i) sum[i] += times * mean[i];
  }
  return sum;
}

// Nothing is lost: what has not arrived is in somebody's residual, and nowhere twice.
TEST(GroupBlocks, WhatHasArrivedAndWhatIsOwedAreAllThatWasGiven) {
  constexpr unsigned kSteps = 13;
  for (const std::size_t count : {std::size_t{300}, std::size_t{70'003}}) {
    for_all([&](GroupMaker& maker, WireFormat wire, Algorithm algorithm) {
      const auto ledgers = keep_ledgers(
          maker, count, kSteps, [&](Group& group) { return Means(group, count, wire, algorithm); });
      const auto want = exact_sum(maker.size(), count, kSteps);
      for (std::size_t i = 0; i < count; ++i) {
        double all = ledgers[0].received[i];
        for (const Ledger& one : ledgers) {
          all += double{one.contributions[i]} + double{one.results[i]};
        }
        ASSERT_NEAR(all, want[i], 2e-5) << "element " << i << " of " << count;
      }
    });
  }
}

TEST(GroupBlocks, FeedbackKeepsTheErrorOfAThousandExchangesAtThatOfTwo) {
  constexpr unsigned kSteps = 1000;
  for (const Shape& nodes : {Shape{1, 1}, Shape{1, 1, 1}}) {
    for (const std::size_t count : {std::size_t{300}, std::size_t{9'000}}) {
      for (const WireFormat wire : kWires) {
        SCOPED_TRACE(describe(nodes, wire, Algorithm::kAuto) + ", " + std::to_string(count));
        std::vector<double> errors;
        const auto want = exact_sum(static_cast<int>(nodes.size()), count, kSteps);
        const auto bounds = bounds_of(static_cast<int>(nodes.size()), count, wire);
        for (const bool has_feedback : {true, false}) {
          GroupMaker maker(nodes, TransportKind::kReal);
          const auto ledgers = keep_ledgers(maker, count, kSteps, [&](Group& group) {
            Means means(group, count, wire);
            means.has_feedback = has_feedback;
            return means;
          });
          double squares = 0;
          for (std::size_t i = 0; i < count; ++i) {
            const double error = std::fabs(ledgers[0].received[i] - want[i]);
            squares += error * error;
            // Blocks of other steps may have larger scales.
            if (has_feedback) {
              ASSERT_LE(error, 2 * 2 * bounds[i] + 1e-3) << i;
            }
          }
          errors.push_back(std::sqrt(squares));
        }
        EXPECT_LE(errors[0], errors[1] / 20) << "with feedback, against without";
      }
    }
  }
}

TEST(GroupBlocks, WithoutGradientsWhatIsOwedIsPaid) {
  constexpr std::size_t kCount = 9'000;
  for (const Shape& nodes : {Shape{1, 1}, Shape{1, 1, 1}, Shape{2, 2}}) {
    for (const WireFormat wire : kWires) {
      GroupMaker maker(nodes, TransportKind::kReal);
      const int ranks = maker.size();
      maker.run_ok([&](int rank, Group& group) {
        Means means(group, kCount, wire);
        std::vector<double> sum(kCount);
        for (unsigned step = 0; step < 200; ++step) {
          const Floats mean = means.of(step == 0 ? values_of(rank, kCount) : Floats(kCount));
          for (std::size_t i = 0; i < kCount; ++i) sum[i] += double{mean[i]};
        }
        const auto want = exact_mean(ranks, kCount);
        for (std::size_t i = 0; i < kCount; ++i) {
          ASSERT_NEAR(sum[i], want[i], 1e-5) << i;
          ASSERT_LT(std::fabs(means.contributions[i]), 0x1p-100F) << i;
          ASSERT_LT(std::fabs(means.results[i]), 0x1p-100F) << i;
        }
      });
    }
  }
}

TEST(GroupBlocks, WhatIsNotFiniteReachesAllAndLeavesResidualsAsTheyWere) {
  constexpr std::size_t kCount = 9'000;
  constexpr std::size_t kPlace = 5'000;
  for_all([](GroupMaker& maker, WireFormat wire, Algorithm algorithm) {
    for (const float bad : {std::numeric_limits<float>::infinity(), NAN}) {
      const std::size_t block = block_format(wire).block;
      const Floats mean = same_on_all(maker, [&](int rank, Group& group) {
        Means means(group, kCount, wire, algorithm);
        static_cast<void>(means.of(values_of(rank, kCount)));
        const Floats contributions = means.contributions;
        const Floats results = means.results;
        Floats values = values_of(rank, kCount, 1);
        if (rank == 0) values[kPlace] = bad;
        const bool is_bad =
            algorithm == Algorithm::kFlat ? rank == 0 : group.topology().node_of(rank) == 0;
        const Floats got = means.of(values);
        for (std::size_t i = 0; i < kCount; ++i) {
          if (i / block != kPlace / block) continue;
          // The other nodes' is what they rounded, for nobody.
          if (is_bad) {
            EXPECT_EQ(contributions[i], means.contributions[i]);
          }
          EXPECT_EQ(results[i], means.results[i]);
        }
        return got;
      });
      for (std::size_t i = 0; i < kCount; ++i) {
        ASSERT_EQ(std::isfinite(mean[i]), i / block != kPlace / block) << i;
      }
    }
  });
}

TEST(GroupBlocks, ElementsThatAreNotRoundedHaveTheBitsOfTheNativeWire) {
  for (const std::size_t count : {std::size_t{1'000}, std::size_t{70'003}}) {
    for_all([&](GroupMaker& maker, WireFormat wire, Algorithm algorithm) {
      const Floats native = same_on_all(maker, [&](int rank, Group& group) {
        Means means(group, count, WireFormat::kNative, algorithm);
        means.has_feedback = false;
        return means.of(values_of(rank, count));
      });
      for (const std::size_t rounded :
           {std::size_t{0}, std::size_t{1}, std::size_t{256}, std::size_t{300}, count - 1, count}) {
        const Floats mean = same_on_all(maker, [&](int rank, Group& group) {
          Means means(group, count, wire, algorithm);
          means.compressed_count = rounded;
          const Floats got = means.of(values_of(rank, count));
          for (std::size_t i = rounded; i < count; ++i) {
            EXPECT_EQ(means.contributions[i], 0.0F);
            EXPECT_EQ(means.results[i], 0.0F);
          }
          return got;
        });
        std::size_t others = 0;
        for (std::size_t i = 0; i < count; ++i) {
          others += static_cast<std::size_t>(mean[i] != native[i]);
          if (i >= rounded) {
            ASSERT_EQ(mean[i], native[i]) << i;
          }
        }
        if (rounded >= 256) {
          ASSERT_GT(others, rounded / 2);
        }
      }
    });
  }
}

TEST(GroupBlocks, EachRankKeepsItsShareOfTheResidualsAlone) {
  constexpr std::size_t kCount = 65'536;
  for (const Shape& nodes : {Shape{2, 2}, Shape{2, 2, 2}}) {
    GroupMaker maker(nodes, TransportKind::kReal);
    const std::size_t owned = kCount / (nodes.size() > 2 ? nodes.size() : 1) / 2;
    maker.run_ok([&](int rank, Group& group) {
      Means means(group, kCount, WireFormat::kInt8, Algorithm::kTwoDimensional);
      for (unsigned step = 0; step < 3; ++step) {
        static_cast<void>(means.of(values_of(rank, kCount, step)));
      }
      const auto touched = [](const Floats& residual) {
        return static_cast<std::size_t>(
            std::count_if(residual.begin(), residual.end(), [](float e) { return e != 0; }));
      };
      EXPECT_LE(touched(means.contributions), kCount / 2);
      EXPECT_GE(touched(means.contributions), kCount / 3);
      EXPECT_LE(touched(means.results), nodes.size() == 2 ? 0 : owned + 4 * kWireBlock);
      EXPECT_GE(touched(means.results), nodes.size() == 2 ? 0 : owned / 2);
    });
  }
}

TEST(GroupBlocks, TheSameBitsWithEveryTransportAndInEveryRun) {
  constexpr std::size_t kCount = 40'003;
  for (const WireFormat wire : kWires) {
    for (const Algorithm algorithm : kAlgorithms) {
      for (const Shape& nodes : shapes()) {
        SCOPED_TRACE(describe(nodes, wire, algorithm));
        std::vector<std::uint32_t> first;
        for (int run = 0; run < (is_full ? 20 : 3); ++run) {
          const TransportKind kinds[] = {TransportKind::kReal, TransportKind::kMpi,
                                         TransportKind::kTcpEverywhere};
          GroupMaker maker(nodes, kinds[run % 3]);
          const Floats got = same_on_all(maker, [&](int rank, Group& group) {
            Means means(group, kCount, wire, algorithm);
            means.compressed_count = kCount - 1000;
            static_cast<void>(means.of(values_of(rank, kCount)));
            return means.of(values_of(rank, kCount, 1));
          });
          if (first.empty()) first = bits_of(got);
          ASSERT_TRUE(bits_of(got) == first) << "run " << run;
        }
      }
    }
  }
}

TEST(GroupBlocks, OnOneNodeNothingIsRounded) {
  GroupMaker maker({3}, TransportKind::kReal);
  const Floats mean = same_on_all(maker, [&](int rank, Group& group) {
    Means means(group, 1000, WireFormat::kInt4);
    const Floats got = means.of(values_of(rank, 1000));
    EXPECT_EQ(means.contributions, Floats(1000));
    EXPECT_EQ(means.results, Floats(1000));
    return got;
  });
  const auto want = exact_mean(3, 1000);
  for (std::size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(mean[i], want[i], 1e-6);
}

}  // namespace
}  // namespace chainmail::ops

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]) == "--full") chainmail::ops::is_full = true;
  }
  return RUN_ALL_TESTS();
}
