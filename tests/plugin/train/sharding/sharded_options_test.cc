// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Sharding::kNode beside everything else that a multi-node optimizer does: the same bits as kNone,
// and errors by name where it cannot.

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "plugin/train/communicator/communicator_impl.h"
#include "tests/plugin/train/sharding/sharded_training.h"

namespace chainmail::testing {
namespace {

namespace nn = torch::nn;
namespace optim = torch::optim;
using ::testing::HasSubstr;

// On one node kAll does what kNode does.
void on_all_shapes(const std::function<void(const CommPtr&, Sharding)>& body) {
  for (const auto& nodes : or_all_shapes({{2}, {3}, {2, 2}})) {
    with_communicator(nodes, "two_dimensional", {}, [&](const CommPtr& comm) {
      body(comm, Sharding::kNode);
      if (comm->inter_size() > 1) body(comm, Sharding::kAll);
    });
  }
}

TEST(ShardedOptions, ClippingAndTheNorm) {
  on_all_shapes([](const CommPtr& comm, Sharding shard) {
    Trained whole(comm, kMixedSizes, make_fast_adam, {.max_grad_norm = 1e-6});
    Trained parts(comm, kMixedSizes, make_fast_adam, sliced({.max_grad_norm = 1e-6}, shard));
    for (std::int64_t step = 0; step < 20; ++step) {
      const StepResult expected = whole.step(step, comm->rank());
      const StepResult result = parts.step(step, comm->rank());
      EXPECT_GT(expected.grad_norm, 1e-6);
      EXPECT_EQ(result.grad_norm, expected.grad_norm) << "step " << step;
    }
    expect_same(whole, parts, "clipped");
  });
}

// Of gradients whose mean is the same however many ranks there are.
TEST(ShardedOptions, TheNormIsTheSameForAnyRanksAndNodes) {
  std::vector<double> norms;
  for (const auto& nodes : std::vector<std::vector<int>>{{1}, {2}, {3}, {4}, {1, 1}, {2, 2}}) {
    for (const Sharding shard : {Sharding::kNone, Sharding::kNode, Sharding::kAll}) {
      with_communicator(nodes, "two_dimensional", {}, [&](const CommPtr& comm) {
        const Tensors parameters = make_parameters(kMixedSizes);
        const auto optimizer = create_multi_node_optimizer(
            make_fast_adam(parameters), comm, {.skip_nonfinite = true, .shard = shard});
        for (const torch::Tensor& parameter : parameters) {
          // Sums of up to four such numbers are exact, and so is a mean of equal ones but for
          // three.
          parameter.mutable_grad() =
              (parameter.detach() * 1000).sin().mul(1 << 20).round().div(1 << 20) *
              (comm->size() == 3 ? 3.0 * (comm->rank() == 0) : 1.0);
        }
        const double norm = optimizer->step().grad_norm;
        if (comm->rank() == 0) norms.push_back(norm);
      });
    }
  }
  // Divided by three, a mean may be rounded.
  for (std::size_t i = 0; i < norms.size(); ++i) {
    EXPECT_EQ(norms[i], norms[i / 3 == 2 ? 6 : 0]) << i;
  }
}

TEST(ShardedOptions, NonFiniteMeansAreSkippedByAll) {
  on_all_shapes([](const CommPtr& comm, Sharding shard) {
    Trained whole(comm, kMixedSizes, make_fast_adam, {.skip_nonfinite = true});
    Trained parts(comm, kMixedSizes, make_fast_adam, sliced({.skip_nonfinite = true}, shard));
    for (std::int64_t step = 0; step < 8; ++step) {
      const bool is_bad = step % 3 == 1;
      for (Trained* one : {&whole, &parts}) {
        one->optimizer->zero_grad();
        for (torch::Tensor& parameter : one->parameters) {
          parameter.mutable_grad() = gradient_of(parameter, step, comm->rank());
        }
        if (is_bad && comm->rank() + 1 == comm->size()) {
          one->parameters[2].mutable_grad()[8999] = std::numeric_limits<float>::infinity();
        }
        EXPECT_EQ(one->optimizer->step().is_applied, !is_bad);
      }
    }
    expect_same(whole, parts, "skipped");
  });
}

TEST(ShardedOptions, LossScaler) {
  on_all_shapes([](const CommPtr& comm, Sharding shard) {
    const auto options = [](const std::shared_ptr<LossScaler>& scaler) {
      return MultiNodeOptimizerOptions{.max_grad_norm = 1, .loss_scaler = scaler};
    };
    const auto scaler = std::make_shared<LossScaler>();
    const auto scaler_of_parts = std::make_shared<LossScaler>();
    Trained whole(comm, kMixedSizes, make_fast_adam, options(scaler));
    Trained parts(comm, kMixedSizes, make_fast_adam, sliced(options(scaler_of_parts), shard));
    const auto all = [](std::size_t) { return true; };
    for (std::int64_t step = 0; step < 6; ++step) {
      const double fault = step == 2 ? std::numeric_limits<double>::infinity() : 1;
      whole.step(step, comm->rank(), all, scaler->get_scale() * fault);
      parts.step(step, comm->rank(), all, scaler_of_parts->get_scale() * fault);
      EXPECT_EQ(scaler->get_scale(), scaler_of_parts->get_scale());
    }
    expect_same(whole, parts, "scaled");
  });
}

TEST(ShardedOptions, DoubleBuffering) {
  on_all_shapes([](const CommPtr& comm, Sharding shard) {
    Trained whole(comm, kMixedSizes, make_fast_adam,
                  {.double_buffering = true, .max_grad_norm = 1e-6});
    Trained parts(comm, kMixedSizes, make_fast_adam,
                  sliced({.double_buffering = true, .max_grad_norm = 1e-6}, shard));
    for (std::int64_t step = 0; step < 10; ++step) {
      EXPECT_EQ(whole.step(step, comm->rank()).is_applied, step > 0);
      EXPECT_EQ(parts.step(step, comm->rank()).is_applied, step > 0);
    }
    EXPECT_TRUE(whole.optimizer->flush());
    EXPECT_TRUE(parts.optimizer->flush());
    EXPECT_FALSE(parts.optimizer->flush());
    expect_same(whole, parts, "double buffered");
  });
}

TEST(ShardedOptions, GradientsThatSomeRanksOrNoneHave) {
  on_all_shapes([](const CommPtr& comm, Sharding shard) {
    Trained whole(comm, kMixedSizes, make_fast_adam, {});
    Trained parts(comm, kMixedSizes, make_fast_adam, sliced({}, shard));
    for (std::int64_t step = 0; step < 12; ++step) {
      const auto has = [&](std::size_t p) {
        if (p == 4 && step < 3) return false;       // nobody
        if (p == 2 && step % 4 == 1) return false;  // nobody
        return p != 1 || comm->rank() == static_cast<int>(step) % comm->size();
      };
      whole.step(step, comm->rank(), has);
      parts.step(step, comm->rank(), has);
    }
    expect_same(whole, parts, "with gaps");
    // Steps are counted by parameter.
    parts.optimizer->gather_state();
    for (std::size_t p = 0; p < kMixedSizes.size(); ++p) {
      const auto state_of = [&](Trained& one) -> optim::AdamParamState& {
        return static_cast<optim::AdamParamState&>(
            *one.optimizer->actual_optimizer().state().at(one.parameters[p].unsafeGetTensorImpl()));
      };
      EXPECT_EQ(state_of(whole).step(), state_of(parts).step()) << p;
      EXPECT_TRUE(same_bits(state_of(whole).exp_avg(), state_of(parts).exp_avg())) << p;
      EXPECT_TRUE(same_bits(state_of(whole).exp_avg_sq(), state_of(parts).exp_avg_sq()));
    }
    whole.step(12, comm->rank());
    parts.step(12, comm->rank());
    expect_same(whole, parts, "after the state was put together");
  });
}

TEST(ShardedOptions, MissingGradientsAreNamedWithoutZeroFill) {
  const auto errors = errors_with_communicator({2, 2}, "auto", [](const CommPtr& comm) {
    Trained parts(comm, kMixedSizes, make_fast_adam, sliced({.zero_fill = false}));
    parts.step(0, comm->rank(), [&](std::size_t p) { return p != 3 || comm->rank() == 0; });
  });
  for (const std::string& error : errors) EXPECT_THAT(error, HasSubstr("param_groups[0][3]"));
}

TEST(ShardedOptions, GroupsFrozenAddedAndScheduled) {
  on_all_shapes([](const CommPtr& comm, Sharding shard) {
    const auto train = [&](const MultiNodeOptimizerOptions& options) {
      Tensors parameters = make_parameters({5000, 63, 9001, 1});
      std::vector<optim::OptimizerParamGroup> groups;
      groups.emplace_back(Tensors{parameters[0], parameters[1]},
                          std::make_unique<optim::AdamWOptions>(1e-2));
      groups.emplace_back(
          Tensors{parameters[2], parameters[3]},
          std::make_unique<optim::AdamWOptions>(optim::AdamWOptions(3e-3).weight_decay(0.3)));
      const auto optimizer = create_multi_node_optimizer(
          std::make_unique<optim::AdamW>(groups, optim::AdamWOptions(1e-2)), comm, options);
      optim::StepLR schedule(optimizer->actual_optimizer(), 3, 0.5);
      for (std::int64_t step = 0; step < 16; ++step) {
        if (step == 4) parameters[2].set_requires_grad(false);
        if (step == 8) parameters[2].set_requires_grad(true);
        if (step == 11) {
          parameters.push_back(make_parameters({7000})[0]);
          optimizer->actual_optimizer().param_groups()[1].params().push_back(parameters.back());
        }
        optimizer->zero_grad();
        for (const torch::Tensor& parameter : parameters) {
          if (!parameter.requires_grad()) continue;
          parameter.mutable_grad() = gradient_of(parameter, step, comm->rank());
        }
        optimizer->step();
        schedule.step();
      }
      return parameters;
    };
    const Tensors whole = train({});
    const Tensors parts = train(sliced({}, shard));
    for (std::size_t p = 0; p < whole.size(); ++p) {
      EXPECT_TRUE(same_bits(whole[p], parts[p])) << p;
    }
  });
}

// By backward, with buckets that follow what the first one finishes, and several backwards a step.
TEST(ShardedOptions, OverlapAndNoSync) {
  on_all_shapes([](const CommPtr& comm, Sharding shard) {
    const auto train = [&](MultiNodeOptimizerOptions options) {
      nn::Sequential model(nn::Linear(40, 300), nn::Tanh(), nn::Linear(300, 130), nn::Tanh(),
                           nn::Linear(130, 3));
      fill(*model, 0.1);
      options.model = &model;
      options.overlap = true;
      options.bucket_bytes = 1 << 14;
      options.first_bucket_bytes = 1 << 10;
      const auto optimizer = create_multi_node_optimizer(make_fast_adam(model->parameters()), comm,
                                                         std::move(options));
      for (int step = 0; step < 10; ++step) {
        optimizer->zero_grad();
        const torch::Tensor x = torch::linspace(-1, 1 + step + comm->rank(), 200).view({5, 40});
        {
          const NoSync local = optimizer->no_sync();
          model->forward(x).pow(2).sum().backward();
        }
        model->forward(x.flip(0)).sum().backward();
        optimizer->step();
      }
      return model->parameters();
    };
    const Tensors whole = train({});
    const Tensors parts = train(sliced({}, shard));
    for (std::size_t p = 0; p < whole.size(); ++p) {
      EXPECT_TRUE(same_bits(whole[p], parts[p])) << p;
    }
  });
}

// Divides each gradient by its norm, so that parts of parameters would not do.
class NormalizedOptions final : public optim::OptimizerCloneableOptions<NormalizedOptions> {};
class Normalized final : public optim::Optimizer {
 public:
  explicit Normalized(Tensors parameters)
      : Optimizer({optim::OptimizerParamGroup(std::move(parameters))},
                  std::make_unique<NormalizedOptions>()) {}
  torch::Tensor step(LossClosure /*closure*/ = nullptr) override {
    const torch::NoGradGuard no_grad;
    for (torch::Tensor& parameter : param_groups_[0].params()) {
      if (!parameter.grad().defined()) continue;
      parameter.sub_(parameter.grad() / parameter.grad().norm(), 0.1);
      elements += parameter.numel();
    }
    return {};
  }
  void save(torch::serialize::OutputArchive& /*archive*/) const override {}
  void load(torch::serialize::InputArchive& /*archive*/) override {}
  std::int64_t elements = 0;
};

TEST(ShardedOptions, AnUnknownOptimizerGetsWholeParameters) {
  on_all_shapes([](const CommPtr& comm, Sharding shard) {
    const MakeOptimizer make = [](Tensors parameters) {
      return std::make_unique<Normalized>(std::move(parameters));
    };
    Trained whole(comm, kMixedSizes, make, {});
    Trained parts(comm, kMixedSizes, make, sliced({}, shard));
    for (std::int64_t step = 0; step < 10; ++step) {
      whole.step(step, comm->rank());
      parts.step(step, comm->rank());
    }
    expect_same(whole, parts, "whole parameters");
    const auto elements = [](Trained& one) {
      return dynamic_cast<Normalized&>(one.optimizer->actual_optimizer()).elements;
    };
    std::int64_t all = 0;
    for (const std::int64_t own : comm->allgather_obj(elements(parts))) all += own;
    EXPECT_EQ(all, elements(whole) * (shard == Sharding::kAll ? 1 : comm->inter_size()))
        << "stepped on more than one rank of a node";
  });
}

// A model becomes channels_last, or gets another order from a file, between two steps.
TEST(ShardedOptions, ParametersThatAreLaidOutAnewKeepTheirElements) {
  const auto train = [](const CommPtr& comm, MultiNodeOptimizerOptions options, bool is_whole) {
    const torch::NoGradGuard no_grad;
    Tensors parameters;
    for (const torch::Tensor& row : make_parameters({4 * 96 * 5 * 5, 3000, 2 * 40 * 9})) {
      parameters.push_back(row.detach().clone());
    }
    parameters[0] = parameters[0].view({4, 96, 5, 5});
    parameters[2] = parameters[2].view({2, 40, 9});
    for (torch::Tensor& parameter : parameters) parameter.requires_grad_();
    std::unique_ptr<optim::Optimizer> wrapped = make_fast_adam(parameters);
    if (is_whole) wrapped = std::make_unique<Normalized>(parameters);
    const auto optimizer =
        create_multi_node_optimizer(std::move(wrapped), comm, std::move(options));
    for (std::int64_t step = 0; step < 6; ++step) {
      if (step == 2) {
        parameters[0].set_data(parameters[0].detach().contiguous(at::MemoryFormat::ChannelsLast));
        parameters[2].set_data(
            parameters[2].detach().permute({2, 0, 1}).contiguous().permute({1, 2, 0}));
      }
      if (step == 4) optimizer->gather_state();
      optimizer->zero_grad();
      for (torch::Tensor& parameter : parameters) {
        parameter.mutable_grad() = gradient_of(parameter, step, comm->rank());
      }
      optimizer->step();
    }
    return parameters;
  };
  for (const auto& nodes : {std::vector<int>{2}, std::vector<int>{3}, std::vector<int>{2, 2}}) {
    with_communicator(nodes, "two_dimensional", {}, [&](const CommPtr& comm) {
      for (const bool is_whole : {false, true}) {
        const Tensors expected = train(comm, {}, is_whole);
        const std::vector<MultiNodeOptimizerOptions> all = {
            {.shard = Sharding::kNode},
            {.shard = Sharding::kAll},
            {.shard = Sharding::kNode, .share_parameters = true},
            {.shard = Sharding::kNode, .free_gradients = true}};
        for (std::size_t o = 0; o < all.size(); ++o) {
          const Tensors parts = train(comm, all[o], is_whole);
          for (std::size_t p = 0; p < parts.size(); ++p) {
            // Where strides differ torch's loops round otherwise, in the last bits.
            ASSERT_TRUE(torch::allclose(expected[p], parts[p], 1e-6, 1e-6))
                << "options " << o << ", parameter " << p << ", is_whole " << is_whole;
          }
        }
      }
    });
  }
}

TEST(ShardedOptions, RanksKeepTheirSliceOfStateOnly) {
  with_communicator({4}, "auto", {}, [](const CommPtr& comm) {
    Trained parts(comm, {1, 63, 65, 200000}, make_fast_adam, sliced());
    parts.step(0, comm->rank());
    std::int64_t elements = 0;
    for (const auto& [key, state] : parts.optimizer->actual_optimizer().state()) {
      if (const auto* const adam = dynamic_cast<const optim::AdamParamState*>(state.get())) {
        elements += adam->exp_avg().numel();
      }
    }
    EXPECT_LE(elements, 200000 / 4 + 4096 + 128);
    EXPECT_GT(elements, 0);
  });
}

// A mean is on its way, and would be applied first.
TEST(ShardedOptions, AChangeThatIsRefusedAppliesNothing) {
  with_communicator({2}, "auto", {}, [](const CommPtr& comm) {
    nn::Linear model(3, 2);
    fill(*model, 0.1);
    const auto optimizer =
        create_multi_node_optimizer(make_fast_adam(model->parameters()), comm,
                                    sliced({.model = &model, .double_buffering = true}));
    for (int step = 0; step < 2; ++step) {
      model->forward(torch::ones({1, 3})).sum().backward();
      optimizer->step();
      optimizer->zero_grad();
    }
    model->forward(torch::ones({1, 3})).sum().backward();
    const torch::Tensor before = model->weight.detach().clone();
    model->bias.set_requires_grad(false);
    EXPECT_THROW(optimizer->step(), InvalidArgument);
    EXPECT_TRUE(same_bits(before, model->weight));
    EXPECT_THROW(optimizer->synchronize(), InvalidArgument);
    optimizer->zero_grad();
    EXPECT_TRUE(optimizer->step().is_applied);
    EXPECT_FALSE(same_bits(before, model->weight));
  });
}

// Of `use` on every rank.
void expect_refused(const std::vector<int>& nodes, const std::string& communicator,
                    const std::string& why, const std::function<void(const CommPtr&)>& use) {
  const auto errors = errors_with_communicator(nodes, communicator, use);
  for (const std::string& error : errors) EXPECT_THAT(error, HasSubstr(why));
}

TEST(ShardedOptions, WhatCannotBeDoneIsRefused) {
  expect_refused({2}, "naive", "in buckets", [](const CommPtr& comm) {
    const Trained parts(comm, kMixedSizes, make_fast_adam, sliced());
  });
  expect_refused({2}, "auto", "torch's own", [](const CommPtr& comm) {
    comm->impl().name = "gloo";
    const Trained parts(comm, kMixedSizes, make_fast_adam, sliced());
  });
  expect_refused({2}, "auto", "zero_grad(false)", [](const CommPtr& comm) {
    Trained(comm, kMixedSizes, make_fast_adam, sliced()).optimizer->zero_grad(false);
  });
  expect_refused({2}, "auto", "allreduce_grad()", [](const CommPtr& comm) {
    Trained(comm, kMixedSizes, make_fast_adam, sliced()).optimizer->allreduce_grad();
  });
  expect_refused({2}, "auto", "in no group of the optimizer", [](const CommPtr& comm) {
    nn::Linear model(3, 2);
    const auto optimizer = create_multi_node_optimizer(make_fast_adam({model->weight}), comm,
                                                       sliced({.model = &model}));
    model->forward(torch::ones({1, 3})).sum().backward();
    optimizer->step();
  });
  expect_refused({2}, "auto", "belong into no_sync()", [](const CommPtr& comm) {
    nn::Linear model(3, 2);
    const auto optimizer = create_multi_node_optimizer(make_fast_adam(model->parameters()), comm,
                                                       sliced({.model = &model}));
    model->forward(torch::ones({1, 3})).sum().backward();
    model->forward(torch::ones({1, 3})).sum().backward();
  });
  expect_refused({2}, "auto", "none comes after that one", [](const CommPtr& comm) {
    nn::Linear model(3, 2);
    const auto optimizer = create_multi_node_optimizer(make_fast_adam(model->parameters()), comm,
                                                       sliced({.model = &model}));
    model->forward(torch::ones({1, 3})).sum().backward();
    const NoSync local = optimizer->no_sync();
    model->forward(torch::ones({1, 3})).sum().backward();
  });
  expect_refused({2}, "auto", "between backward() and step()", [](const CommPtr& comm) {
    nn::Linear model(3, 2);
    const auto optimizer = create_multi_node_optimizer(make_fast_adam(model->parameters()), comm,
                                                       sliced({.model = &model}));
    model->forward(torch::ones({1, 3})).sum().backward();
    model->bias.set_requires_grad(false);
    optimizer->step();
  });
  expect_refused({2}, "auto", "was set between backward() and step()", [](const CommPtr& comm) {
    nn::Linear model(3, 2);
    const auto optimizer = create_multi_node_optimizer(make_fast_adam(model->parameters()), comm,
                                                       sliced({.model = &model}));
    model->forward(torch::ones({1, 3})).sum().backward();
    EXPECT_FALSE(model->weight.grad().defined());
    model->bias.mutable_grad() = torch::ones({2});
    optimizer->step();
  });
  expect_refused({2}, "auto", "call gather_state()", [](const CommPtr& comm) {
    Trained parts(comm, kMixedSizes, make_fast_adam, sliced());
    parts.step(0, comm->rank());
    torch::serialize::OutputArchive archive;
    parts.optimizer->actual_optimizer().save(archive);
  });
  expect_refused({2}, "auto", "LBFGS", [](const CommPtr& comm) {
    (void)create_multi_node_optimizer(std::make_unique<optim::LBFGS>(make_parameters(kMixedSizes)),
                                      comm, sliced());
  });
}

}  // namespace
}  // namespace chainmail::testing
