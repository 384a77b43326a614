// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What a run's continuation depends on besides model and wrapped optimizer.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <optional>

#include <torch/torch.h>

#include <chainmail/checkpoint.h>
#include <chainmail/data/iterators.h>
#include <chainmail/train/loss_scaler.h>
#include <chainmail/train/triggers.h>

#include "tests/plugin/checkpoint/faulty_file_system.h"
#include "tests/plugin/checkpoint/trainee.h"

namespace chainmail::testing {
namespace {

std::unique_ptr<MultiNodeCheckpointer> checkpointer_in(const ScratchFolder& scratch,
                                                       const Comm& comm) {
  return create_multi_node_checkpointer("run", comm, {.path = scratch.path()});
}

// The scale doubles after three finite steps in a row; the loss of step 2 is not finite.
struct ScaledTrainee {
  explicit ScaledTrainee(const Comm& communicator, bool double_buffering = false)
      : comm(communicator),
        net(4),
        scaler(std::make_shared<LossScaler>(
            LossScalerOptions{.initial_scale = 64, .growth_interval = 3})),
        optimizer(create_multi_node_optimizer(
            make_optimizer(Kind::kAdam, net), comm,
            {.model = &net, .double_buffering = double_buffering, .loss_scaler = scaler})) {}

  void train(int count) {
    for (; count > 0; --count) {
      optimizer->zero_grad();
      const torch::Tensor x = torch::full({5, 6}, 0.1 * static_cast<double>(comm->rank() + 1));
      torch::Tensor loss = net->forward(x + 0.01 * static_cast<double>(++steps)).square().mean();
      if (steps == 2 && comm->rank() == comm->size() - 1) {
        loss = loss * std::numeric_limits<float>::infinity();
      }
      scaler->scale(loss).backward();
      optimizer->step();
    }
  }
  void add_to(MultiNodeCheckpointer& checkpointer) {
    checkpointer.add("model", &net);
    checkpointer.add("optimizer", *optimizer);
    checkpointer.add("steps", &steps);
  }
  std::uint64_t fingerprint() const { return digest(net->parameters()); }

  Comm comm;
  Net net;
  std::shared_ptr<LossScaler> scaler;
  std::unique_ptr<MultiNodeOptimizer> optimizer;
  std::int64_t steps = 0;
};

void expect_equal(const LossScaler::State& a, const LossScaler::State& b) {
  EXPECT_EQ(a.scale, b.scale);
  EXPECT_EQ(a.finite_steps, b.finite_steps);
}

TEST(TrainingItems, TheLossScalerGoesOnWhereItWas) {
  for (const bool double_buffering : {false, true}) {
    for (const Shape& shape : {Shape{1}, Shape{2}, Shape{2, 1}}) {
      const ScratchFolder scratch;
      LossScaler::State saved;
      LossScaler::State last;
      std::uint64_t straight = 0;
      on_ranks(shape, [&](const Comm& comm) {
        ScaledTrainee trainee(comm, double_buffering);
        const auto checkpointer = checkpointer_in(scratch, comm);
        trainee.add_to(*checkpointer);
        trainee.train(4);
        checkpointer->save(4);
        const LossScaler::State at_save = trainee.scaler->state();
        EXPECT_EQ(at_save.scale, 32);
        EXPECT_EQ(at_save.finite_steps, 2);
        trainee.train(3);
        checkpointer->wait();
        if (comm->rank() == 0) {
          saved = at_save;
          last = trainee.scaler->state();
          straight = trainee.fingerprint();
        }
      });
      on_ranks(shape, [&](const Comm& comm) {
        ScaledTrainee trainee(comm, double_buffering);
        const auto checkpointer = checkpointer_in(scratch, comm);
        trainee.add_to(*checkpointer);
        EXPECT_EQ(checkpointer->maybe_load(), std::optional<std::int64_t>(4));
        expect_equal(trainee.scaler->state(), saved);
        trainee.train(3);
        expect_equal(trainee.scaler->state(), last);
        EXPECT_EQ(trainee.fingerprint(), straight);
      });
      on_ranks({3}, [&](const Comm& comm) {
        ScaledTrainee trainee(comm);
        const auto checkpointer = checkpointer_in(scratch, comm);
        trainee.add_to(*checkpointer);
        EXPECT_EQ(checkpointer->maybe_load(), std::optional<std::int64_t>(4));
        expect_equal(trainee.scaler->state(), saved);
        trainee.train(1);
      });
    }
  }
}

// A wrapped optimizer by itself is what checkpoints had before loss scalers were in them.
TEST(TrainingItems, ACheckpointWithoutTheLossScalerStillLoads) {
  const ScratchFolder scratch;
  std::uint64_t saved = 0;
  on_ranks({2}, [&](const Comm& comm) {
    ScaledTrainee trainee(comm);
    const auto checkpointer = checkpointer_in(scratch, comm);
    checkpointer->add("model", &trainee.net);
    checkpointer->add("optimizer", trainee.optimizer->actual_optimizer());
    checkpointer->add("steps", &trainee.steps);
    trainee.train(4);
    checkpointer->save(4);
    checkpointer->wait();
    if (comm->rank() == 0) saved = trainee.fingerprint();
  });
  on_ranks({2}, [&](const Comm& comm) {
    ScaledTrainee trainee(comm);
    const auto checkpointer = checkpointer_in(scratch, comm);
    trainee.add_to(*checkpointer);
    EXPECT_EQ(checkpointer->maybe_load(), std::optional<std::int64_t>(4));
    EXPECT_EQ(trainee.fingerprint(), saved);
    expect_equal(trainee.scaler->state(), {.scale = 64, .finite_steps = 0});
    trainee.train(1);
    checkpointer->save(5);
    checkpointer->wait();
  });
  // And the other way round: a program that has no loss scaler any more.
  on_ranks({2}, [&](const Comm& comm) {
    Net net(4);
    const auto optimizer =
        create_multi_node_optimizer(make_optimizer(Kind::kAdam, net), comm, {.model = &net});
    const auto checkpointer = checkpointer_in(scratch, comm);
    checkpointer->add("model", &net);
    checkpointer->add("optimizer", *optimizer);
    EXPECT_EQ(checkpointer->maybe_load(), std::optional<std::int64_t>(5));
  });
}

TEST(TrainingItems, ALossScalerOfItsOwn) {
  const ScratchFolder scratch;
  on_ranks({2}, [&](const Comm& comm) {
    LossScaler scaler({.initial_scale = 8, .growth_interval = 10});
    const auto checkpointer = checkpointer_in(scratch, comm);
    checkpointer->add("scaler", scaler);
    scaler.update(true, 8);
    checkpointer->save(1);
    checkpointer->wait();
    scaler.update(false, 8);
    EXPECT_EQ(checkpointer->maybe_load(), std::optional<std::int64_t>(1));
    expect_equal(scaler.state(), {.scale = 8, .finite_steps = 1});
  });
}

// Everything of a loop that decides something, in one text.
struct Loop {
  explicit Loop(const Comm& communicator)
      : comm(communicator),
        sampler(create_multi_node_sampler(11, comm, {.seed = 3})),
        iterator({torch::arange(13)}, create_multi_node_sampler(13, comm, {.seed = 4}),
                 {.batch_size = 2}),
        shared(create_multi_node_iterator(
            comm->rank() == 0
                ? std::make_shared<TensorIterator>(TensorList{torch::arange(7)},
                                                   MultiNodeSampler(7, 0, 1, {.seed = 5}),
                                                   TensorIteratorOptions{.batch_size = 3})
                : nullptr,
            comm)),
        often({3, IntervalUnit::kIteration}),
        aggregator(comm, "loss", {.comm_trigger = {4, IntervalUnit::kIteration}}),
        stopping(
            comm,
            {.check_trigger = {3, IntervalUnit::kIteration}, .monitor = "loss", .patience = 2}) {}

  void add_to(MultiNodeCheckpointer& checkpointer) {
    checkpointer.add("sampler", sampler);
    checkpointer.add("iterator", iterator);
    checkpointer.add("shared", shared);
    checkpointer.add("often", often);
    checkpointer.add("aggregator", aggregator);
    checkpointer.add("stopping", stopping);
    checkpointer.add("iteration", &iteration);
  }

  template <typename Batches>
  void draw(Batches& batches, std::ostream& out) {
    std::optional<TensorList> batch = batches.next();
    if (!batch) batch = batches.next();
    out << batch->front().flatten().to(torch::kLong) << '\n';
  }

  std::string run(int count) {
    std::ostringstream out;
    for (; count > 0; --count) {
      const TrainingPoint point{0, ++iteration};
      auto indices = sampler.next(2);
      if (!indices) {
        sampler.reset();
        indices = sampler.next(2);
      }
      for (const std::size_t index : *indices) out << index << ' ';
      draw(iterator, out);
      draw(shared, out);
      Observation observation{
          {"loss", static_cast<double>((iteration * 7 + comm->rank() * 3) % 10)}};
      aggregator.update(point, observation);
      out << often.fires(point) << stopping.fires(point, observation);
      for (const auto& [name, value] : observation) out << ' ' << name << ' ' << value;
    }
    return std::move(out).str();
  }

  Comm comm;
  MultiNodeSampler sampler;
  TensorIterator iterator;
  MultiNodeIterator shared;
  IntervalTrigger often;
  ObservationAggregator aggregator;
  MultiNodeEarlyStoppingTrigger stopping;
  std::int64_t iteration = 0;
};

TEST(TrainingItems, SamplersIteratorsAndTriggersGoOnWhereTheyWere) {
  for (const Shape& shape : {Shape{1}, Shape{2}, Shape{2, 1}}) {
    for (const int before : {1, 2, 5, 6, 8}) {  // amid intervals and epochs, and between them
      const ScratchFolder scratch;
      std::vector<std::string> straight(3);
      on_ranks(shape, [&](const Comm& comm) {
        Loop loop(comm);
        const auto checkpointer = checkpointer_in(scratch, comm);
        loop.add_to(*checkpointer);
        (void)loop.run(before);
        checkpointer->save(before);
        straight.at(static_cast<std::size_t>(comm->rank())) = loop.run(9);
        checkpointer->wait();
      });
      on_ranks(shape, [&](const Comm& comm) {
        Loop loop(comm);
        const auto checkpointer = checkpointer_in(scratch, comm);
        loop.add_to(*checkpointer);
        EXPECT_EQ(checkpointer->maybe_load(), std::optional<std::int64_t>(before));
        EXPECT_EQ(loop.run(9), straight.at(static_cast<std::size_t>(comm->rank())));
      });
      // On other ranks, too; of each thing it is documented what that means.
      on_ranks({3}, [&](const Comm& comm) {
        Loop loop(comm);
        const auto checkpointer = checkpointer_in(scratch, comm);
        loop.add_to(*checkpointer);
        EXPECT_EQ(checkpointer->maybe_load(), std::optional<std::int64_t>(before));
        (void)loop.run(1);
      });
    }
  }
}

TEST(TrainingItems, AnIteratorOfAnotherDatasetIsRefusedOnAllRanks) {
  const ScratchFolder scratch;
  const auto iterator_of = [](const Comm& comm, std::int64_t size) {
    const auto own = comm->rank() == 0 ? std::make_shared<TensorIterator>(
                                             TensorList{torch::arange(size)},
                                             MultiNodeSampler(static_cast<std::size_t>(size), 0, 1),
                                             TensorIteratorOptions{.batch_size = 5})
                                       : nullptr;
    return create_multi_node_iterator(own, comm);
  };
  on_ranks({2}, [&](const Comm& comm) {
    MultiNodeIterator iterator = iterator_of(comm, 20);
    const auto checkpointer = checkpointer_in(scratch, comm);
    checkpointer->add("batches", iterator);
    for (int i = 0; i < 3; ++i) (void)iterator.next();
    checkpointer->save(1);
    checkpointer->wait();
  });
  on_ranks({2}, [&](const Comm& comm) {
    MultiNodeIterator iterator = iterator_of(comm, 10);
    const auto checkpointer = checkpointer_in(scratch, comm);
    checkpointer->add("batches", iterator);
    try {
      (void)checkpointer->maybe_load();
      ADD_FAILURE() << "loaded";
    } catch (const CheckpointError& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr("'batches': "));
      EXPECT_THAT(error.what(), ::testing::HasSubstr("after 15 of 10 samples"));
    }
    comm->barrier();
  });
}

// More than eight nodes add long sums up around a ring, so a bucket's layout decides in which order
// each element is added.
TEST(TrainingItems, TheOrderOfBucketsIsKept) {
  const Shape shape(9, 1);
  struct Wide {
    // Registered in another order than used, so that the buckets learn something.
    explicit Wide(const Comm& comm) {
      net.register_module("second", second);
      net.register_module("first", first);
      const torch::NoGradGuard no_grad;
      for (const torch::Tensor& parameter : net.parameters()) {
        parameter.copy_(torch::linspace(-1, 1, parameter.numel()).view(parameter.sizes()).sin());
      }
      optimizer = create_multi_node_optimizer(
          std::make_unique<torch::optim::SGD>(net.parameters(), 0.1), comm, {.model = &net});
    }
    void train(const Comm& comm, int count) {
      for (; count > 0; --count) {
        optimizer->zero_grad();
        const torch::Tensor x = torch::linspace(0, 1 + comm->rank(), 4 * 40).view({4, 40}).sin();
        (second(first(x).tanh()).square().mean() * (0.1 + comm->rank())).backward();
        optimizer->step();
      }
    }
    torch::nn::Linear first{40, 3000};
    torch::nn::Linear second{3000, 40};
    torch::nn::Module net{};
    std::unique_ptr<MultiNodeOptimizer> optimizer;
  };
  const ScratchFolder scratch;
  std::uint64_t straight = 0;
  on_ranks(shape, [&](const Comm& comm) {
    Wide wide(comm);
    const auto checkpointer = checkpointer_in(scratch, comm);
    checkpointer->add("model", &wide.net);
    checkpointer->add("optimizer", *wide.optimizer);
    EXPECT_TRUE(wide.optimizer->state().bucket_order.empty());
    wide.train(comm, 2);
    EXPECT_EQ(wide.optimizer->state().bucket_order.size(), 4U);
    checkpointer->save(2);
    wide.train(comm, 1);
    checkpointer->wait();
    if (comm->rank() == 0) straight = digest(wide.net.parameters());
  });
  on_ranks(shape, [&](const Comm& comm) {
    Wide wide(comm);
    const auto checkpointer = checkpointer_in(scratch, comm);
    checkpointer->add("model", &wide.net);
    checkpointer->add("optimizer", *wide.optimizer);
    EXPECT_EQ(checkpointer->maybe_load(), std::optional<std::int64_t>(2));
    EXPECT_EQ(wide.optimizer->state().bucket_order.size(), 4U);
    wide.train(comm, 1);
    EXPECT_EQ(digest(wide.net.parameters()), straight);
  });
}

}  // namespace
}  // namespace chainmail::testing
