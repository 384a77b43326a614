// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What Sharded modules refuse, and what they say when ranks do not do the same.

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <chainmail/error.h>
#include <chainmail/optimizer.h>
#include <chainmail/train/mean_grad.h>

#include "plugin/checkpoint/items/items.h"
#include "tests/plugin/nn/sharded/sharded_checks.h"

namespace chainmail::testing {
namespace {

using namespace std::chrono_literals;
namespace nn = torch::nn;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

constexpr std::int64_t kSide = 8;

torch::Tensor square() { return some_waves({kSide, kSide}, 1); }

// The texts of the MismatchErrors that all ranks of `nodes` get, soon.
std::vector<std::string> mismatches_of(const std::vector<int>& nodes,
                                       const std::function<void(const CommPtr&)>& body) {
  std::mutex mutex;
  std::vector<std::string> texts;
  on_nodes_of(nodes, [&](const CommPtr& comm) {
    comm->barrier();
    const auto begin = std::chrono::steady_clock::now();
    try {
      body(comm);
      ADD_FAILURE() << "no error on rank " << comm->rank();
    } catch (const MismatchError& error) {
      const std::lock_guard lock(mutex);
      texts.emplace_back(error.what());
      EXPECT_LE(std::chrono::steady_clock::now() - begin, 1s) << error.what();
    }
  });
  std::size_t ranks = 0;
  for (const int size : nodes) ranks += static_cast<std::size_t>(size);
  EXPECT_EQ(texts.size(), ranks);
  return texts;
}

class ShardedMismatch : public ::testing::TestWithParam<std::vector<int>> {};

TEST_P(ShardedMismatch, OfTheOrderOfUnitsNamesBoth) {
  const auto texts = mismatches_of(GetParam(), [](const CommPtr& comm) {
    Sharded<Block> a(Block(kSide), comm, {.name = "encoder"});
    Sharded<Block> b(Block(kSide), comm, {.name = "decoder"});
    const bool is_other = comm->rank() == comm->size() - 1;
    (void)(is_other ? b : a)->forward(square());
    (void)(is_other ? a : b)->forward(square());
  });
  EXPECT_THAT(texts,
              Each(AllOf(HasSubstr("'encoder' for forward"), HasSubstr("'decoder' for forward"))));
}

TEST_P(ShardedMismatch, OfTheOrderInBackwardNamesBoth) {
  const auto texts = mismatches_of(GetParam(), [](const CommPtr& comm) {
    Sharded<Block> a(Block(kSide), comm, {.name = "encoder"});
    Sharded<Block> b(Block(kSide), comm, {.name = "decoder"});
    const torch::Tensor x = a->forward(square());
    const torch::Tensor y = b->forward(square());
    if (comm->rank() == 0) {
      x.sum().backward();
      y.sum().backward();
    } else {
      (x + y).sum().backward();  // the later one first
    }
  });
  EXPECT_THAT(
      texts, Each(AllOf(HasSubstr("'encoder' for backward"), HasSubstr("'decoder' for backward"))));
}

// With fetches under way.
TEST_P(ShardedMismatch, AfterSomeStepsNamesBoth) {
  const auto texts = mismatches_of(GetParam(), [](const CommPtr& comm) {
    nn::Sequential model =
        create_sharded_model(nn::Sequential({{"first", nn::Linear(kSide, kSide)},
                                             {"second", nn::Linear(kSide, kSide)},
                                             {"third", nn::Linear(kSide, kSide)}}),
                             comm);
    Sharded<Block> other(Block(kSide), comm, {.name = "other"});
    for (int step = 0; step < 4; ++step) model->forward(square()).sum().backward();
    if (comm->rank() == 0) {
      (void)other->forward(square());
    } else {
      (void)model->forward(square());
    }
  });
  EXPECT_THAT(texts, Each(AllOf(HasSubstr("'other' for forward"), HasSubstr("'first'"))));
}

struct MaybeImpl : nn::Module {
  MaybeImpl()
      : left(register_module("left", nn::Linear(kSide, kSide))),
        right(register_module("right", nn::Linear(kSide, kSide))) {}
  torch::Tensor forward(const torch::Tensor& x, bool both) {
    return both ? left(x) + right(x) : left(x);
  }
  nn::Linear left, right;
};
TORCH_MODULE(Maybe);

TEST_P(ShardedMismatch, OfWhichParametersHaveAGradientNamesThem) {
  const auto texts = mismatches_of(GetParam(), [](const CommPtr& comm) {
    Sharded<Maybe> unit(Maybe(), comm, {.name = "maybe"});
    unit->forward(square(), comm->rank() == 0).sum().backward();
  });
  EXPECT_THAT(texts, Each(HasSubstr("'maybe' but for right.weight right.bias")));
}

TEST_P(ShardedMismatch, OfWhatUnitsAre) {
  const auto texts = mismatches_of(GetParam(), [](const CommPtr& comm) {
    const Sharded<Block> unit(Block(kSide, comm->rank() == 0 ? 3 : 4), comm);
  });
  EXPECT_THAT(texts, Each(HasSubstr("in.weight")));
}

INSTANTIATE_TEST_SUITE_P(Nodes, ShardedMismatch,
                         ::testing::Values(std::vector<int>{2}, std::vector<int>{2, 1}));

// Expects InvalidArgument with `text` on every rank, which stay usable.
void expect_unit_refused(const std::string& text, const std::function<void(const CommPtr&)>& body) {
  on_nodes_of({2}, [&](const CommPtr& comm) {
    try {
      body(comm);
      ADD_FAILURE() << "no error";
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(), HasSubstr(text));
    }
    comm->barrier();
  });
}

TEST(ShardedRefuses, WhatCannotBeAUnit) {
  expect_unit_refused("needs a communicator",
                      [](const CommPtr&) { Sharded<Block>(Block(kSide), nullptr); });
  expect_unit_refused("has no parameters", [](const CommPtr& comm) {
    Sharded<nn::Tanh>(nn::Tanh(), comm, {.name = "tanh"});
  });
  expect_unit_refused("'out.weight' is of type Double", [](const CommPtr& comm) {
    Block block(kSide);
    block->out->to(torch::kDouble);
    Sharded<Block>(block, comm);
  });
}

struct LeakImpl : nn::Module {
  LeakImpl() : inner(register_module("inner", nn::Linear(kSide, kSide))) {}
  torch::Tensor forward(const torch::Tensor& /*x*/) { return inner->weight.t(); }
  nn::Linear inner;
};
TORCH_MODULE(Leak);

TEST(ShardedRefuses, ToReturnAParameter) {
  expect_unit_refused("'leak' returns a parameter", [](const CommPtr& comm) {
    Sharded<Leak> unit(Leak(), comm, {.name = "leak"});
    (void)unit->forward(square());
  });
}

TEST(ShardedRefuses, SecondDerivatives) {
  expect_unit_refused("create_graph", [](const CommPtr& comm) {
    Sharded<Block> unit(Block(kSide), comm);
    unit->forward(square()).sum().backward({}, /*retain_graph=*/true, /*create_graph=*/true);
  });
}

TEST(ShardedRefuses, ToBecomeSomethingElse) {
  expect_unit_refused("cannot become Double", [](const CommPtr& comm) {
    Sharded<Block> unit(Block(kSide), comm);
    unit->to(torch::kCPU);
    unit->to(torch::kFloat);
    unit->to(torch::kDouble);
  });
}

// A step would change what no rank ever sees.
TEST(ShardedRefuses, OtherMemoryForParameters) {
  const auto load_and_use = [](Sharded<nn::Linear> unit, std::shared_ptr<nn::Module> module) {
    std::stringstream file;
    {
      const GatheredParameters gathered = unit->gather();
      torch::save(module, file);
    }
    torch::load(module, file);
    (void)unit->forward(square());
  };
  const std::string text = "parameter 'weight', or this rank's slice of it, has been given";
  expect_unit_refused(text, [&](const CommPtr& comm) {
    Sharded<nn::Linear> unit(nn::Linear(kSide, kSide), comm);
    load_and_use(unit, unit.ptr());
  });
  expect_unit_refused(text, [&](const CommPtr& comm) {
    Sharded<nn::Linear> unit(nn::Linear(kSide, kSide), comm);
    load_and_use(unit, unit->module());
  });
}

TEST(ShardedRefuses, LayersAndLeavesThemToTheModel) {
  on_nodes_of({2}, [](const CommPtr& comm) {
    nn::Sequential model(nn::Linear(kSide, kSide), nn::Linear(kSide, kSide));
    const auto last = model->ptr<nn::LinearImpl>(1);
    last->bias.set_data(last->bias.to(torch::kDouble));
    EXPECT_THROW((void)create_sharded_model(model, comm), InvalidArgument);
    last->bias.set_data(last->bias.to(torch::kFloat));
    const torch::Tensor y = model->forward(square());
    EXPECT_EQ(y.sizes(), square().sizes());
  });
}

// Slices of equal sizes would pass for replicas.
TEST(ShardedRefuses, ToBeAveragedOrBroadcastAgain) {
  expect_unit_refused("is this rank's slice", [](const CommPtr& comm) {
    Sharded<Block> unit(Block(kSide, kSide), comm);
    (void)create_multi_node_optimizer(
        std::make_unique<torch::optim::SGD>(sharded_parameters(unit), 0.1), comm, {.model = unit});
  });
  expect_unit_refused("is this rank's slice", [](const CommPtr& comm) {
    Sharded<Block> unit(Block(kSide, kSide), comm);
    bcast_data(*comm, unit);
  });
  expect_unit_refused("is this rank's slice", [](const CommPtr& comm) {
    Sharded<Block> unit(Block(kSide, kSide), comm);
    multi_node_mean_grad(*comm, unit);
  });
}

// Which slice a rank has depends on the shape of the job.
TEST(ShardedRefuses, ToGoIntoCheckpoints) {
  expect_unit_refused("save units one by one", [](const CommPtr& comm) {
    Sharded<Block> unit(Block(kSide), comm);
    (void)internal::parameters_item("model", unit);
  });
  expect_unit_refused("save units one by one", [](const CommPtr& comm) {
    Sharded<Block> unit(Block(kSide), comm);
    torch::optim::SGD optimizer(sharded_parameters(unit), 0.1);
    (void)internal::optimizer_item("optimizer", optimizer);
  });
}

TEST(ShardedRefuses, ParametersOutsideOfUnits) {
  expect_unit_refused("'1.weight' is in no Sharded module", [](const CommPtr& comm) {
    Sharded<Block> unit(Block(kSide), comm);
    nn::Sequential model(unit, nn::Linear(kSide, 2));
    (void)sharded_parameters(model);
  });
  expect_unit_refused("max_norm must be positive", [](const CommPtr& comm) {
    Sharded<Block> unit(Block(kSide), comm);
    (void)clip_sharded_grad_norm(comm, unit, 0);
  });
}

}  // namespace
}  // namespace chainmail::testing
