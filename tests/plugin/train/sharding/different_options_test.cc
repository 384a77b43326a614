// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Options of the multi-node optimizer that are not the same on all ranks: a MismatchError on all of
// them that names the option and both values, at construction.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <chainmail/error.h>
#include <chainmail/train/distributed_model.h>

#include "tests/plugin/train/sharding/sharded_training.h"

namespace chainmail::testing {
namespace {

namespace nn = torch::nn;
using ::testing::HasSubstr;

using Options = MultiNodeOptimizerOptions;

struct Difference {
  std::string option;
  std::string usual;  ///< on all ranks but one
  std::string other;
  std::function<void(Options&)> change;  ///< on that one
};

std::vector<Difference> all_differences() {
  const auto scaler = [](double growth) {
    return std::make_shared<LossScaler>(LossScalerOptions{.growth_factor = growth});
  };
  return {
      {"zero_fill", "true", "false", [](Options& o) { o.zero_fill = false; }},
      {"overlap", "false", "true", [](Options& o) { o.overlap = true; }},
      {"bucket_bytes", "unset", "4096", [](Options& o) { o.bucket_bytes = 4096; }},
      {"first_bucket_bytes", "1048576", "64", [](Options& o) { o.first_bucket_bytes = 64; }},
      {"double_buffering", "false", "true", [](Options& o) { o.double_buffering = true; }},
      {"max_grad_norm", "0", "0.1", [](Options& o) { o.max_grad_norm = 0.1; }},
      {"use_fused_step", "true", "false", [](Options& o) { o.use_fused_step = false; }},
      {"skip_nonfinite", "false", "true", [](Options& o) { o.skip_nonfinite = true; }},
      {"loss_scaler", "none", "{growth_factor 3", [=](Options& o) { o.loss_scaler = scaler(3); }},
      {"shard", "Sharding::kNode", "Sharding::kAll", [](Options& o) { o.shard = Sharding::kAll; }},
      {"is_elementwise", "false", "true", [](Options& o) { o.is_elementwise = true; }},
      {"share_parameters", "false", "true", [](Options& o) { o.share_parameters = true; }},
  };
}

// Expects a MismatchError on every rank with all of `texts`.
void expect_option_mismatch(const std::vector<std::string>& texts,
                            const std::function<void(const CommPtr&)>& use) {
  with_communicator({2, 1}, "two_dimensional", {}, [&](const CommPtr& comm) {
    try {
      use(comm);
      ADD_FAILURE() << "no error on rank " << comm->rank();
    } catch (const MismatchError& error) {
      for (const std::string& text : texts) EXPECT_THAT(error.what(), HasSubstr(text));
    }
  });
}

TEST(DifferentOptions, AreNamedWithBothValuesOnAllRanks) {
  for (const Difference& one : all_differences()) {
    expect_option_mismatch(
        {"same options", "rank 0 on host0 has 'option " + one.option + " = " + one.usual,
         "rank 1 on host0 has 'option " + one.option + " = " + one.other},
        [&](const CommPtr& comm) {
          Options options = sliced({.overlap = false});
          if (comm->rank() == 1) one.change(options);
          const Trained trained(comm, kMixedSizes, make_fast_adam, options);
        });
  }
  expect_option_mismatch(
      {"option free_gradients = false", "option free_gradients = true"}, [](const CommPtr& comm) {
        const Trained trained(
            comm, kMixedSizes, make_fast_adam,
            comm->rank() == 2 ? freed({.overlap = true}) : sliced({.overlap = true}));
      });
}

TEST(DifferentOptions, OfUnshardedOptimizersAndOfWhatTheyGet) {
  expect_option_mismatch({"'option shard = Sharding::kNone'", "'option shard = Sharding::kNode'"},
                         [](const CommPtr& comm) {
                           const Trained trained(comm, kMixedSizes, make_fast_adam,
                                                 comm->rank() == 0 ? Options() : sliced());
                         });
  expect_option_mismatch({"growth_interval 7", "growth_interval 8"}, [](const CommPtr& comm) {
    const auto scaler = std::make_shared<LossScaler>(
        LossScalerOptions{.growth_interval = comm->rank() == 0 ? 7 : 8});
    const Trained trained(comm, kMixedSizes, make_fast_adam, {.loss_scaler = scaler});
  });
  expect_option_mismatch(
      {"'option model = given'", "'option model = none'"}, [](const CommPtr& comm) {
        nn::Linear model(3, 2);
        (void)create_multi_node_optimizer(make_fast_adam(model->parameters()), comm,
                                          comm->rank() == 1 ? Options() : Options{.model = &model});
      });
  expect_option_mismatch({"'option bucket_bytes = 512'", "'option bucket_bytes = 1024'"},
                         [](const CommPtr& comm) {
                           const nn::Linear model(3, 2);
                           const DistributedModel distributed(
                               model, comm, {.bucket_bytes = comm->rank() == 0 ? 512 : 1024});
                         });
}

// Of a model that differs, too, the option comes first; the model is not made to look like one.
TEST(DifferentOptions, AreNotConfusedWithModelsThatDiffer) {
  expect_option_mismatch(
      {"do not train the same model", "param_groups[0][1] [5]"}, [](const CommPtr& comm) {
        const Trained trained(comm, {3, comm->rank() == 0 ? 4 : 5}, make_fast_adam, sliced());
      });
}

TEST(DifferentOptions, ThatComeToTheSameAreNone) {
  with_communicator({2}, "two_dimensional", {}, [](const CommPtr& comm) {
    const auto scaler = std::make_shared<LossScaler>(
        LossScalerOptions{.initial_scale = comm->rank() == 0 ? 2.0 : 4.0});
    Options options = sliced({.loss_scaler = scaler});
    if (comm->rank() == 1) options.overlap = false;  // what unset is on one node
    Trained trained(comm, kMixedSizes, make_fast_adam, options);
    EXPECT_TRUE(trained.step(0, comm->rank()).is_applied);
  });
}

}  // namespace
}  // namespace chainmail::testing
