// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The same training with and without Sharding::kNode, for comparisons bit by bit. Gradients are set
// by hand from the values of parameters, step and rank, so that a difference grows.
//
// With --gtest_also_run_disabled_tests these tests take their long forms: all shapes of nodes,
// large parameters, many steps. tests/soak/sharding/sharding.sh runs them.

#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <chainmail/optimizer.h>

#include "tests/plugin/support/thread_world.h"
#include "tests/plugin/support/weights.h"

namespace chainmail::testing {

using CommPtr = std::shared_ptr<Communicator>;
using Tensors = std::vector<torch::Tensor>;
using MakeOptimizer = std::function<std::unique_ptr<torch::optim::Optimizer>(Tensors)>;

inline bool is_long_form() { return GTEST_FLAG_GET(also_run_disabled_tests); }

/// One to four ranks per node, one and two nodes, and uneven ones.
inline std::vector<std::vector<int>> all_shapes() {
  return {{1}, {2}, {3}, {4}, {1, 1}, {2, 2}, {3, 3}, {4, 4}, {2, 1}, {1, 3}};
}

/// `shapes`, or all of them in the long form.
inline std::vector<std::vector<int>> or_all_shapes(std::vector<std::vector<int>> shapes) {
  return is_long_form() ? all_shapes() : std::move(shapes);
}

/// Smaller and larger than a vector and than a slice.
inline const std::vector<std::int64_t> kMixedSizes = {1, 63, 9000, 65, 20011};

inline std::unique_ptr<torch::optim::Optimizer> make_fast_adam(Tensors parameters) {
  return std::make_unique<torch::optim::Adam>(std::move(parameters),
                                              torch::optim::AdamOptions(1e-2));
}

inline bool same_bits(const torch::Tensor& a, const torch::Tensor& b) {
  const torch::Tensor left = a.detach().contiguous();
  const torch::Tensor right = b.detach().contiguous();
  return left.sizes() == right.sizes() && left.scalar_type() == right.scalar_type() &&
         (left.numel() == 0 ||
          std::memcmp(left.const_data_ptr(), right.const_data_ptr(), left.nbytes()) == 0);
}

inline Tensors make_parameters(const std::vector<std::int64_t>& sizes,
                               c10::ScalarType dtype = torch::kFloat) {
  Tensors parameters;
  for (const std::int64_t size : sizes) {
    parameters.push_back(torch::linspace(-1, 1, size, torch::kDouble).to(dtype).requires_grad_());
  }
  return parameters;
}

/// Of many magnitudes, another for each rank and step.
inline torch::Tensor gradient_of(const torch::Tensor& parameter, std::int64_t step, int rank) {
  const torch::NoGradGuard no_grad;
  const double phase = 0.37 * static_cast<double>(step) + 1.7 * rank;
  // One pass where there are many, for long forms.
  if (parameter.numel() > 100000) return parameter.detach() * (0.01 * (rank + 1) * std::sin(phase));
  return (parameter.detach() * 3 + phase).sin().mul_(0.01 * (rank + 1)).pow(3);
}

/// One optimizer over its own parameters.
struct Trained {
  Tensors parameters;
  std::unique_ptr<MultiNodeOptimizer> optimizer;

  Trained(const CommPtr& comm, const std::vector<std::int64_t>& sizes, const MakeOptimizer& make,
          MultiNodeOptimizerOptions options, c10::ScalarType dtype = torch::kFloat)
      : parameters(make_parameters(sizes, dtype)),
        optimizer(create_multi_node_optimizer(make(parameters), comm, std::move(options))) {}

  /// `has(p)`: whether this rank has a gradient of parameter p.
  StepResult step(
      std::int64_t number, int rank,
      const std::function<bool(std::size_t)>& has = [](std::size_t) { return true; },
      double scale = 1) {
    optimizer->zero_grad();
    for (std::size_t p = 0; p < parameters.size(); ++p) {
      if (!has(p) || !parameters[p].requires_grad()) continue;
      parameters[p].mutable_grad() = gradient_of(parameters[p], number, rank) * scale;
    }
    return optimizer->step();
  }
};

/// Parameters and state, put together where they are in slices.
inline void expect_same(Trained& whole, Trained& sliced, const std::string& what) {
  ASSERT_EQ(whole.parameters.size(), sliced.parameters.size());
  for (std::size_t p = 0; p < whole.parameters.size(); ++p) {
    ASSERT_TRUE(same_bits(whole.parameters[p], sliced.parameters[p]))
        << what << ": parameter " << p;
  }
}

inline MultiNodeOptimizerOptions sliced(MultiNodeOptimizerOptions options = {},
                                        Sharding shard = Sharding::kNode) {
  options.shard = shard;
  return options;
}

inline MultiNodeOptimizerOptions shared(MultiNodeOptimizerOptions options = {}) {
  options.share_parameters = true;
  return sliced(std::move(options));
}

inline MultiNodeOptimizerOptions freed(MultiNodeOptimizerOptions options = {}) {
  options.free_gradients = true;
  return sliced(std::move(options));
}

inline std::vector<MultiNodeOptimizerOptions> all_sharded() {
  return {sliced(), sliced({}, Sharding::kAll), shared(), freed(),
          freed({.shard = Sharding::kNode, .share_parameters = true})};
}

}  // namespace chainmail::testing
