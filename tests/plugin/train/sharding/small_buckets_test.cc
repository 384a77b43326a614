// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Many small buckets on nodes of different sizes, where the ranks of one node come at moments of
// their own: all of them end, with the bits of an unsharded optimizer.

#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "tests/plugin/train/sharding/sharded_training.h"

namespace chainmail::testing {
namespace {

namespace nn = torch::nn;

constexpr std::int64_t kBucketBytes = 256 << 10;

// Some 3 MB of parameters in layers that do not fill buckets evenly.
Tensors train_in_buckets(const CommPtr& comm, MultiNodeOptimizerOptions options, int steps) {
  nn::Sequential model(nn::Linear(300, 700), nn::Tanh(), nn::Linear(700, 520), nn::Tanh(),
                       nn::Linear(520, 130), nn::Tanh(), nn::Linear(130, 7));
  fill(*model, 0.01);
  options.model = &model;
  options.overlap = true;
  options.bucket_bytes = kBucketBytes;
  options.first_bucket_bytes = kBucketBytes;
  const auto optimizer =
      create_multi_node_optimizer(make_fast_adam(model->parameters()), comm, std::move(options));
  for (int step = 0; step < steps; ++step) {
    optimizer->zero_grad();
    const torch::Tensor x = torch::linspace(-1, 1 + step + comm->rank(), 1200).view({4, 300});
    model->forward(x).pow(2).sum().backward();
    optimizer->step();
  }
  return model->parameters();
}

TEST(SmallBuckets, EndOnUnevenNodes) {
  const int steps = is_long_form() ? 400 : 6;
  for (const auto& nodes : or_all_shapes({{2, 1}, {1, 2}})) {
    with_communicator(nodes, "two_dimensional", {}, [&](const CommPtr& comm) {
      const Tensors whole = train_in_buckets(comm, {}, steps);
      for (const MultiNodeOptimizerOptions& options : all_sharded()) {
        const Tensors parts = train_in_buckets(comm, options, steps);
        for (std::size_t p = 0; p < whole.size(); ++p) {
          EXPECT_TRUE(same_bits(whole[p], parts[p])) << "parameter " << p;
        }
      }
    });
  }
}

}  // namespace
}  // namespace chainmail::testing
