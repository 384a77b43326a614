// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Nodes that step by themselves: the values that one process would come to, the same bits on all
// nodes, and what flush() leaves.

#include <condition_variable>
#include <mutex>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <chainmail/train/agreement.h>

#include "plugin/train/local_steps/local_access.h"
#include "tests/plugin/train/local_steps/local_training.h"

namespace chainmail::testing {
namespace {

namespace nn = torch::nn;
namespace optim = torch::optim;

const std::vector<std::int64_t> kSmallSizes = {1, 63, 400, 65};

MultiNodeOptimizerOptions locally(const LocalSteps& local) {
  return {.use_fused_step = false, .local_steps = local};
}

void expect_near(const Tensors& values, const Tensors& expected, double tolerance,
                 const std::string& what) {
  const torch::NoGradGuard no_grad;
  for (std::size_t p = 0; p < expected.size(); ++p) {
    const double difference = (values[p] - expected[p]).abs().max().item<double>();
    ASSERT_LE(difference, tolerance) << what << ": parameter " << p;
  }
}

// What this rank owns of what nodes have in common.
std::string common_bits(const MultiNodeOptimizer& optimizer) {
  Tensors own;
  for (const auto& piece : internal::LocalAccess::stepping(optimizer)->pieces()) {
    own.push_back(piece.common);
    own.push_back(piece.velocity);
  }
  return std::to_string(digest(own));
}

// Of ranks with the same slice, all have the same bits.
void expect_common_values(const CommPtr& comm, const MultiNodeOptimizer& optimizer,
                          std::int64_t step) {
  const auto bits = comm->allgather_obj(common_bits(optimizer));
  const auto local = comm->allgather_obj(std::to_string(comm->intra_rank()));
  for (std::size_t a = 0; a < bits.size(); ++a) {
    for (std::size_t b = a + 1; b < bits.size(); ++b) {
      if (local[a] == local[b]) {
        EXPECT_EQ(bits[a], bits[b]) << "after step " << step << ": ranks " << a << " and " << b;
      }
    }
  }
}

// Ranks of a node never differ.
void expect_equal_inside_nodes(const CommPtr& comm, const Tensors& parameters, std::int64_t step) {
  const auto bits = comm->allgather_obj(std::to_string(digest(parameters)));
  const auto nodes = comm->allgather_obj(std::to_string(comm->inter_rank()));
  for (std::size_t a = 0; a + 1 < bits.size(); ++a) {
    if (nodes[a] == nodes[a + 1]) {
      EXPECT_EQ(bits[a], bits[a + 1]) << "after step " << step << ": ranks " << a << " and next";
    }
  }
}

// Acceptance row A21, first part.
TEST(LocalSteps, EveryStepWithoutMomentumIsSynchronousTraining) {
  for (const auto& nodes : std::vector<std::vector<int>>{{1}, {1, 1}, {2, 2}, {1, 1, 1}}) {
    with_communicator(nodes, "hierarchical", {}, [](const CommPtr& comm) {
      Trained synchronous(comm, kSmallSizes, make_sgd, {});
      Trained local(comm, kSmallSizes, make_sgd,
                    locally({.steps = 1, .outer_lr = 1, .outer_momentum = 0}));
      for (std::int64_t step = 0; step < 20; ++step) {
        synchronous.step(step, comm->rank());
        local.step(step, comm->rank());
        expect_near(local.parameters, synchronous.parameters, 1e-6, "step");
      }
      EXPECT_FALSE(local.optimizer->flush());  // every step has ended with the common values
    });
  }
}

struct LocalCase {
  std::vector<int> nodes;
  LocalSteps local;
  MakeOptimizer make = make_fast_adam;
};

// Acceptance row A21, second part, and A22: in each step values of one process and equal bits.
TEST(LocalSteps, IsWhatOneProcessComputes) {
  const std::vector<LocalCase> cases = {
      {{1, 1}, {.steps = 32}},
      {{2, 2}, {.steps = 32, .fragments = 4, .delay = 4}},
      {{1, 1, 1}, {.steps = 8, .fragments = 2, .delay = 1, .outer_lr = 1, .outer_momentum = 0}},
      {{2, 1}, {.steps = 6, .fragments = 3, .delay = 1, .start = 5}},
      {{1, 1, 1, 1}, {.steps = 8, .fragments = 4, .delay = 1}, make_sgd},
      {{2, 2}, {.steps = 8, .fragments = 2, .delay = 2, .start = 3, .merge = 0.25}},
      {{2}, {.steps = 4}, make_sgd},
  };
  for (const LocalCase& one : cases) {
    for (const c10::ScalarType dtype : {torch::kDouble, torch::kFloat}) {
      Simulation expected(one.nodes, kSmallSizes, one.make, one.local, dtype);
      std::mutex mutex;
      std::int64_t simulated = 0;
      const double tolerance = dtype == torch::kDouble ? 1e-9 : 1e-5;
      with_communicator(one.nodes, "hierarchical", {}, [&](const CommPtr& comm) {
        Trained local(comm, kSmallSizes, one.make, locally(one.local), dtype);
        for (std::int64_t step = 0; step < 70; ++step) {
          local.step(step, comm->rank());
          expect_common_values(comm, *local.optimizer, step);
          expect_equal_inside_nodes(comm, local.parameters, step);
          {
            const std::lock_guard lock(mutex);
            if (simulated == step) {
              expected.step(step);
              ++simulated;
            }
            expect_near(local.parameters, expected.parameters(comm->inter_rank()), tolerance,
                        std::to_string(one.nodes.size()) + " nodes, step " + std::to_string(step));
          }
          comm->barrier();
        }
        local.optimizer->flush();
        verify_equal(*comm, local.parameters);
      });
    }
  }
}

// Acceptance row A22, with what rounds between nodes and parameters that are rounded themselves.
TEST(LocalSteps, ParametersAreEqualAfterFlush) {
  for (const auto& nodes : std::vector<std::vector<int>>{{1, 1}, {3, 1}, {2, 2, 2, 2}}) {
    for (const auto wire : {torch::kFloat, torch::kHalf}) {
      for (const auto dtype : {torch::kFloat, torch::kBFloat16}) {
        with_communicator(
            nodes, "two_dimensional", {.allreduce_grad_dtype = wire}, [&](const CommPtr& comm) {
              Trained local(comm, kSmallSizes, make_fast_adam,
                            locally({.steps = 6, .fragments = 2, .delay = 2, .merge = 0.5}), dtype);
              EXPECT_FALSE(local.optimizer->flush());
              for (std::int64_t step = 0; step < 16; ++step) {
                local.step(step, comm->rank());
                expect_common_values(comm, *local.optimizer, step);
                if (step % 5 != 4) continue;
                EXPECT_TRUE(local.optimizer->flush());
                verify_equal(*comm, local.parameters);
                expect_common_values(comm, *local.optimizer, step);
                EXPECT_FALSE(local.optimizer->flush());
              }
            });
      }
    }
  }
}

// Between two exchanges that are due, flush() takes the plain mean: one after each step must not
// make an outer step of each.
TEST(LocalSteps, FlushTakesTheMean) {
  with_communicator({1, 1}, "hierarchical", {}, [](const CommPtr& comm) {
    Trained local(comm, kSmallSizes, make_sgd, locally({.steps = 100}));
    for (std::int64_t step = 0; step < 5; ++step) {
      local.step(step, comm->rank());
      torch::Tensor mean = flat_of(local.parameters);
      comm->allreduce_mean(mean);
      EXPECT_TRUE(local.optimizer->flush());
      expect_near({flat_of(local.parameters)}, {mean}, 1e-6, "step");
      verify_equal(*comm, local.parameters);
    }
  });
}

// Nodes have the same values until they part.
TEST(LocalSteps, BeforeStartTrainingIsSynchronous) {
  for (const bool overlaps : {false, true}) {
    with_communicator({2, 2}, "hierarchical", {}, [&](const CommPtr& comm) {
      auto options = locally({.steps = 4, .start = 3});
      options.overlap = overlaps;
      Trained synchronous(comm, kSmallSizes, make_fast_adam,
                          {.overlap = overlaps, .use_fused_step = false});
      Trained local(comm, kSmallSizes, make_fast_adam, std::move(options));
      for (std::int64_t step = 0; step < 3; ++step) {
        synchronous.step(step, comm->rank());
        local.step(step, comm->rank());
        expect_same(synchronous, local, "before start");
        EXPECT_FALSE(local.optimizer->flush());
      }
      local.step(3, comm->rank());
      const auto bits = comm->allgather_obj(std::to_string(digest(local.parameters)));
      EXPECT_EQ(bits[0], bits[1]);
      EXPECT_NE(bits[0], bits[2]);
    });
  }
}

// While a fragment is on its way a node steps on, though another one has not sent its own.
TEST(LocalSteps, ADelayedExchangeWaitsForNobody) {
  std::mutex mutex;
  std::condition_variable changed;
  bool is_ahead = false;
  with_communicator({1, 1}, "hierarchical", {}, [&](const CommPtr& comm) {
    Trained local(comm, kSmallSizes, make_sgd, locally({.steps = 4, .delay = 3}));
    for (std::int64_t step = 0; step < 8; ++step) {
      if (comm->rank() == 1 && step == 3) {
        std::unique_lock lock(mutex);
        ASSERT_TRUE(changed.wait_for(lock, std::chrono::seconds(15), [&] { return is_ahead; }));
      }
      local.step(step, comm->rank());
      if (comm->rank() == 0 && step == 5) {  // sent after four steps, to be used after seven
        const std::lock_guard lock(mutex);
        is_ahead = true;
        changed.notify_all();
      }
    }
    local.optimizer->flush();
    verify_equal(*comm, local.parameters);
  });
}

struct NormNetImpl : nn::Module {
  NormNetImpl()
      : a(register_module("a", nn::Linear(3, 4))),
        norm(register_module("norm", nn::BatchNorm1d(4))) {}
  torch::Tensor forward(const torch::Tensor& x) { return norm(a(x)); }
  nn::Linear a;
  nn::BatchNorm1d norm;
};
TORCH_MODULE(NormNet);

TEST(LocalSteps, BuffersBecomeTheirMeanWithTheFirstFragment) {
  with_communicator({2, 1}, "hierarchical", {}, [](const CommPtr& comm) {
    NormNet net;
    const auto optimizer = create_multi_node_optimizer(
        make_sgd(net->parameters()), comm,
        {.model = &net, .local_steps = {{.steps = 4, .fragments = 2, .delay = 1}}});
    for (int step = 1; step <= 5; ++step) {
      optimizer->zero_grad();
      net->forward(torch::full({2, 3}, comm->rank() + 0.5 * step)).square().sum().backward();
      {
        const torch::NoGradGuard no_grad;
        net->norm->running_mean.fill_(10 * step + comm->rank());
      }
      optimizer->step();
      // Sent after step 4, there after step 5. After step 2 the other fragment is sent.
      const double expected = step < 5 ? 10 * step + comm->rank() : 40 + (0 + 1 + 2) / 3.0;
      EXPECT_NEAR(net->norm->running_mean[0].item<double>(), expected, 1e-5) << step;
      EXPECT_EQ(net->norm->num_batches_tracked.item<std::int64_t>(), step);
    }
    optimizer->flush();
    verify_equal(*comm, net->parameters());
    verify_equal(*comm, {net->norm->running_mean, net->norm->running_var});
  });
}

// A layer that is added between two exchanges begins with rank 0's values, and no node's steps are
// lost.
TEST(LocalSteps, AnAddedParameter) {
  with_communicator({2, 1}, "hierarchical", {}, [](const CommPtr& comm) {
    Trained local(comm, kSmallSizes, make_sgd, locally({.steps = 6, .fragments = 3, .delay = 1}));
    for (std::int64_t step = 0; step < 13; ++step) {
      if (step == 3) {  // the fragment of step 2 has arrived, that of step 4 is not sent
        local.parameters.push_back(
            torch::full({200}, comm->rank() + 1.0, torch::kFloat).requires_grad_());
        local.optimizer->actual_optimizer().param_groups()[0].params().push_back(
            local.parameters.back());
      }
      if (step == 6) local.parameters.front().set_requires_grad(false);
      local.step(step, comm->rank());
      expect_equal_inside_nodes(comm, local.parameters, step);
      expect_common_values(comm, *local.optimizer, step);
    }
    local.optimizer->flush();
    verify_equal(*comm, local.parameters);
    EXPECT_NEAR(local.parameters.back().mean().item<double>(), 1, 0.2);  // not 2 or 3
  });
}

// What rank 0 has loaded counts, not a mean with what others have.
TEST(LocalSteps, SynchronizeDropsWhatIsOnItsWay) {
  with_communicator({1, 1}, "hierarchical", {}, [](const CommPtr& comm) {
    Trained local(comm, kSmallSizes, make_sgd, locally({.steps = 4, .delay = 3}));
    for (std::int64_t step = 0; step < 5; ++step) local.step(step, comm->rank());
    {
      const torch::NoGradGuard no_grad;
      for (torch::Tensor& parameter : local.parameters) parameter.fill_(comm->rank() + 5);
    }
    local.optimizer->synchronize();
    for (const torch::Tensor& parameter : local.parameters) {
      EXPECT_TRUE(parameter.eq(5).all().item<bool>());
    }
    for (std::int64_t step = 5; step < 13; ++step) local.step(step, comm->rank());
    local.optimizer->flush();
    verify_equal(*comm, local.parameters);
  });
}

// Nor what is on its way, nor the fragments: the job goes on as if nobody had asked.
TEST(LocalSteps, ARefusedSynchronizeDropsNothing) {
  with_communicator({1, 1}, "hierarchical", {}, [](const CommPtr& comm) {
    Trained undisturbed(comm, kSmallSizes, make_sgd, locally({.steps = 4, .delay = 3}));
    Trained local(comm, kSmallSizes, make_sgd, locally({.steps = 4, .delay = 3}));
    for (std::int64_t step = 0; step < 13; ++step) {
      if (step == 5) {
        torch::Tensor& parameter = local.parameters.back();
        const torch::Tensor values = parameter.detach();
        parameter.set_data(torch::zeros({1}).expand(values.sizes()));
        EXPECT_THROW(local.optimizer->synchronize(), InvalidArgument);
        parameter.set_data(local.parameters[2].detach().slice(0, 0, values.numel()));
        EXPECT_THROW(local.optimizer->synchronize(), InvalidArgument);  // memory in common
        parameter.set_data(values);
      }
      undisturbed.step(step, comm->rank());
      local.step(step, comm->rank());
      EXPECT_EQ(digest(local.parameters), digest(undisturbed.parameters)) << step;
    }
    EXPECT_TRUE(local.optimizer->flush());
    verify_equal(*comm, local.parameters);
  });
}

// As a synchronize() leaves it that fails between two ranks.
TEST(LocalSteps, WithoutCommonValuesNoStepIsMade) {
  with_communicator({1, 1}, "hierarchical", {}, [](const CommPtr& comm) {
    Trained local(comm, kSmallSizes, make_sgd, locally({.steps = 4, .delay = 3}));
    for (std::int64_t step = 0; step < 5; ++step) local.step(step, comm->rank());
    internal::LocalAccess::stepping(*local.optimizer)->drop();
    const std::uint64_t before = digest(local.parameters);
    EXPECT_THROW(local.step(5, comm->rank()), InvalidArgument);
    EXPECT_THROW(local.optimizer->flush(), InvalidArgument);
    EXPECT_EQ(digest(local.parameters), before);
    local.optimizer->synchronize();
    for (std::int64_t step = 5; step < 13; ++step) local.step(step, comm->rank());
    local.optimizer->flush();
    verify_equal(*comm, local.parameters);
  });
}

// Clipping and losses that are not finite are a node's own affair.
TEST(LocalSteps, ANodeSkipsItsOwnSteps) {
  with_communicator({2, 1}, "hierarchical", {}, [](const CommPtr& comm) {
    auto options = locally({.steps = 4});
    options.skip_nonfinite = true;
    Trained local(comm, kSmallSizes, make_fast_adam, std::move(options));
    const auto all = [](std::size_t) { return true; };
    for (std::int64_t step = 0; step < 8; ++step) {
      const bool is_bad = step == 2 && comm->inter_rank() == 0;
      const double scale = step == 2 && comm->rank() == 0 ? INFINITY : 1;
      EXPECT_EQ(local.step(step, comm->rank(), all, scale).is_applied, !is_bad);
    }
    verify_equal(*comm, local.parameters);
    EXPECT_TRUE(local.parameters.back().isfinite().all().item<bool>());
  });
}

}  // namespace
}  // namespace chainmail::testing
