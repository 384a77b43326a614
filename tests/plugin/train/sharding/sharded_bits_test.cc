// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Sharding::kNode and kAll give the parameters of Sharding::kNone, bit for bit.

#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "tests/plugin/support/thread_world.h"
#include "tests/plugin/train/sharding/sharded_training.h"

namespace chainmail {
namespace {

namespace optim = torch::optim;
using testing::CommPtr;
using testing::MakeOptimizer;
using testing::sliced;
using testing::Tensors;
using testing::Trained;

template <typename Optimizer, typename Options>
MakeOptimizer with(const Options& options) {
  return [options](Tensors parameters) -> std::unique_ptr<optim::Optimizer> {
    return std::make_unique<Optimizer>(std::move(parameters), options);
  };
}

struct ShardedKind {
  const char* name;
  MakeOptimizer make;
};

std::vector<ShardedKind> optimizers() {
  return {{"SGD", with<optim::SGD>(optim::SGDOptions(0.1))},
          {"momentum", with<optim::SGD>(optim::SGDOptions(0.1).momentum(0.9).weight_decay(0.01))},
          {"Adam", with<optim::Adam>(optim::AdamOptions(1e-2).amsgrad(true))},
          {"AdamW", with<optim::AdamW>(optim::AdamWOptions(1e-2))}};
}

std::vector<ShardedKind> without_fused_step() {
  return {
      {"RMSprop", with<optim::RMSprop>(optim::RMSpropOptions(1e-2).momentum(0.9).centered(true))},
      {"Adagrad", with<optim::Adagrad>(optim::AdagradOptions(1e-2))}};
}

void compare(const CommPtr& comm, const ShardedKind& kind, const std::vector<std::int64_t>& sizes,
             c10::ScalarType dtype, std::int64_t steps,
             const MultiNodeOptimizerOptions& options = {}) {
  Trained whole(comm, sizes, kind.make, options, dtype);
  Trained parts(comm, sizes, kind.make, sliced(options), dtype);
  // On one node kAll does what kNode does.
  std::optional<Trained> of_all;
  if (comm->inter_size() > 1) {
    of_all.emplace(comm, sizes, kind.make, sliced(options, Sharding::kAll), dtype);
  }
  for (std::int64_t step = 0; step < steps; ++step) {
    whole.step(step, comm->rank());
    parts.step(step, comm->rank());
    if (of_all) of_all->step(step, comm->rank());
  }
  const std::string what = std::string(kind.name) + " with " + comm->name();
  testing::expect_same(whole, parts, what);
  if (of_all) testing::expect_same(whole, *of_all, what + ", kAll");
}

TEST(ShardedBits, AHundredSteps) {
  const std::int64_t large = testing::is_long_form() ? 1000003 : 20011;
  const std::vector<int> shape_of_all_steps{2, 1};
  for (const auto& nodes :
       testing::or_all_shapes({{1}, {2}, {3}, {4}, {1, 1}, {2, 2}, {3, 3}, shape_of_all_steps})) {
    // Elsewhere a few show what depends on the shape; the long form takes all steps everywhere.
    const std::int64_t steps = testing::is_long_form() || nodes == shape_of_all_steps ? 100 : 10;
    testing::with_communicator(nodes, "two_dimensional", {}, [large, steps](const CommPtr& comm) {
      for (const ShardedKind& kind : optimizers()) {
        for (const auto dtype : {torch::kFloat, torch::kDouble}) {
          compare(comm, kind, {1, 63, 65, large}, dtype, steps);
        }
      }
    });
  }
}

TEST(ShardedBits, OneLargeParameter) {
  for (const auto& nodes : std::vector<std::vector<int>>{{3}, {2, 2}}) {
    testing::with_communicator(nodes, "two_dimensional", {}, [](const CommPtr& comm) {
      for (const std::size_t kind : {1UL, 2UL}) {
        compare(comm, optimizers()[kind], {1, 63, 65, 1000003}, torch::kFloat, 2);
      }
    });
  }
}

TEST(ShardedBits, OptimizersWithoutAFusedStep) {
  for (const auto& nodes : testing::or_all_shapes({{2}, {2, 2}})) {
    testing::with_communicator(nodes, "auto", {}, [](const CommPtr& comm) {
      for (const ShardedKind& kind : without_fused_step()) {
        compare(comm, kind, {1, 63, 65, 20011}, torch::kFloat, 20);
      }
      for (const ShardedKind& kind : optimizers()) {
        compare(comm, kind, {1, 63, 65, 20011}, torch::kFloat, 20, {.use_fused_step = false});
      }
    });
  }
}

TEST(ShardedBits, SixteenBitsBetweenNodes) {
  for (const auto wire : {torch::kHalf, torch::kBFloat16}) {
    for (const auto& nodes : testing::or_all_shapes({{2, 2}, {1, 1}, {3, 3}})) {
      CommunicatorOptions options;
      options.allreduce_grad_dtype = wire;
      testing::with_communicator(nodes, "two_dimensional", options, [](const CommPtr& comm) {
        compare(comm, optimizers()[2], {1, 63, 65, 20011}, torch::kFloat, 20);
        compare(comm, optimizers()[2], {300, 70000, 5}, torch::kFloat, 20,
                {.overlap = true, .bucket_bytes = 1 << 15, .first_bucket_bytes = 1 << 14});
      });
    }
  }
}

TEST(ShardedBits, DtypesBesideEachOther) {
  testing::with_communicator({2, 2}, "two_dimensional", {}, [](const CommPtr& comm) {
    const auto train = [&](const MultiNodeOptimizerOptions& options) {
      Tensors parameters = testing::make_parameters({5000, 70, 9000});
      parameters[1] = parameters[1].detach().to(torch::kDouble).requires_grad_();
      parameters[2] = parameters[2].detach().to(torch::kBFloat16).requires_grad_();
      const auto optimizer =
          create_multi_node_optimizer(optimizers()[3].make(parameters), comm, options);
      for (std::int64_t step = 0; step < 10; ++step) {
        optimizer->zero_grad();
        for (const torch::Tensor& parameter : parameters) {
          parameter.mutable_grad() = testing::gradient_of(parameter, step, comm->rank());
        }
        optimizer->step();
      }
      return parameters;
    };
    const Tensors whole = train({});
    const Tensors parts = train(sliced());
    for (std::size_t p = 0; p < whole.size(); ++p) {
      EXPECT_TRUE(testing::same_bits(whole[p], parts[p])) << p;
    }
  });
}

TEST(ShardedBits, LayoutsOfMemory) {
  testing::with_communicator({3}, "auto", {}, [](const CommPtr& comm) {
    const auto train = [&](const MultiNodeOptimizerOptions& options) {
      Tensors parameters{
          torch::linspace(-1, 1, 64 * 32 * 9)
              .view({64, 32, 3, 3})
              .contiguous(at::MemoryFormat::ChannelsLast)
              .requires_grad_(),
          torch::linspace(-1, 1, 300 * 70).view({300, 70}).t().detach().requires_grad_()};
      const auto optimizer =
          create_multi_node_optimizer(optimizers()[2].make(parameters), comm, options);
      for (std::int64_t step = 0; step < 10; ++step) {
        optimizer->zero_grad();
        for (const torch::Tensor& parameter : parameters) {
          parameter.mutable_grad() = testing::gradient_of(parameter, step, comm->rank());
        }
        optimizer->step();
      }
      return parameters;
    };
    const Tensors whole = train({});
    const Tensors parts = train(sliced());
    for (std::size_t p = 0; p < whole.size(); ++p) {
      EXPECT_TRUE(testing::same_bits(whole[p], parts[p])) << p;
    }
  });
}

}  // namespace
}  // namespace chainmail
