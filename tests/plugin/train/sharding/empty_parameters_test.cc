// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Parameters without elements, of which no rank has a slice: an optimizer keeps state of them all
// the same, on every rank.

#include <optional>
#include <vector>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "plugin/train/sharding/state/parameter_state.h"
#include "tests/plugin/train/sharding/sharded_training.h"

namespace chainmail::testing {
namespace {

namespace optim = torch::optim;

std::optional<internal::ParameterState> kept_state(const Trained& one, std::size_t parameter) {
  return internal::read_state(one.optimizer->actual_optimizer(), one.parameters[parameter]);
}

void expect_same_states(const Trained& whole, const Trained& parts) {
  for (std::size_t p = 0; p < whole.parameters.size(); ++p) {
    const auto expected = kept_state(whole, p);
    const auto got = kept_state(parts, p);
    ASSERT_EQ(got.has_value(), expected.has_value()) << p;
    if (!expected) continue;
    EXPECT_EQ(got->step, expected->step) << p;
    ASSERT_EQ(got->tensors.size(), expected->tensors.size());
    for (std::size_t t = 0; t < got->tensors.size(); ++t) {
      ASSERT_EQ(got->tensors[t].defined(), expected->tensors[t].defined()) << p;
      if (!got->tensors[t].defined()) continue;
      EXPECT_TRUE(same_bits(got->tensors[t], expected->tensors[t])) << p;
    }
  }
}

TEST(EmptyParameters, HaveTheStateThatTorchGivesThem) {
  const std::vector<MakeOptimizer> makers = {
      make_fast_adam, [](Tensors all) { return std::make_unique<optim::AdamW>(all, 1e-2); },
      [](Tensors all) {
        return std::make_unique<optim::SGD>(all, optim::SGDOptions(1e-2).momentum(0.9));
      },
      [](Tensors all) { return std::make_unique<optim::RMSprop>(all, 1e-2); },
      [](Tensors all) { return std::make_unique<optim::Adagrad>(all, 1e-2); }};
  for (const MultiNodeOptimizerOptions& options : all_sharded()) {
    with_communicator({2, 1}, "two_dimensional", {}, [&](const CommPtr& comm) {
      for (const MakeOptimizer& make : makers) {
        MultiNodeOptimizerOptions clips = options;
        clips.max_grad_norm = 1e-3;
        Trained whole(comm, {0, 5000, 0, 63, 0}, make, {.max_grad_norm = 1e-3});
        Trained parts(comm, {0, 5000, 0, 63, 0}, make, clips);
        for (std::int64_t step = 0; step < 9; ++step) {
          // The third one only from the fourth step on, and the first one on one rank alone.
          const auto has = [&](std::size_t p) {
            return p == 2 ? step > 3 : p != 0 || comm->rank() == 1;
          };
          whole.step(step, comm->rank(), has);
          parts.step(step, comm->rank(), has);
          if (step % 3 != 1) continue;
          parts.optimizer->gather_state();
          expect_same_states(whole, parts);
        }
        expect_same(whole, parts, "with empty ones");
      }
    });
  }
}

TEST(EmptyParameters, AloneAreTrained) {
  with_communicator({2}, "two_dimensional", {}, [](const CommPtr& comm) {
    Trained whole(comm, {0, 0}, make_fast_adam, {});
    Trained parts(comm, {0, 0}, make_fast_adam, sliced());
    for (std::int64_t step = 0; step < 3; ++step) {
      whole.step(step, comm->rank());
      EXPECT_TRUE(parts.step(step, comm->rank()).is_applied);
    }
    parts.optimizer->gather_state();
    expect_same_states(whole, parts);
  });
}

// They have no slices to look at, which means no more steps without looking.
TEST(EmptyParameters, MayBeLookedAtBeforeAStep) {
  with_communicator({2}, "two_dimensional", {}, [](const CommPtr& comm) {
    Trained parts(comm, {0, 5000}, make_fast_adam, sliced());
    for (std::int64_t step = 0; step < 3; ++step) {
      parts.optimizer->zero_grad();
      (parts.parameters[1].sum() + parts.parameters[0].sum()).backward();
      for (const GradientShard& shard : parts.optimizer->gradient_shards()) {
        EXPECT_LT(shard.begin, shard.end) << shard.name;
      }
      EXPECT_TRUE(parts.optimizer->step().is_applied);
    }
    parts.optimizer->gather_state();
    EXPECT_EQ(kept_state(parts, 0)->step, 3);
  });
}

}  // namespace
}  // namespace chainmail::testing
