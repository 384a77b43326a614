// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What programs do with modules besides one forward and one backward.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ATen/Parallel.h>

#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <torch/torch.h>

#include <chainmail/nn/sharded.h>

#include "tests/plugin/nn/sharded/sharded_checks.h"
#include "tests/plugin/support/thread_world.h"

namespace chainmail {
namespace {

namespace nn = torch::nn;
using testing::Block;
using CommPtr = std::shared_ptr<Communicator>;

constexpr std::int64_t kUnitWidth = 12;

// Two units beside the same modules whole.
struct Pair {
  explicit Pair(const CommPtr& communicator)
      : comm(communicator),
        whole_a(testing::filled(Block(kUnitWidth))),
        whole_b(testing::filled(Block(kUnitWidth), 20)),
        a(testing::filled(Block(kUnitWidth)), comm, {.name = "a"}),
        b(testing::filled(Block(kUnitWidth), 20), comm, {.name = "b"}) {}

  torch::Tensor input(int seed = 0) const {
    return testing::some_waves({4, kUnitWidth}, seed * 10 + comm->rank());
  }
  void expect_same_gradients() {
    std::vector<torch::Tensor> all = whole_a->parameters();
    for (const torch::Tensor& one : whole_b->parameters()) all.push_back(one);
    testing::average_gradients(all, *comm);
    testing::expect_gradients(*a, *whole_a, *comm);
    testing::expect_gradients(*b, *whole_b, *comm);
  }
  void expect_nothing_whole() const {
    EXPECT_EQ(a->counts().whole_bytes, 0U);
    testing::expect_empty(*a->module());
    testing::expect_empty(*b->module());
  }

  CommPtr comm;
  Block whole_a, whole_b;
  Sharded<Block> a, b;
};

class ShardedUses : public ::testing::TestWithParam<std::vector<int>> {
 protected:
  template <typename Body>
  void run(const Body& body) {
    at::set_num_threads(1);
    testing::with_communicator(GetParam(), "hierarchical", {}, [&](const CommPtr& comm) {
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
    testing::expect_empty(*pair.a->module());
    testing::expect_empty(*pair.b->module());
    y.sum().backward();
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
      for (auto* const module : std::vector<nn::Module*>{pair.a.get(), pair.b.get(),
                                                         pair.whole_a.get(), pair.whole_b.get()}) {
        module->zero_grad();
      }
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
    pair.a->zero_grad();
    pair.b->zero_grad();
    pair.whole_a->zero_grad();
    pair.whole_b->zero_grad();
    second.backward();
    pair.whole_b->forward(pair.whole_a->forward(pair.input(2))).square().sum().backward();
    pair.expect_same_gradients();
  });
}

TEST_P(ShardedUses, BackwardTwiceThroughAGraphThatIsKept) {
  run([](Pair& pair) {
    const torch::Tensor loss = pair.a->forward(pair.input().requires_grad_()).sum();
    loss.backward({}, /*retain_graph=*/true);
    const torch::Tensor once = pair.a->parameters().front().grad().clone();
    pair.expect_nothing_whole();
    loss.backward();
    EXPECT_TRUE(torch::equal(pair.a->parameters().front().grad(), 2 * once));
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
      testing::average_gradients(pair.whole_a->parameters(), *pair.comm);
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
    pair.a->zero_grad();
    pair.whole_a->zero_grad();
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
    pair.a->zero_grad();
    pair.whole_a->zero_grad();
    const torch::Tensor unused = pair.b->forward(pair.input());
    pair.a->forward(pair.input()).sum().backward();
    pair.whole_a->forward(pair.input()).sum().backward();
    pair.expect_same_gradients();
  });
}

// A parameter that only some calls use.
struct SometimesImpl : nn::Module {
  SometimesImpl()
      : always(register_module("always", nn::Linear(kUnitWidth, kUnitWidth))),
        sometimes(register_module("sometimes", nn::Linear(kUnitWidth, kUnitWidth))) {}
  torch::Tensor forward(const torch::Tensor& x, bool all) {
    return all ? sometimes(always(x)) : always(x);
  }
  nn::Linear always, sometimes;
};
TORCH_MODULE(Sometimes);

TEST_P(ShardedUses, ParametersThatACallDoesNotUse) {
  run([](Pair& pair) {
    Sometimes whole = testing::filled(Sometimes());
    Sharded<Sometimes> unit(testing::filled(Sometimes()), pair.comm);
    for (const bool all : {false, true, false}) {
      unit->zero_grad();
      whole->zero_grad();
      pair.b->forward(unit->forward(pair.input(), all)).sum().backward();
      pair.whole_b->forward(whole->forward(pair.input(), all)).sum().backward();
      testing::average_gradients(whole->parameters(), *pair.comm);
      testing::expect_gradients(*unit, *whole, *pair.comm);
      pair.expect_nothing_whole();
    }
  });
}

TEST_P(ShardedUses, AnExceptionInForward) {
  run([](Pair& pair) {
    for (int step = 0; step < 3; ++step) {  // with units fetched ahead from the second on
      const torch::Tensor h = pair.a->forward(pair.input());
      EXPECT_ANY_THROW(pair.b->forward(torch::ones({4, kUnitWidth + 1})));
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

TEST_P(ShardedUses, AnExceptionInBackward) {
  run([](Pair& pair) {
    const torch::Tensor h = pair.a->forward(pair.input());
    const torch::Tensor y = pair.b->forward(h);
    h.register_hook([](const torch::Tensor& gradient) -> torch::Tensor {
      throw std::runtime_error("a user's hook");
      return gradient;
    });
    EXPECT_ANY_THROW(y.sum().backward());
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
}  // namespace chainmail
