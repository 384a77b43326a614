// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Gradients that are freed when the means of their bucket are known: the bits of those that stay,
// in the memory of a few buckets, and what is left of them.

#include <array>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "plugin/train/gradients/bucket_pool.h"
#include "tests/plugin/support/thread_world.h"
#include "tests/plugin/support/weights.h"
#include "tests/plugin/train/sharding/sharded_training.h"

namespace chainmail {
namespace {

namespace nn = torch::nn;
namespace optim = torch::optim;
using testing::CommPtr;
using testing::freed;
using ::testing::HasSubstr;
using testing::make_fast_adam;
using testing::shared;
using testing::sliced;
using testing::Tensors;
using testing::Trained;

// Of 18 parameters and some 110000 numbers. Registered from the last layer to the first it finishes
// its gradients in the order in which no bucket can start before all are there.
struct TowerImpl final : nn::Module {
  explicit TowerImpl(bool is_backwards) {
    for (std::size_t i = 0; i < layers.size(); ++i) {
      const std::size_t at = is_backwards ? layers.size() - 1 - i : i;
      const std::int64_t in = at == 0 ? 40 : 120;
      layers.at(at) = register_module("layer" + std::to_string(at),
                                      nn::Linear(in, at + 1 == layers.size() ? 3 : 120));
    }
    testing::fill(*this, 0.1);
  }
  torch::Tensor forward(torch::Tensor x) {
    for (nn::Linear& layer : layers) x = torch::tanh(layer->forward(x));
    return x;
  }
  std::array<nn::Linear, 9> layers{nullptr, nullptr, nullptr, nullptr, nullptr,
                                   nullptr, nullptr, nullptr, nullptr};
};
TORCH_MODULE(Tower);

MultiNodeOptimizerOptions in_small_buckets(MultiNodeOptimizerOptions options = {}) {
  options.overlap = true;
  options.bucket_bytes = 1 << 15;
  options.first_bucket_bytes = 1 << 12;
  return options;
}

torch::Tensor input_for(int step, int rank) {
  return torch::linspace(-1, 1 + step + rank, 200).view({5, 40});
}

Tensors train_tower(const CommPtr& comm, MultiNodeOptimizerOptions options, bool is_backwards) {
  Tower model(is_backwards);
  options.model = &model;
  const auto optimizer =
      create_multi_node_optimizer(make_fast_adam(model->parameters()), comm, std::move(options));
  for (int step = 0; step < 8; ++step) {
    optimizer->zero_grad();
    if (step == 5) {
      const NoSync local = optimizer->no_sync();
      model->forward(input_for(step + 1, comm->rank())).sum().backward();
    }
    model->forward(input_for(step, comm->rank())).pow(2).sum().backward();
    optimizer->step();
  }
  return model->parameters();
}

TEST(FreedGradients, GiveTheSameBits) {
  for (const auto& nodes : testing::or_all_shapes({{1}, {2}, {3}, {2, 2}, {2, 1}})) {
    for (const auto wire : {torch::kFloat, torch::kHalf}) {
      CommunicatorOptions how;
      how.allreduce_grad_dtype = wire;
      testing::with_communicator(nodes, "two_dimensional", how, [](const CommPtr& comm) {
        for (const bool is_backwards : {false, true}) {
          MultiNodeOptimizerOptions options = in_small_buckets();
          options.max_grad_norm = is_backwards ? 0.01 : 0;
          const Tensors whole = train_tower(comm, options, is_backwards);
          const Tensors freed_ones = train_tower(comm, freed(options), is_backwards);
          const Tensors shared_ones = train_tower(comm, shared(freed(options)), is_backwards);
          const Tensors of_all =
              train_tower(comm, sliced(freed(options), Sharding::kAll), is_backwards);
          for (std::size_t p = 0; p < whole.size(); ++p) {
            EXPECT_TRUE(testing::same_bits(whole[p], freed_ones[p])) << p;
            EXPECT_TRUE(testing::same_bits(whole[p], shared_ones[p])) << p;
            EXPECT_TRUE(testing::same_bits(whole[p], of_all[p])) << p;
          }
        }
      });
    }
  }
}

// Set by hand, and not by all ranks.
TEST(FreedGradients, WithoutABackward) {
  testing::with_communicator({2, 2}, "auto", {}, [](const CommPtr& comm) {
    const std::vector<std::int64_t> sizes = {1, 63, 9000, 65, 20011, 9000, 9000, 9000};
    Trained whole(comm, sizes, make_fast_adam, in_small_buckets());
    Trained parts(comm, sizes, make_fast_adam, freed(in_small_buckets()));
    for (std::int64_t step = 0; step < 12; ++step) {
      const auto has = [&](std::size_t p) {
        if (p == 4 && step < 3) return false;  // nobody
        return p != 1 || comm->rank() == static_cast<int>(step) % comm->size();
      };
      whole.step(step, comm->rank(), has);
      parts.step(step, comm->rank(), has);
    }
    testing::expect_same(whole, parts, "freed");
  });
}

TEST(FreedGradients, TakeTheMemoryOfAFewBuckets) {
  testing::with_communicator({2}, "auto", {}, [](const CommPtr& comm) {
    const std::vector<std::int64_t> sizes(30, 9000);
    Trained whole(comm, sizes, make_fast_adam, in_small_buckets());
    Trained parts(comm, sizes, make_fast_adam, freed(in_small_buckets()));
    whole.step(0, comm->rank());
    parts.step(0, comm->rank());
    // Half of the means, and three buckets of at most two parameters.
    EXPECT_LT(parts.optimizer->gradient_bytes(), whole.optimizer->gradient_bytes() * 3 / 4);
    EXPECT_GT(parts.optimizer->gradient_bytes(), whole.optimizer->gradient_bytes() * 2 / 5);
  });
}

// What each rank has of the means is what all have without sharding, and nothing is missing.
TEST(FreedGradients, AreLeftInShards) {
  testing::with_communicator({2, 2}, "auto", {}, [](const CommPtr& comm) {
    for (const bool frees : {false, true}) {
      Tower whole(false);
      Tower parts(false);
      MultiNodeOptimizerOptions options = in_small_buckets();
      options.model = &whole;
      const auto plain =
          create_multi_node_optimizer(make_fast_adam(whole->parameters()), comm, options);
      options.model = &parts;
      const auto cut = create_multi_node_optimizer(make_fast_adam(parts->parameters()), comm,
                                                   frees ? freed(options) : sliced(options));
      EXPECT_TRUE(cut->gradient_shards().empty());
      whole->forward(input_for(0, comm->rank())).sum().backward();
      parts->forward(input_for(0, comm->rank())).sum().backward();
      std::map<std::string, std::int64_t> elements;
      for (const GradientShard& shard : cut->gradient_shards()) {
        const torch::Tensor mean = whole->named_parameters()[shard.name].grad().view({-1});
        EXPECT_TRUE(testing::same_bits(mean.slice(0, shard.begin, shard.end), shard.gradient));
        EXPECT_TRUE(shard.parameter.is_same(parts->named_parameters()[shard.name]));
        elements[shard.name] += shard.end - shard.begin;
        shard.gradient.mul_(2);  // and step() takes what it has become
      }
      for (const torch::Tensor& parameter : whole->parameters()) parameter.grad().mul_(2);
      for (const auto& named : parts->named_parameters()) {
        std::int64_t all = 0;
        for (const std::int64_t own : comm->allgather_obj(elements[named.key()])) all += own;
        EXPECT_EQ(all, named.value().numel() * comm->inter_size()) << named.key();
      }
      plain->step();
      cut->step();
      EXPECT_TRUE(cut->gradient_shards().empty());
      for (std::size_t p = 0; p < whole->parameters().size(); ++p) {
        EXPECT_TRUE(testing::same_bits(whole->parameters()[p], parts->parameters()[p])) << p;
      }
    }
  });
}

TEST(BucketPool, HasNoMoreThanItsBuffers) {
  internal::BucketPool pool;
  Tensors rows;
  for (std::size_t i = 0; i < internal::BucketPool::kBuffers; ++i) {
    rows.push_back(pool.take(100, torch::kFloat));
  }
  EXPECT_THAT([&] { (void)pool.take(1, torch::kFloat); },
              ::testing::ThrowsMessage<InvalidArgument>(HasSubstr("zero_grad()")));
  pool.give_back(rows[1]);
  EXPECT_EQ(pool.take(100, torch::kFloat).data_ptr(), rows[1].data_ptr());
}

// The last bucket cannot be filled, when others are on their way.
TEST(FreedGradients, GoOnAfterAnExchangeThatHasFailed) {
  testing::with_communicator({2, 2}, "auto", {}, [](const CommPtr& comm) {
    const std::vector<std::int64_t> sizes(8, 9000);
    Trained whole(comm, sizes, make_fast_adam, in_small_buckets());
    Trained parts(comm, sizes, make_fast_adam, freed(in_small_buckets()));
    for (std::int64_t step = 0; step < 4; ++step) {
      if (step % 2 == 1) {
        for (const torch::Tensor& parameter : parts.parameters) {
          parameter.mutable_grad() = torch::ones_like(parameter);
        }
        parts.parameters[0].mutable_grad() = torch::ones({5});
        EXPECT_THROW(parts.optimizer->step(), InvalidArgument);
      }
      whole.step(step, comm->rank());
      parts.step(step, comm->rank());
    }
    testing::expect_same(whole, parts, "after an exchange that has failed");
  });
}

TEST(FreedGradients, GoOnAfterABackwardWhoseExchangeHasFailed) {
  testing::with_communicator({2}, "auto", {}, [](const CommPtr& comm) {
    const auto train = [&](MultiNodeOptimizerOptions options, bool fails) {
      Tower model(false);
      const torch::Tensor unused = torch::ones({7}).requires_grad_();
      Tensors parameters = {unused};
      for (const torch::Tensor& parameter : model->parameters()) parameters.push_back(parameter);
      const auto optimizer =
          create_multi_node_optimizer(make_fast_adam(parameters), comm, std::move(options));
      for (int step = 0; step < 4; ++step) {
        optimizer->zero_grad();
        const torch::Tensor loss = model->forward(input_for(step, comm->rank())).pow(2).sum();
        if (fails && step % 2 == 1) {
          unused.mutable_grad() = torch::ones({5});
          EXPECT_THROW(loss.backward({}, /*retain_graph=*/true), InvalidArgument);
          optimizer->zero_grad();
        }
        loss.backward();
        optimizer->step();
      }
      return model->parameters();
    };
    const Tensors whole = train(in_small_buckets(), false);
    const Tensors parts = train(freed(in_small_buckets()), true);
    const Tensors kept = train(sliced(in_small_buckets()), true);
    for (std::size_t p = 0; p < whole.size(); ++p) {
      EXPECT_TRUE(testing::same_bits(whole[p], parts[p])) << p;
      EXPECT_TRUE(testing::same_bits(whole[p], kept[p])) << p;
    }
  });
}

TEST(FreedGradients, MissingOnesAreNamedWithoutZeroFill) {
  const std::vector<std::int64_t> sizes = {1, 63, 9000, 65, 20011, 9000, 9000};
  const auto errors = testing::errors_with_communicator({2, 2}, "auto", [&](const CommPtr& comm) {
    MultiNodeOptimizerOptions options = in_small_buckets();
    options.zero_fill = false;
    Trained parts(comm, sizes, make_fast_adam, freed(options));
    parts.step(0, comm->rank(), [&](std::size_t p) { return p != 3 || comm->rank() == 0; });
  });
  for (const std::string& error : errors) EXPECT_THAT(error, HasSubstr("param_groups[0][3]"));
}

TEST(FreedGradients, WhatCannotBeDoneIsRefused) {
  const auto expect = [](const std::string& why, const MultiNodeOptimizerOptions& options) {
    const auto errors = testing::errors_with_communicator({2}, "auto", [&](const CommPtr& comm) {
      const Trained parts(comm, {5, 6}, make_fast_adam, options);
    });
    for (const std::string& error : errors) EXPECT_THAT(error, HasSubstr(why));
  };
  expect("free_gradients goes with Sharding::kNode", {.free_gradients = true});
  expect("free_gradients and double_buffering", freed({.double_buffering = true}));
  expect("leave .overlap = false", freed({.overlap = false}));
  expect("leave .overlap = false", freed({.bucket_bytes = 0}));
  const auto errors = testing::errors_with_communicator({2}, "auto", [](const CommPtr& comm) {
    Trained whole(comm, {5, 6}, make_fast_adam, {});
    (void)whole.optimizer->gradient_shards();
  });
  for (const std::string& error : errors) EXPECT_THAT(error, HasSubstr("without .shard"));
}

}  // namespace
}  // namespace chainmail
