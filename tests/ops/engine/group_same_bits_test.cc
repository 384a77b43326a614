// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// An all-reduce gives the same bits on every rank and in every run: all algorithms, dtypes and wire
// formats, over real shared memory and TCP. "--full" adds shapes, sizes and runs: minutes instead
// of seconds.

#include <chrono>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "tests/ops/support/groups.h"

namespace chainmail::ops {
namespace {

bool is_full = false;

struct Case {
  DataType dtype = DataType::kFloat32;
  WireFormat wire = WireFormat::kNative;
  Algorithm algorithm = Algorithm::kFlat;
  std::size_t count = 0;

  std::string describe() const {
    return std::string(to_string(algorithm)) + " of " + std::to_string(count) + " " +
           to_string(dtype) + ", wire " + to_string(wire);
  }
};

std::vector<Case> all_cases() {
  std::vector<std::size_t> counts = {0, 1, 7, 1000, 65537};
  if (is_full) counts.push_back(1000003);
  std::vector<Case> cases;
  for (const Algorithm algorithm : {Algorithm::kAuto, Algorithm::kNaive, Algorithm::kFlat,
                                    Algorithm::kHierarchical, Algorithm::kTwoDimensional}) {
    for (int t = 0; t < kDataTypeCount; ++t) {
      const auto dtype = static_cast<DataType>(t);
      for (const WireFormat wire : {WireFormat::kNative, WireFormat::kFloat16,
                                    WireFormat::kBFloat16, WireFormat::kInt8, WireFormat::kInt4}) {
        const bool is_other = is_compressed(wire, dtype, ReduceOp::kSum);
        if (wire != WireFormat::kNative && !is_other) continue;
        for (const std::size_t count : counts) cases.push_back({dtype, wire, algorithm, count});
      }
    }
  }
  return cases;
}

/// Numbers whose sum depends on the order in which they are added; no NaN.
std::vector<std::byte> input_of(int rank, DataType dtype, std::size_t count) {
  std::mt19937 random(static_cast<unsigned>(100 * rank + static_cast<int>(dtype)));
  std::uniform_real_distribution<double> uniform(-3.0, 3.0);
  std::vector<std::byte> data(count * size_of(dtype));
  const auto put = [&data](std::size_t i, auto value) {
    std::memcpy(data.data() + i * sizeof value, &value, sizeof value);
  };
  for (std::size_t i = 0; i < count; ++i) {
    if (dtype == DataType::kFloat64) {
      put(i, uniform(random));
    } else if (dtype == DataType::kFloat32) {
      put(i, static_cast<float>(uniform(random)));
    } else if (dtype == DataType::kFloat16) {
      put(i, static_cast<std::uint16_t>((random() & 0x83ffU) | 0x3800U));  // 0.5 to 1
    } else if (dtype == DataType::kBFloat16) {
      put(i, static_cast<std::uint16_t>((random() & 0x807fU) | 0x3f00U));
    } else if (dtype == DataType::kBool) {
      put(i, static_cast<std::uint8_t>(random() & 1U));
    } else {
      const std::uint64_t bits = random() * 0x9e3779b97f4a7c15U;
      std::memcpy(data.data() + i * size_of(dtype), &bits, size_of(dtype));
    }
  }
  return data;
}

/// One number per case: what the rank's result hashes to.
std::vector<std::size_t> run_cases(Group& group, const std::vector<Case>& cases) {
  std::map<DataType, std::vector<std::byte>> inputs;
  std::vector<std::size_t> digests;
  for (const Case& one : cases) {
    std::vector<std::byte>& input = inputs[one.dtype];
    const std::size_t bytes = one.count * size_of(one.dtype);
    if (input.empty()) input = input_of(group.rank(), one.dtype, is_full ? 1000003 : 65537);
    std::vector<std::byte> data(input.begin(), input.begin() + static_cast<std::ptrdiff_t>(bytes));
    Collective collective;
    collective.dtype = one.dtype;
    collective.count = one.count;
    collective.output = data.data();
    collective.algorithm = one.algorithm;
    collective.wire = one.wire;
    group.run(collective);
    digests.push_back(
        std::hash<std::string_view>{}({reinterpret_cast<const char*>(data.data()), data.size()}));
  }
  return digests;
}

/// What auto may pick between nodes gives the same bits, so that a table of CHAINMAIL_TUNING, even
/// a measured one, changes none. (Rings among more than eight nodes would; see plan_all_reduce().)
void expect_same_of_both_levels(const std::vector<Case>& cases,
                                const std::vector<std::size_t>& digests) {
  std::map<std::string, std::size_t> hierarchical;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    Case one = cases[i];
    if (one.algorithm == Algorithm::kHierarchical) hierarchical[one.describe()] = digests[i];
  }
  for (std::size_t i = 0; i < cases.size(); ++i) {
    Case one = cases[i];
    if (one.algorithm != Algorithm::kTwoDimensional) continue;
    one.algorithm = Algorithm::kHierarchical;
    EXPECT_EQ(digests[i], hierarchical.at(one.describe())) << cases[i].describe();
  }
}

class SameBits : public testing::TestWithParam<std::vector<int>> {};

TEST_P(SameBits, OnEveryRankAndInEveryRun) {
  const std::vector<Case> cases = all_cases();
  std::vector<std::size_t> expected;
  for (int run = 0; run < (is_full ? 10 : 3); ++run) {
    GroupOptions options;
    options.timeout = std::chrono::seconds{60};
    test::GroupMaker maker(GetParam(), test::TransportKind::kReal, options);
    std::vector<std::vector<std::size_t>> results(static_cast<std::size_t>(maker.size()));
    maker.run_ok([&](int rank, Group& group) {
      results[static_cast<std::size_t>(rank)] = run_cases(group, cases);
    });
    if (expected.empty()) expected = results[0];
    for (std::size_t rank = 0; rank < results.size(); ++rank) {
      ASSERT_EQ(results[rank].size(), cases.size());
      for (std::size_t i = 0; i < cases.size(); ++i) {
        ASSERT_EQ(results[rank][i], expected[i])
            << cases[i].describe() << ": rank " << rank << " in run " << run
            << " has other bits than rank 0 in run 0";
      }
    }
  }
  expect_same_of_both_levels(cases, expected);
}

std::string name_of(const testing::TestParamInfo<std::vector<int>>& info) {
  std::string name = "nodes";
  for (const int ranks : info.param) {
    name += '_';
    name += std::to_string(ranks);
  }
  return name;
}

using Shapes = std::vector<std::vector<int>>;
INSTANTIATE_TEST_SUITE_P(Some, SameBits, testing::ValuesIn(Shapes{{2}, {3, 1}, {2, 2}, {8}}),
                         name_of);
// Named so that the run without --full leaves them out.
INSTANTIATE_TEST_SUITE_P(Full, SameBits,
                         testing::ValuesIn(Shapes{
                             {3}, {4}, {5}, {6}, {7}, {1, 1}, {1, 2}, {2, 4}, {4, 4}, {2, 2, 2}}),
                         name_of);

}  // namespace
}  // namespace chainmail::ops

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]) == "--full") chainmail::ops::is_full = true;
  }
  if (!chainmail::ops::is_full) testing::GTEST_FLAG(filter) += ":-Full/*";
  return RUN_ALL_TESTS();
}
