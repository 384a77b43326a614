// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include <chainmail/dataset.h>
#include <chainmail/train/evaluator.h>

#include "tests/plugin/support/thread_world.h"

namespace chainmail {
namespace {

using ::testing::HasSubstr;
using CommPtr = std::shared_ptr<Communicator>;

TEST(Evaluator, WeighsByCount) {
  testing::with_communicator({2}, "flat", {}, [](const CommPtr& comm) {
    auto evaluator = create_multi_node_evaluator(
        [&] {
          Metrics metrics;
          if (comm->rank() == 0) {
            metrics.add("main/accuracy", 1.0, 7);
            metrics.add("main/accuracy", 0.5, 2);
          } else {
            metrics.add("main/accuracy", 0.0, 1);
          }
          return metrics;
        },
        comm);
    const auto means = evaluator.evaluate();
    EXPECT_DOUBLE_EQ(means.at("main/accuracy"), 0.8);
  });
}

// 106 samples in batches that do not divide them, over ranks that overlap: equals one process.
TEST(Evaluator, CountsNoSampleTwice) {
  std::vector<double> samples(106);
  double total = 0;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    samples[i] = std::sin(static_cast<double>(i));
    total += samples[i];
  }
  for (const int ranks : {1, 3, 4}) {
    testing::with_communicator({ranks}, "flat", {}, [&](const CommPtr& comm) {
      auto part = scatter_dataset(samples, comm, {.shuffle = true, .seed = 3}).without_duplicates();
      auto evaluator = create_multi_node_evaluator(
          [&] {
            Metrics metrics;
            const std::size_t size = part.size().value();
            for (std::size_t begin = 0; begin < size; begin += 7) {
              const std::size_t end = std::min(size, begin + 7);
              double sum = 0;
              for (std::size_t i = begin; i < end; ++i) sum += part.get(i);
              metrics.add("value", sum / static_cast<double>(end - begin),
                          static_cast<std::int64_t>(end - begin));
            }
            return metrics;
          },
          comm);
      EXPECT_NEAR(evaluator.evaluate().at("value"), total / 106, 1e-14);
    });
  }
}

TEST(Evaluator, AnEmptyShardIsFine) {
  testing::with_communicator({3}, "flat", {}, [](const CommPtr& comm) {
    Metrics metrics;
    if (comm->rank() == 1) metrics.add("loss", 2.5, 4);
    EXPECT_EQ(aggregate_metrics(metrics, *comm).means(),
              (std::map<std::string, double>{{"loss", 2.5}}));
    EXPECT_TRUE(aggregate_metrics(Metrics(), *comm).means().empty());
  });
}

TEST(Evaluator, KeepsNanAndInfinity) {
  testing::with_communicator({2}, "flat", {}, [](const CommPtr& comm) {
    Metrics metrics;
    metrics.add("nan", std::nan(""));
    metrics.add("infinite", std::numeric_limits<double>::infinity());
    const auto means = aggregate_metrics(metrics, *comm).means();
    EXPECT_TRUE(std::isnan(means.at("nan")));
    EXPECT_TRUE(std::isinf(means.at("infinite")));
  });
}

TEST(Evaluator, DifferentNamesAreAMismatchOnAllRanks) {
  const auto errors = testing::errors_with_communicator({3}, "flat", [](const CommPtr& comm) {
    Metrics metrics;
    metrics.add(comm->rank() == 2 ? "even" : "loss", 1.0);
    (void)aggregate_metrics(metrics, *comm);
  });
  for (const std::string& error : errors) {
    EXPECT_THAT(error, HasSubstr("rank 0 has loss; rank 2 has even"));
  }
}

TEST(Evaluator, AnErrorOnOneRankEndsAll) {
  const auto errors = testing::errors_with_communicator({2}, "flat", [](const CommPtr& comm) {
    auto evaluator = create_multi_node_evaluator(
        [&]() -> Metrics {
          if (comm->rank() == 1) throw std::runtime_error("no such sample");
          return {};
        },
        comm);
    (void)evaluator.evaluate();
  });
  for (const std::string& error : errors) {
    EXPECT_THAT(error, HasSubstr("rank 1 on host0: no such sample"));
  }
}

TEST(Metrics, RefusesNegativeCounts) {
  Metrics metrics;
  EXPECT_THROW(metrics.add("x", 1.0, -1), InvalidArgument);
  metrics.add("never", std::nan(""), 0);
  EXPECT_TRUE(metrics.means().empty());
}

}  // namespace
}  // namespace chainmail
