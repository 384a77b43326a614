// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What programs do with modules besides one forward and one backward.

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include <torch/torch.h>

#include "tests/plugin/nn/sharded/sharded_checks.h"

namespace chainmail::testing {
namespace {

namespace nn = torch::nn;

class ShardedUses : public ::testing::TestWithParam<std::vector<int>> {
 protected:
  template <typename Body>
  void run(const Body& body) {
    on_nodes_of(GetParam(), [&](const CommPtr& comm) {
      Pair pair(comm);
      body(pair);
      pair.expect_nothing_whole();
    });
  }
};

TEST_P(ShardedUses, ParametersHaveNoMemoryBetweenUses) {
  run([](Pair& pair) {
    pair.expect_nothing_whole();
    const torch::Tensor y = pair.b->forward(pair.a->forward(pair.input()));
    expect_empty(*pair.a->module());
    expect_empty(*pair.b->module());
    y.sum().backward();
  });
}

// As torch's modules are.
struct AssignedImpl : nn::Module {
  explicit AssignedImpl(const CommPtr& comm) {
    a = register_module("a", Sharded<Block>(filled(Block(Pair::kWidth)), comm));
    const auto unit = register_module("b", Sharded<Block>(filled(Block(Pair::kWidth), 20), comm));
    b = unit;
  }
  torch::Tensor forward(const torch::Tensor& x) { return b->forward(a->forward(x)); }

  Sharded<Block> a;
  Sharded<Block> b{nullptr};
};

TEST_P(ShardedUses, AssignedWhatRegisterModuleReturns) {
  run([](Pair& pair) {
    AssignedImpl assigned(pair.comm);
    EXPECT_TRUE(assigned.named_parameters().contains("b.out.weight"));
    const torch::Tensor x = pair.input();
    const torch::Tensor y = assigned.forward(x);
    EXPECT_TRUE(has_same_bits(y, pair.whole_b->forward(pair.whole_a->forward(x))));
    y.sum().backward();
    for (const auto& slice : assigned.parameters()) EXPECT_TRUE(slice.grad().defined());
  });
}

TEST_P(ShardedUses, TwoForwardsBeforeOneBackward) {
  run([](Pair& pair) {
    for (int step = 0; step < 3; ++step) {
      const auto y =
          pair.a->forward(pair.input(1)) + pair.a->forward(pair.b->forward(pair.input(2)));
      y.square().sum().backward();
      const auto z = pair.whole_a->forward(pair.input(1)) +
                     pair.whole_a->forward(pair.whole_b->forward(pair.input(2)));
      z.square().sum().backward();
      pair.expect_same_gradients();
      pair.expect_nothing_whole();
      pair.zero_grad();
    }
  });
}

TEST_P(ShardedUses, TwoGraphsAtOnce) {
  run([](Pair& pair) {
    const torch::Tensor first = pair.b->forward(pair.a->forward(pair.input(1))).sum();
    const torch::Tensor second = pair.b->forward(pair.a->forward(pair.input(2))).square().sum();
    first.backward();
    pair.expect_nothing_whole();
    pair.whole_b->forward(pair.whole_a->forward(pair.input(1))).sum().backward();
    pair.expect_same_gradients();
    pair.zero_grad();
    second.backward();
    pair.whole_b->forward(pair.whole_a->forward(pair.input(2))).square().sum().backward();
    pair.expect_same_gradients();
  });
}

TEST_P(ShardedUses, WithoutGradients) {
  run([](Pair& pair) {
    const torch::NoGradGuard no_grad;
    for (int i = 0; i < 4; ++i) {
      const torch::Tensor y = pair.b->forward(pair.a->forward(pair.input(i)));
      EXPECT_TRUE(torch::equal(y, pair.whole_b->forward(pair.whole_a->forward(pair.input(i)))));
      pair.expect_nothing_whole();
    }
    EXPECT_EQ(pair.a->counts().gathers, 8U);
    EXPECT_EQ(pair.a->counts().reductions, 0U);
  });
}

// Where tensors have no versions.
TEST_P(ShardedUses, InInferenceMode) {
  run([](Pair& pair) {
    const c10::InferenceMode inference;
    Sharded<Block> made_there(filled(Block(Pair::kWidth), 20), pair.comm);
    for (int i = 0; i < 3; ++i) {
      const torch::Tensor h = pair.a->forward(pair.input(i));
      EXPECT_TRUE(torch::equal(made_there->forward(h), pair.b->forward(h)));
      pair.expect_nothing_whole();
    }
  });
}

// What was fetched ahead of a change would be out of date.
TEST_P(ShardedUses, ChangesBetweenForwardsCount) {
  run([](Pair& pair) {
    const torch::NoGradGuard no_grad;
    for (int i = 0; i < 4; ++i) {
      const torch::Tensor h = pair.a->forward(pair.input(i));
      for (torch::Tensor& slice : pair.b->parameters()) slice.mul_(1.25);
      for (torch::Tensor& parameter : pair.whole_b->parameters()) parameter.mul_(1.25);
      EXPECT_TRUE(torch::equal(pair.b->forward(h),
                               pair.whole_b->forward(pair.whole_a->forward(pair.input(i)))));
    }
  });
}

// Another model computes between backward and step, as a target network does.
TEST_P(ShardedUses, AStepBetweenForwardsCounts) {
  run([](Pair& pair) {
    torch::optim::SGD optimizer(pair.a->parameters(), 0.1);
    torch::optim::SGD whole_optimizer(pair.whole_a->parameters(), 0.1);
    for (int i = 0; i < 5; ++i) {
      const torch::Tensor y = pair.a->forward(pair.input(i));
      const torch::Tensor expected = pair.whole_a->forward(pair.input(i));
      EXPECT_TRUE(torch::allclose(y, expected, 1e-5, 1e-5)) << i;
      optimizer.zero_grad();
      whole_optimizer.zero_grad();
      y.sum().backward();
      expected.sum().backward();
      average_gradients(pair.whole_a->parameters(), *pair.comm);
      {
        const torch::NoGradGuard no_grad;
        (void)pair.b->forward(pair.input(i));
      }
      std::this_thread::sleep_for(std::chrono::milliseconds{10});  // time to fetch what comes next
      optimizer.step();
      whole_optimizer.step();
    }
  });
}

TEST_P(ShardedUses, FrozenParameters) {
  run([](Pair& pair) {
    // One parameter of a unit, and all of another, through which gradients pass.
    const auto freeze = [](nn::Module& a, nn::Module& b) {
      a.named_parameters()["in.weight"].set_requires_grad(false);
      for (torch::Tensor& parameter : b.parameters()) parameter.set_requires_grad(false);
    };
    freeze(*pair.a, *pair.b);
    freeze(*pair.whole_a, *pair.whole_b);
    pair.b->forward(pair.a->forward(pair.input())).sum().backward();
    pair.whole_b->forward(pair.whole_a->forward(pair.input())).sum().backward();
    pair.expect_same_gradients();
    EXPECT_EQ(pair.a->counts().reductions, 1U);
    pair.b->parameters().front().set_requires_grad(true);
    pair.whole_b->parameters().front().set_requires_grad(true);
    pair.zero_grad();
    pair.b->forward(pair.a->forward(pair.input())).sum().backward();
    pair.whole_b->forward(pair.whole_a->forward(pair.input())).sum().backward();
    pair.expect_same_gradients();
  });
}

TEST_P(ShardedUses, UnitsThatTheLossIsNotMadeOf) {
  run([](Pair& pair) {
    pair.a->forward(pair.input()).sum().backward();
    pair.whole_a->forward(pair.input()).sum().backward();
    pair.expect_same_gradients();  // none of b
    pair.zero_grad();
    const torch::Tensor unused = pair.b->forward(pair.input());
    pair.a->forward(pair.input()).sum().backward();
    pair.whole_a->forward(pair.input()).sum().backward();
    pair.expect_same_gradients();
  });
}

// A parameter that only some calls use.
struct SometimesImpl : nn::Module {
  SometimesImpl()
      : always(register_module("always", nn::Linear(Pair::kWidth, Pair::kWidth))),
        sometimes(register_module("sometimes", nn::Linear(Pair::kWidth, Pair::kWidth))) {}
  torch::Tensor forward(const torch::Tensor& x, bool all) {
    return all ? sometimes(always(x)) : always(x);
  }
  nn::Linear always, sometimes;
};
TORCH_MODULE(Sometimes);

TEST_P(ShardedUses, ParametersThatACallDoesNotUse) {
  run([](Pair& pair) {
    Sometimes whole = filled(Sometimes());
    Sharded<Sometimes> unit(filled(Sometimes()), pair.comm);
    for (const bool all : {false, true, false}) {
      unit->zero_grad();
      whole->zero_grad();
      pair.b->forward(unit->forward(pair.input(), all)).sum().backward();
      pair.whole_b->forward(whole->forward(pair.input(), all)).sum().backward();
      average_gradients(whole->parameters(), *pair.comm);
      expect_gradients(*unit, *whole, *pair.comm);
      pair.expect_nothing_whole();
    }
  });
}

TEST_P(ShardedUses, AnExceptionInForward) {
  run([](Pair& pair) {
    for (int step = 0; step < 3; ++step) {  // with units fetched ahead from the second on
      const torch::Tensor h = pair.a->forward(pair.input());
      EXPECT_ANY_THROW(pair.b->forward(torch::ones({4, Pair::kWidth + 1})));
      pair.expect_nothing_whole();
      pair.b->forward(pair.a->forward(pair.input())).sum().backward();
    }
    pair.a->zero_grad();
    pair.b->zero_grad();
    pair.b->forward(pair.a->forward(pair.input())).sum().backward();
    pair.whole_b->forward(pair.whole_a->forward(pair.input())).sum().backward();
    pair.expect_same_gradients();
  });
}

INSTANTIATE_TEST_SUITE_P(Nodes, ShardedUses,
                         ::testing::Values(std::vector<int>{1}, std::vector<int>{2},
                                           std::vector<int>{2, 2}, std::vector<int>{2, 1}));

}  // namespace
}  // namespace chainmail::testing
