// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Backwards that are not simply what follows a forward: one in another, through graphs that are
// kept, that fail, and whose modules, parameters or gradients have changed since.

#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <chainmail/error.h>

#include "tests/plugin/nn/sharded/sharded_checks.h"

namespace chainmail::testing {
namespace {

namespace nn = torch::nn;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// Runs `in_middle` once, when backward is between its last layers.
struct ProbedImpl : nn::Module {
  ProbedImpl()
      : in(register_module("in", nn::Linear(Pair::kWidth, Pair::kWidth))),
        between(register_module("between", nn::Linear(Pair::kWidth, Pair::kWidth))),
        out(register_module("out", nn::Linear(Pair::kWidth, Pair::kWidth))) {}
  torch::Tensor forward(const torch::Tensor& x) {
    const torch::Tensor h = torch::relu(between(torch::relu(in(x))));
    h.register_hook([this](const torch::Tensor& /*gradient*/) {
      if (const auto probe = std::exchange(in_middle, nullptr)) probe();
    });
    return out(h);
  }
  nn::Linear in, between, out;
  std::function<void()> in_middle;
};
TORCH_MODULE(Probed);

// Of small integers, whose sums are exact in any order.
template <typename Holder>
Holder with_integers(Holder module) {
  const torch::NoGradGuard no_grad;
  for (torch::Tensor& parameter : filled(module)->parameters()) parameter.mul_(10).round_();
  return module;
}

// A multiple of three, whose mean over three ranks is exact, too.
template <typename Holder>
torch::Tensor loss_of(Holder& module, const torch::Tensor& x) {
  return 3 * module->forward(x).sum();
}

struct Probe {
  explicit Probe(const CommPtr& communicator, bool has_argument_a_gradient = true)
      : comm(communicator),
        x((some_waves({4, Pair::kWidth}, comm->rank()) * 4).round()),
        whole(with_integers(Probed())),
        unit(with_integers(Probed()), comm, {.name = "probed"}) {
    x.requires_grad_(has_argument_a_gradient);
  }
  // run(holder, module) leaves the same gradients in both, and nothing whole.
  template <typename Run>
  void expect_same(const Run& run) {
    run(unit, *unit->module());
    expect_nothing_whole();
    run(whole, *whole);
    expect_same_gradients();
  }
  void expect_same_gradients() {
    average_gradients(whole->parameters(), *comm);
    expect_gradients(*unit, *whole, *comm);
  }
  void expect_nothing_whole() const {
    EXPECT_EQ(unit->counts().whole_bytes, 0U);
    expect_empty(*unit->module());
  }

  CommPtr comm;
  torch::Tensor x;
  Probed whole;
  Sharded<Probed> unit;
};

class ShardedBackward : public ::testing::TestWithParam<std::vector<int>> {
 protected:
  static void on_ranks(const std::function<void(const CommPtr&)>& body) {
    on_nodes_of(GetParam(), body);
  }
};

TEST_P(ShardedBackward, TwiceThroughAGraphThatIsKept) {
  on_ranks([](const CommPtr& comm) {
    Pair pair(comm);
    const torch::Tensor loss = pair.a->forward(pair.input().requires_grad_()).sum();
    loss.backward({}, /*retain_graph=*/true);
    const torch::Tensor once = pair.a->parameters().front().grad().clone();
    pair.expect_nothing_whole();
    loss.backward();
    EXPECT_TRUE(torch::equal(pair.a->parameters().front().grad(), 2 * once));
  });
}

TEST_P(ShardedBackward, InsideOfOneThroughTheSameGraph) {
  on_ranks([](const CommPtr& comm) {
    for (const bool has_argument_a_gradient : {false, true}) {
      Probe probe(comm, has_argument_a_gradient);
      probe.expect_same([&](auto& module, ProbedImpl& inside) {
        const torch::Tensor loss = loss_of(module, probe.x);
        inside.in_middle = [loss] { loss.backward({}, /*retain_graph=*/true); };
        loss.backward({}, /*retain_graph=*/true);
      });
    }
  });
}

TEST_P(ShardedBackward, InsideOfOneThroughAnotherGraphOfTheUnit) {
  on_ranks([](const CommPtr& comm) {
    for (const bool has_argument_a_gradient : {false, true}) {
      Probe probe(comm, has_argument_a_gradient);
      probe.expect_same([&](auto& module, ProbedImpl& inside) {
        const torch::Tensor other = loss_of(module, probe.x.detach() * 2);
        const torch::Tensor loss = loss_of(module, probe.x);
        inside.in_middle = [other] { other.backward(); };
        loss.backward();
      });
    }
  });
}

// One that fails inside of one that goes on takes nothing away from it.
TEST_P(ShardedBackward, ThatFailsInsideOfOne) {
  on_ranks([](const CommPtr& comm) {
    Probe probe(comm);
    probe.expect_same([&](auto& module, ProbedImpl& inside) {
      const torch::Tensor loss = loss_of(module, probe.x);
      inside.in_middle = [&inside, loss] {
        inside.in_middle = [] { throw std::runtime_error("a user's hook"); };
        EXPECT_ANY_THROW(loss.backward({}, /*retain_graph=*/true));
      };
      loss.backward({}, /*retain_graph=*/true);
    });
  });
}

// Nothing stays whole when the error has passed, and nothing of it gets into what follows.
TEST_P(ShardedBackward, ThatFails) {
  on_ranks([](const CommPtr& comm) {
    Pair pair(comm);
    for (int step = 0; step < 3; ++step) {  // with units fetched ahead from the second on
      const torch::Tensor h = pair.a->forward(pair.input());
      const torch::Tensor y = pair.b->forward(h);
      h.register_hook(
          [](const torch::Tensor& /*gradient*/) { throw std::runtime_error("a user's hook"); });
      EXPECT_ANY_THROW(y.sum().backward());
      pair.expect_nothing_whole();
      pair.zero_grad();
      pair.b->forward(pair.a->forward(pair.input())).sum().backward();
      pair.whole_b->forward(pair.whole_a->forward(pair.input())).sum().backward();
      pair.expect_same_gradients();
    }
    Probe probe(comm);
    const torch::Tensor loss = loss_of(probe.unit, probe.x);
    probe.unit->module()->in_middle = [] { throw std::runtime_error("a user's hook"); };
    EXPECT_ANY_THROW(loss.backward({}, /*retain_graph=*/true));
    probe.expect_nothing_whole();
    loss.backward();  // no forward comes between
    loss_of(probe.whole, probe.x).backward();
    probe.expect_same_gradients();
  });
}

// Layers through which gradients pass have a use for their weights after all gradients of the unit.
struct FrozenBelowImpl : nn::Module {
  explicit FrozenBelowImpl(const nn::AnyModule& first_layers)
      : first(first_layers),
        frozen(register_module("frozen", filled(nn::Linear(Pair::kWidth, Pair::kWidth), 3))),
        head(register_module("head", filled(nn::Linear(Pair::kWidth, 2), 4))) {
    register_module("first", first.ptr());
    for (torch::Tensor& parameter : frozen->parameters()) parameter.set_requires_grad(false);
  }
  torch::Tensor forward(const torch::Tensor& x) {
    return head(frozen(first.forward<torch::Tensor>(x)));
  }
  nn::AnyModule first;
  nn::Linear frozen, head;
};
TORCH_MODULE(FrozenBelow);

TEST_P(ShardedBackward, ThroughFrozenLayersAboveAnotherUnit) {
  on_ranks([](const CommPtr& comm) {
    Pair pair(comm);
    Sharded<FrozenBelow> outer(FrozenBelow(nn::AnyModule(pair.a.ptr())), comm, {.name = "outer"});
    FrozenBelow whole((nn::AnyModule(pair.whole_a)));
    outer->forward(pair.input()).square().sum().backward();
    whole->forward(pair.input()).square().sum().backward();
    average_gradients(whole->head->parameters(), *comm);
    const auto expected = own_parts({whole->frozen->weight, whole->frozen->bias,
                                     whole->head->weight.grad(), whole->head->bias.grad()},
                                    *comm);
    const auto slices = outer->named_parameters();
    EXPECT_TRUE(torch::equal(slices["head.weight"].grad(), expected[2]));
    EXPECT_TRUE(torch::equal(slices["head.bias"].grad(), expected[3]));
    pair.expect_same_gradients();
    pair.expect_nothing_whole();
  });
}

// A graph knows what was trained when it was made.
TEST_P(ShardedBackward, AfterParametersWereFrozen) {
  on_ranks([](const CommPtr& comm) {
    Probe probe(comm, /*has_argument_a_gradient=*/false);
    probe.expect_same([&](auto& module, ProbedImpl& /*inside*/) {
      const torch::Tensor loss = loss_of(module, probe.x);
      for (auto& item : module->named_parameters()) {
        if (item.key().rfind("in.", 0) != 0) item.value().set_requires_grad(false);
      }
      const torch::Tensor other = loss_of(module, probe.x);
      loss.backward();
      other.backward();
    });
  });
}

TEST_P(ShardedBackward, AfterTheModuleHasEnded) {
  on_ranks([](const CommPtr& comm) {
    Probe probe(comm);
    const auto slices = probe.unit->named_parameters();
    const torch::Tensor loss = loss_of(probe.unit, probe.x);
    const auto module = probe.unit->module();  // its hook is called
    probe.unit = nullptr;
    loss.backward();
    expect_empty(*module);
    loss_of(probe.whole, probe.x).backward();
    average_gradients(probe.whole->parameters(), *comm);
    std::vector<torch::Tensor> gradients;
    for (const torch::Tensor& one : probe.whole->parameters()) gradients.push_back(one.grad());
    const auto expected = own_parts(gradients, *comm);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_TRUE(torch::equal(slices[i].value().grad(), expected[i])) << slices[i].key();
    }
  });
}

// As torch does, whose in-place operators count what they write.
TEST_P(ShardedBackward, AfterAWriteToParametersIsRefused) {
  on_ranks([](const CommPtr& comm) {
    Probe probe(comm);
    const auto backward_after_a_write = [&](auto& module) {
      const torch::Tensor loss = loss_of(module, probe.x);
      {
        const torch::NoGradGuard no_grad;
        for (torch::Tensor& parameter : module->parameters()) parameter.mul_(2);
      }
      loss.backward();
    };
    EXPECT_THAT([&] { backward_after_a_write(probe.whole); },
                ThrowsMessage<c10::Error>(HasSubstr("modified by an inplace operation")));
    EXPECT_THAT([&] { backward_after_a_write(probe.unit); },
                ThrowsMessage<InvalidArgument>(
                    HasSubstr("unit 'probed': parameters were written to since the forward()")));
    probe.expect_nothing_whole();
    probe.whole->zero_grad();
    for (auto* const module : std::vector<nn::Module*>{probe.unit.get(), probe.whole.get()}) {
      const torch::NoGradGuard no_grad;
      for (torch::Tensor& parameter : module->parameters()) parameter.mul_(0.5);
    }
    loss_of(probe.unit, probe.x).backward();
    loss_of(probe.whole, probe.x).backward();
    probe.expect_same_gradients();
  });
}

// torch's optimizers write to data(), which nothing counts: backward goes through the new values.
TEST_P(ShardedBackward, AfterAStepIsAsInTorch) {
  on_ranks([](const CommPtr& comm) {
    Probe probe(comm);
    const auto backward_after_a_step = [&](auto& module, const std::function<void()>& average) {
      torch::optim::SGD optimizer(module->parameters(), 0.5);
      const torch::Tensor loss = loss_of(module, probe.x);
      loss.backward({}, /*retain_graph=*/true);
      average();
      optimizer.step();
      module->zero_grad();
      loss.backward();
    };
    backward_after_a_step(probe.unit, [] {});
    backward_after_a_step(probe.whole,
                          [&] { average_gradients(probe.whole->parameters(), *comm); });
    probe.expect_same_gradients();
  });
}

TEST_P(ShardedBackward, LeavesGradientsThatAProgramHasKept) {
  on_ranks([](const CommPtr& comm) {
    Pair pair(comm);
    std::vector<torch::Tensor> kept, copies;
    for (int step = 0; step < 3; ++step) {
      pair.zero_grad();
      pair.a->forward(pair.input(step)).sum().backward();
      pair.whole_a->forward(pair.input(step)).sum().backward();
      pair.expect_same_gradients();
      kept.push_back(pair.a->parameters()[static_cast<std::size_t>(step)].grad());
      copies.push_back(kept.back().clone());
    }
    for (std::size_t i = 0; i < kept.size(); ++i) EXPECT_TRUE(torch::equal(kept[i], copies[i]));
  });
}

INSTANTIATE_TEST_SUITE_P(Nodes, ShardedBackward,
                         ::testing::Values(std::vector<int>{1}, std::vector<int>{2},
                                           std::vector<int>{2, 1}));

}  // namespace
}  // namespace chainmail::testing
