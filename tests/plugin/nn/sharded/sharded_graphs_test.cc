// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Modules whose parts and results are not as simple as a layer's.

#include <memory>
#include <optional>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "tests/plugin/nn/sharded/sharded_checks.h"

namespace chainmail::testing {
namespace {

namespace nn = torch::nn;

constexpr std::int64_t kUnitFeatures = 10;

torch::Tensor features(const CommPtr& comm, int seed = 0) {
  return some_waves({3, kUnitFeatures}, seed * 10 + comm->rank());
}

// A weight that it is given, transposed or not, and a bias of its own.
struct TiedImpl : nn::Module {
  TiedImpl(const torch::Tensor& given, bool transposed)
      : weight(register_parameter("weight", given)),
        bias(register_parameter("bias", torch::ones({kUnitFeatures}))),
        is_transposed(transposed) {}
  torch::Tensor forward(const torch::Tensor& x) {
    return x.matmul(is_transposed ? weight.t() : weight) + bias;
  }
  torch::Tensor weight, bias;
  bool is_transposed;
};
TORCH_MODULE(Tied);

torch::Tensor tied_weight() { return some_waves({kUnitFeatures, kUnitFeatures}, 3); }

TEST(ShardedGraphs, WeightsThatTwoUnitsShare) {
  on_nodes_of({2}, [](const CommPtr& comm) {
    const torch::Tensor whole_weight = tied_weight();
    Tied whole_first(whole_weight, false);
    Tied whole_last(whole_weight, true);
    const torch::Tensor weight = tied_weight();
    Tied first(weight, false);
    Tied last(weight, true);
    Sharded<Tied> a(first, comm);
    Sharded<Block> between(filled(Block(kUnitFeatures)), comm);
    Block whole_between = filled(Block(kUnitFeatures));
    Sharded<Tied> b(last, comm);
    // One slice, which an optimizer gets once.
    EXPECT_TRUE(b->named_parameters()["weight"].is_same(a->named_parameters()["weight"]));
    for (int step = 0; step < 3; ++step) {
      for (nn::Module* const module :
           std::vector<nn::Module*>{a.get(), b.get(), between.get(), whole_first.get(),
                                    whole_last.get(), whole_between.get()}) {
        module->zero_grad();
      }
      const torch::Tensor x = features(comm, step);
      b->forward(between->forward(a->forward(x))).square().sum().backward();
      whole_last->forward(whole_between->forward(whole_first->forward(x)))
          .square()
          .sum()
          .backward();
      average_gradients({whole_weight, whole_first->bias, whole_last->bias}, *comm);
      average_gradients(whole_between->parameters(), *comm);
      expect_gradients(*a, *whole_first, *comm);
      expect_gradients(*between, *whole_between, *comm);
      const torch::Tensor bias = b->named_parameters()["bias"].grad();
      EXPECT_TRUE(torch::equal(bias, own_parts({whole_last->bias.grad()}, *comm)[0]));
      EXPECT_EQ(a->counts().whole_bytes, 0U);
    }
  });
}

// One layer in two places of a unit.
struct TwiceImpl : nn::Module {
  TwiceImpl()
      : first(register_module("first", nn::Linear(kUnitFeatures, kUnitFeatures))),
        second(register_module("second", first)) {}
  torch::Tensor forward(const torch::Tensor& x) { return second(torch::tanh(first(x))); }
  nn::Linear first, second;
};
TORCH_MODULE(Twice);

TEST(ShardedGraphs, WeightsThatAUnitHasTwice) {
  on_nodes_of({2}, [](const CommPtr& comm) {
    Twice whole = filled(Twice());
    Sharded<Twice> unit(filled(Twice()), comm);
    EXPECT_EQ(sharded_parameters(unit).size(), 2U);
    whole->forward(features(comm)).sum().backward();
    unit->forward(features(comm)).sum().backward();
    average_gradients(whole->first->parameters(), *comm);
    const auto expected =
        own_parts({whole->first->weight.grad(), whole->first->bias.grad()}, *comm);
    const auto slices = sharded_parameters(unit);
    for (std::size_t i = 0; i < slices.size(); ++i) {
      EXPECT_TRUE(torch::equal(slices[i].grad(), expected[i]));
    }
  });
}

// Activation checkpointing: forward runs again in backward.
template <typename Module>
struct Again : torch::autograd::Function<Again<Module>> {
  static torch::Tensor forward(torch::autograd::AutogradContext* context, const torch::Tensor& x,
                               Module* module) {
    context->saved_data["module"] = reinterpret_cast<std::int64_t>(module);
    context->save_for_backward({x});
    return (*module)->forward(x);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const torch::AutoGradMode with_gradients(true);
    auto* const module = reinterpret_cast<Module*>(context->saved_data["module"].toInt());
    const torch::Tensor x = context->get_saved_variables()[0].detach().requires_grad_();
    torch::autograd::backward({(*module)->forward(x)}, {gradients[0]});
    return {x.grad(), torch::Tensor()};
  }
};

TEST(ShardedGraphs, RecomputationInBackward) {
  on_nodes_of({2}, [](const CommPtr& comm) {
    Block whole_a = filled(Block(kUnitFeatures));
    Block whole_b = filled(Block(kUnitFeatures), 5);
    Sharded<Block> a(filled(Block(kUnitFeatures)), comm);
    Sharded<Block> b(filled(Block(kUnitFeatures), 5), comm);
    for (int step = 0; step < 3; ++step) {
      for (nn::Module* const module :
           std::vector<nn::Module*>{a.get(), b.get(), whole_a.get(), whole_b.get()}) {
        module->zero_grad();
      }
      const torch::Tensor x = features(comm, step).requires_grad_();
      const torch::Tensor h = Again<Sharded<Block>>::apply(x, &a);
      Again<Sharded<Block>>::apply(h, &b).square().sum().backward();
      EXPECT_EQ(a->counts().whole_bytes, 0U);
      const torch::Tensor whole_h = whole_a->forward(x.detach());
      whole_b->forward(whole_h).square().sum().backward();
      average_gradients(whole_a->parameters(), *comm);
      average_gradients(whole_b->parameters(), *comm);
      expect_gradients(*a, *whole_a, *comm);
      expect_gradients(*b, *whole_b, *comm);
    }
    EXPECT_EQ(a->counts().gathers, 3U * 2 * 3);
  });
}

// Two results, one of which may go nowhere; also of the parameters alone.
struct PairOfImpl : nn::Module {
  PairOfImpl() : inner(register_module("inner", nn::Linear(kUnitFeatures, kUnitFeatures))) {}
  std::tuple<torch::Tensor, std::optional<torch::Tensor>> forward(std::vector<torch::Tensor> xs) {
    const torch::Tensor y = inner(xs.at(0)) * xs.at(1);
    return {y, inner->weight.square().sum()};
  }
  nn::Linear inner;
};
TORCH_MODULE(PairOf);

TEST(ShardedGraphs, ListsOfArgumentsAndResults) {
  on_nodes_of({2}, [](const CommPtr& comm) {
    PairOf whole = filled(PairOf());
    Sharded<PairOf> unit(filled(PairOf()), comm);
    for (const int used : {0, 1, 2}) {
      unit->zero_grad();
      whole->zero_grad();
      const auto loss_of = [&](auto& module) {
        const torch::Tensor x = features(comm).requires_grad_();
        const auto [y, norm] = module->forward({x, features(comm, 1)});
        return used == 0 ? y.sum() + *norm : used == 1 ? y.sum() : *norm * (comm->rank() + 1);
      };
      loss_of(unit).backward();
      loss_of(whole).backward();
      average_gradients(whole->parameters(), *comm);
      expect_gradients(*unit, *whole, *comm);
      EXPECT_EQ(unit->counts().whole_bytes, 0U);
      expect_empty(*unit->module());
    }
  });
}

// A view that is changed in place has another history than the result had.
TEST(ShardedGraphs, ResultsThatAreChangedInPlace) {
  on_nodes_of({2}, [](const CommPtr& comm) {
    Block whole = filled(Block(kUnitFeatures));
    Sharded<Block> unit(filled(Block(kUnitFeatures)), comm);
    const auto loss_of = [&](auto& module) {
      const torch::Tensor y = module->forward(features(comm));
      y.select(0, 1).mul_(3);
      y.relu_();
      return y.sum();
    };
    loss_of(unit).backward();
    loss_of(whole).backward();
    average_gradients(whole->parameters(), *comm);
    expect_gradients(*unit, *whole, *comm);
  });
}

struct OuterImpl : nn::Module {
  explicit OuterImpl(const CommPtr& comm)
      : inner(filled(Block(kUnitFeatures)), comm, {.name = "inner"}),
        own(filled(nn::Linear(kUnitFeatures, kUnitFeatures), 4)) {
    register_module("inner", inner);
    register_module("own", own);
  }
  torch::Tensor forward(const torch::Tensor& x) { return own(inner->forward(own(x))); }
  Sharded<Block> inner;
  nn::Linear own;
};
TORCH_MODULE(Outer);

TEST(ShardedGraphs, UnitsInUnits) {
  on_nodes_of({2}, [](const CommPtr& comm) {
    Block whole_inner = filled(Block(kUnitFeatures));
    nn::Linear whole_own = filled(nn::Linear(kUnitFeatures, kUnitFeatures), 4);
    Sharded<Outer> outer(Outer(comm), comm, {.name = "outer"});
    EXPECT_EQ(sharded_parameters(outer).size(), 6U);
    for (int step = 0; step < 3; ++step) {
      outer->zero_grad();
      whole_inner->zero_grad();
      whole_own->zero_grad();
      outer->forward(features(comm, step)).square().sum().backward();
      whole_own(whole_inner(whole_own(features(comm, step)))).square().sum().backward();
      average_gradients(whole_inner->parameters(), *comm);
      average_gradients(whole_own->parameters(), *comm);
      expect_gradients(*outer->module()->inner, *whole_inner, *comm);
      const auto expected = own_parts({whole_own->weight.grad(), whole_own->bias.grad()}, *comm);
      EXPECT_TRUE(torch::equal(outer->named_parameters()["own.weight"].grad(), expected[0]));
      EXPECT_TRUE(torch::equal(outer->named_parameters()["own.bias"].grad(), expected[1]));
      EXPECT_EQ(outer->counts().whole_bytes, 0U);
    }
  });
}

TEST(ShardedGraphs, BuffersAndModesAreTheModules) {
  on_nodes_of({2}, [](const CommPtr& comm) {
    nn::BatchNorm1d norm(kUnitFeatures);
    const torch::NoGradGuard no_grad;
    norm->running_mean.fill_(comm->rank() + 1);
    Sharded<nn::BatchNorm1d> unit(norm, comm);
    const torch::Tensor mean = unit->named_buffers()["running_mean"];
    EXPECT_TRUE(torch::equal(mean, torch::ones({kUnitFeatures})));  // rank 0's
    unit->eval();
    (void)unit->forward(features(comm));
    EXPECT_TRUE(torch::equal(mean, torch::ones({kUnitFeatures})));
    unit->train();
    (void)unit->forward(features(comm));
    EXPECT_FALSE(torch::equal(mean, torch::ones({kUnitFeatures})));
  });
}

// Rank 0's values, and what gather() shows.
TEST(ShardedGraphs, AllRanksBeginWithTheValuesOfRankZero) {
  on_nodes_of({2}, [](const CommPtr& comm) {
    Sharded<Block> unit(filled(Block(kUnitFeatures), comm->rank() * 50), comm);
    const auto gathered = unit->gather();
    Block expected = filled(Block(kUnitFeatures));
    EXPECT_TRUE(torch::equal(unit->module()->in->weight, expected->in->weight));
    EXPECT_TRUE(torch::equal(unit->module()->out->bias, expected->out->bias));
  });
}

}  // namespace
}  // namespace chainmail::testing
