// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Decisions and values that are the same on all ranks: triggers, aggregated observations and the
// generic evaluator.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <stdexcept>

#include <chainmail/train/evaluator.h>
#include <chainmail/train/triggers.h>

#include "tests/plugin/support/thread_world.h"

namespace chainmail {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using CommPtr = std::shared_ptr<Communicator>;

void on_small_jobs(const std::function<void(const CommPtr&)>& body) {
  for (const char* name : {"naive", "flat", "hierarchical", "two_dimensional", "auto"}) {
    for (const std::vector<int>& shape :
         std::vector<std::vector<int>>{{1}, {2}, {3}, {4}, {2, 2}, {3, 1}}) {
      SCOPED_TRACE(name);
      testing::with_communicator(shape, name, {}, body);
    }
  }
  for (const int ranks : {1, 2, 3, 4}) {
    testing::with_communicator({ranks}, "single_node", {}, body);
  }
}

TEST(IntervalTrigger, CountsPeriods) {
  IntervalTrigger epochs({2, IntervalUnit::kEpoch});
  IntervalTrigger iterations({3, IntervalUnit::kIteration});
  std::string at_epochs;
  std::string at_iterations;
  for (std::int64_t i = 1; i <= 12; ++i) {
    const TrainingPoint point{i / 3, i};
    at_epochs += epochs.fires(point) ? 'x' : '.';
    at_iterations += iterations.fires(point) ? 'x' : '.';
  }
  EXPECT_EQ(at_epochs, ".....x.....x");
  EXPECT_EQ(at_iterations, "..x..x..x..x");
  EXPECT_TRUE(iterations.fires({0, 30}));  // several periods at once fire once
  EXPECT_FALSE(iterations.fires({0, 31}));
  EXPECT_THROW(IntervalTrigger({0, IntervalUnit::kEpoch}), InvalidArgument);
}

// Two iterations per epoch: the best epoch is the fourth; the fifth to seventh bring no progress,
// nor does the eighth.
TEST(EarlyStopping, SixteenScriptedAccuracies) {
  const std::vector<double> script = {0.5, 0.5, 0.5, 0.5, 0.6, 0.6, 0.7, 0.7,
                                      0.6, 0.6, 0.4, 0.4, 0.3, 0.3, 0.2, 0.2};
  on_small_jobs([&](const CommPtr& comm) {
    EarlyStoppingOptions options;
    options.monitor = "main/accuracy";
    MultiNodeEarlyStoppingTrigger whole(comm, options);
    auto resumed = std::make_unique<MultiNodeEarlyStoppingTrigger>(comm, options);
    const double factor = 1.0 - static_cast<double>(comm->rank()) / comm->size();
    double mean_factor = 0;
    for (int r = 0; r < comm->size(); ++r) {
      mean_factor += (1.0 - static_cast<double>(r) / comm->size()) / comm->size();
    }
    std::string fired;
    for (std::int64_t i = 1; i <= 16; ++i) {
      const double value = script[static_cast<std::size_t>(i - 1)];
      Observation observation{{"main/accuracy", value * factor}};
      const bool fires = whole.fires({i / 2, i}, observation);
      fired += fires ? 'x' : '.';
      EXPECT_EQ(observation.count("main/accuracy_aggregated"), i % 2 == 0 ? 1U : 0U);
      if (i % 2 == 0) {
        EXPECT_NEAR(observation.at("main/accuracy_aggregated"), value * mean_factor, 1e-12);
      }
      // A trigger that was stopped and gone on with after every iteration decides alike.
      EXPECT_EQ(resumed->fires({i / 2, i}, observation), fires);
      const EarlyStoppingState state = resumed->state();
      resumed = std::make_unique<MultiNodeEarlyStoppingTrigger>(comm, options);
      resumed->load_state(state);
    }
    EXPECT_EQ(fired, ".............x.x");
  });
}

TEST(EarlyStopping, ModesPatienceMaximumAndNan) {
  testing::with_communicator({2, 1}, "flat", {}, [](const CommPtr& comm) {
    const auto run = [&](const EarlyStoppingOptions& options, const std::vector<double>& values) {
      MultiNodeEarlyStoppingTrigger trigger(comm, options);
      std::string fired;
      for (std::size_t i = 0; i < values.size(); ++i) {
        Observation observation;
        if (comm->rank() == 1) {
          observation[options.monitor] = values[i];  // one rank has metrics
        }
        const auto done = static_cast<std::int64_t>(i) + 1;
        fired += trigger.fires({done, done}, observation) ? 'x' : '.';
      }
      return fired;
    };
    EarlyStoppingOptions options;
    EXPECT_EQ(run(options, {3, 2, 1, 1, 1, 1}), ".....x");  // main/loss: smaller is better
    options.patience = 1;
    EXPECT_EQ(run(options, {3, 4, 2, 2}), ".x.x");
    options.mode = StoppingMode::kMax;
    EXPECT_EQ(run(options, {3, 4, 2, 5}), "..x.");
    EXPECT_EQ(run(options, {3, std::nan(""), 4}), ".x.");
    options.max_trigger = {2, IntervalUnit::kIteration};
    EXPECT_EQ(run(options, {1, 2, 3}), ".xx");
    options.patience = 0;
    EXPECT_THROW(run(options, {}), InvalidArgument);
  });
}

TEST(ObservationAggregator, NeedsACommunicator) {
  EXPECT_THROW(ObservationAggregator(nullptr, "loss", {}), InvalidArgument);
  EXPECT_THROW(MultiNodeEarlyStoppingTrigger(nullptr, {}), InvalidArgument);
}

TEST(ObservationAggregator, MeanOfTheRanksAtItsInterval) {
  on_small_jobs([](const CommPtr& comm) {
    for (const std::int64_t period : {1, 2}) {
      ObservationAggregatorOptions options;
      options.comm_trigger.period = period;
      ObservationAggregator aggregator(comm, "rank", options);
      for (std::int64_t i = 1; i <= 4; ++i) {
        Observation observation{{"rank", comm->rank()}};
        aggregator.update({0, i}, observation);
        ASSERT_EQ(observation.count("rank_aggregated"), i % period == 0 ? 1U : 0U);
        if (i % period == 0) {
          EXPECT_DOUBLE_EQ(observation.at("rank_aggregated"), (comm->size() - 1) / 2.0);
        }
      }
    }
  });
}

TEST(ObservationAggregator, OwnAggregatorsAndMissingValues) {
  testing::with_communicator({3}, "flat", {}, [](const CommPtr& comm) {
    ObservationAggregatorOptions options;
    options.aggregated_key = "lengths";
    options.comm_trigger.period = 2;
    options.aggregator = [](const std::vector<std::vector<double>>& lists) {
      double text = 0;
      for (const auto& list : lists) text = 10 * text + static_cast<double>(list.size());
      return text;
    };
    ObservationAggregator aggregator(comm, "x", options);
    Observation observation;
    aggregator.update({0, 1}, observation = {{"x", 1.0}});
    aggregator.update({0, 2},
                      observation = comm->rank() == 1 ? Observation{{"x", 2.0}} : Observation{});
    EXPECT_EQ(observation.at("lengths"), 121);
    aggregator.update({0, 4}, observation = {});
    EXPECT_TRUE(observation.empty());  // nobody had a value
  });
  const auto errors = testing::errors_with_communicator({2}, "flat", [](const CommPtr& comm) {
    ObservationAggregatorOptions options;
    options.aggregator = [](const auto&) -> double { throw std::runtime_error("too few"); };
    ObservationAggregator aggregator(comm, "x", options);
    Observation observation{{"x", 1.0}};
    aggregator.update({0, 1}, observation);
  });
  EXPECT_THAT(errors, Each(HasSubstr("too few")));
}

// 97 and 9 samples in batches of 7 and 77, or all on one rank.
TEST(GenericEvaluator, UnevenShardsEqualOneProcess) {
  on_small_jobs([](const CommPtr& comm) {
    for (int root = 0; root < comm->size(); ++root) {
      for (const auto& [size, batch] : std::vector<std::pair<int, int>>{{97, 7}, {9, 77}}) {
        int next = comm->rank();  // every size-th sample is this rank's
        const auto calc_local = [&, size = size,
                                 batch = batch]() -> std::optional<std::vector<int>> {
          std::vector<int> samples;
          for (; next < size && samples.size() < static_cast<std::size_t>(batch);
               next += comm->size()) {
            samples.push_back(next);
          }
          return samples.empty() ? std::nullopt : std::optional(samples);
        };
        GenericMultiNodeEvaluator<std::vector<int>, int> evaluator(
            comm, calc_local,
            [](const std::vector<std::vector<int>>& all) {
              int sum = 0;
              for (const auto& samples : all) {
                sum = std::accumulate(samples.begin(), samples.end(), sum);
              }
              return sum;
            },
            root);
        const std::optional<int> result = evaluator.evaluate();
        ASSERT_EQ(result.has_value(), comm->rank() == root);
        if (result) {
          EXPECT_EQ(*result, size * (size - 1) / 2);
        }
      }
    }
  });
}

TEST(GenericEvaluator, ARootThatDoesNotExistIsRefusedAtOnce) {
  testing::with_communicator({2}, "flat", {}, [](const CommPtr& comm) {
    using Evaluator = GenericMultiNodeEvaluator<int, int>;
    const auto calc_local = []() -> std::optional<int> { return std::nullopt; };
    const auto aggregate = [](const std::vector<int>& /*all*/) { return 0; };
    EXPECT_THROW(Evaluator(comm, calc_local, aggregate, 2), InvalidArgument);
    EXPECT_THROW(Evaluator(comm, calc_local, aggregate, -1), InvalidArgument);
    EXPECT_EQ(Evaluator(comm, calc_local, aggregate, 1).evaluate().has_value(), comm->rank() == 1);
  });
}

TEST(GenericEvaluator, OrderIsRoundByRound) {
  testing::with_communicator({2, 1}, "flat", {}, [](const CommPtr& comm) {
    int left = comm->rank() == 1 ? 0 : comm->rank() + 1;  // 1, 0 and 3 batches
    GenericMultiNodeEvaluator<std::string, std::string> evaluator(
        comm,
        [&]() -> std::optional<std::string> {
          return left == 0 ? std::nullopt
                           : std::optional(std::to_string(comm->rank()) + std::to_string(left--));
        },
        [](const std::vector<std::string>& all) {
          std::string text;
          for (const std::string& item : all) text += item + ' ';
          return text;
        });
    EXPECT_EQ(evaluator.evaluate(),
              comm->rank() == 0 ? std::optional<std::string>("01 23 22 21 ") : std::nullopt);
  });
}

TEST(GenericEvaluator, AnErrorOnOneRankEndsAll) {
  const auto errors = testing::errors_with_communicator({2}, "flat", [](const CommPtr& comm) {
    GenericMultiNodeEvaluator<int, int> evaluator(
        comm,
        [&]() -> std::optional<int> {
          if (comm->rank() == 1) throw std::runtime_error("no such sample");
          return std::nullopt;
        },
        [](const std::vector<int>&) { return 0; });
    (void)evaluator.evaluate();
  });
  EXPECT_THAT(errors, Each(HasSubstr("rank 1 on host0: no such sample")));
}

}  // namespace
}  // namespace chainmail
