// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Checkpoints of optimizers whose exchanges are rounded to integers: what rounding has lost is owed
// by the job that goes on, whatever its shape.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plugin/train/local_steps/local_access.h"
#include "tests/plugin/checkpoint/faulty_file_system.h"
#include "tests/plugin/checkpoint/trainee.h"

namespace chainmail::testing {
namespace {

/// Plain SGD of rate 1 from zeros: parameters are minus the sums of the means.
struct Rounded {
  /// `is_transposed`: its weight lies in the order of its transpose.
  Rounded(Comm comm, MultiNodeOptimizerOptions options, bool is_transposed = false)
      : communicator(std::move(comm)), layer(torch::nn::Linear(100, 90)) {
    const torch::NoGradGuard no_grad;
    for (torch::Tensor& parameter : layer->parameters()) parameter.zero_();
    if (is_transposed) transpose();
    options.model = &layer;
    if (options.loss_scaler) {  // every rank has its own
      options.loss_scaler = std::make_shared<LossScaler>(
          LossScalerOptions{.initial_scale = 64, .growth_interval = 3});
    }
    scaler = options.loss_scaler;
    optimizer =
        create_multi_node_optimizer(std::make_unique<torch::optim::SGD>(layer->parameters(), 1.0),
                                    communicator, std::move(options));
  }

  std::unique_ptr<MultiNodeCheckpointer> checkpointer(const std::string& path) {
    auto made = create_multi_node_checkpointer("run", communicator, {.path = path});
    made->add("model", &layer);
    made->add("optimizer", *optimizer);
    return made;
  }

  void transpose() { layer->weight.set_data(layer->weight.detach().t().contiguous().t()); }

  static torch::Tensor gradient_of(const torch::Tensor& parameter, int rank, int step) {
    return torch::sin(torch::arange(parameter.numel(), torch::kFloat) * (0.3 + 0.1 * step) + rank)
        .view(parameter.sizes());
  }

  /// Steps `begin` to `end`; `factor` 0 makes gradients of zeros.
  void train(int begin, int end, double factor = 1) {
    for (int step = begin; step < end; ++step) {
      optimizer->zero_grad();
      torch::Tensor loss = torch::zeros({});
      for (const torch::Tensor& parameter : layer->parameters()) {
        loss = loss + (parameter * gradient_of(parameter, communicator->rank(), step)).sum();
      }
      loss = loss * factor;
      (scaler ? scaler->scale(loss) : loss).backward();
      optimizer->step();
    }
  }

  std::uint64_t fingerprint() { return digest(layer->parameters()); }

  /// How far the weight is from minus the sum of the means of steps 0 to `steps`, taken over the
  /// ranks of each of `nodes` and then over those.
  double error(const Shape& nodes, int steps) {
    torch::Tensor sum = torch::zeros({90, 100}, torch::kDouble);
    for (int step = 0; step < steps; ++step) {
      int rank = 0;
      for (const int ranks : nodes) {
        for (int i = 0; i < ranks; ++i, ++rank) {
          sum += gradient_of(layer->weight, rank, step).to(torch::kDouble) /
                 (ranks * static_cast<double>(nodes.size()));
        }
      }
    }
    return (layer->weight.detach().to(torch::kDouble) + sum).abs().max().item<double>();
  }

  Comm communicator;
  torch::nn::Linear layer;
  std::shared_ptr<LossScaler> scaler;
  std::unique_ptr<MultiNodeOptimizer> optimizer;
};

using ByRank = std::map<int, std::uint64_t>;

void goes_on_with_the_same_bits(const Shape& shape, const MultiNodeOptimizerOptions& options,
                                int saved = 7) {
  const ScratchFolder scratch;
  std::mutex mutex;
  ByRank expected;
  on_ranks(shape, [&](const Comm& comm) {
    Rounded trained(comm, options);
    trained.train(0, saved);
    const auto checkpointer = trained.checkpointer(scratch.path());
    checkpointer->save(saved);
    checkpointer->wait();
    trained.train(saved, 15);
    trained.optimizer->flush();
    const std::lock_guard lock(mutex);
    expected[comm->rank()] = trained.fingerprint();
  });
  for (const int before : {0, 3}) {  // in a new job, and in one that has kept something else
    on_ranks(shape, [&](const Comm& comm) {
      Rounded trained(comm, options);
      trained.train(20, 20 + before);
      EXPECT_EQ(trained.checkpointer(scratch.path())->maybe_load(),
                std::optional<std::int64_t>(saved));
      trained.train(saved, 15);
      trained.optimizer->flush();
      const std::lock_guard lock(mutex);
      EXPECT_EQ(trained.fingerprint(), expected.at(comm->rank())) << "after " << before;
    });
  }
}

// Acceptance row A17, first part.
TEST(WireCheckpoint, GoesOnWithTheSameBits) {
  for (const Shape& shape : std::vector<Shape>{{1, 1}, {2, 2}, {1, 1, 1}, {2, 1}}) {
    for (const char* wire : {"int8", "int4"}) {
      SCOPED_TRACE(std::string(wire) + " on " + std::to_string(shape.size()) + " nodes");
      goes_on_with_the_same_bits(shape, {.wire = wire});
    }
  }
  goes_on_with_the_same_bits({2, 2}, {.double_buffering = true, .wire = "int4"});
  goes_on_with_the_same_bits({2, 2}, {.shard = Sharding::kNode, .wire = "int4"});
  goes_on_with_the_same_bits({2, 2},
                             {.loss_scaler = std::make_shared<LossScaler>(), .wire = "int4"});
}

// Acceptance row A25, the part on checkpoints.
TEST(WireCheckpoint, LocalStepsGoOnWithTheSameBits) {
  const LocalSteps local{.steps = 4, .fragments = 2, .delay = 1};
  for (const Shape& shape : std::vector<Shape>{{1, 1}, {2, 2}, {1, 1, 1}}) {
    for (const int saved : {6, 7}) {  // one fragment is on its way, none is
      goes_on_with_the_same_bits(shape, {.wire = "int4", .local_steps = local}, saved);
    }
  }
  // Before they begin gradients are rounded.
  const LocalSteps later{.steps = 4, .fragments = 2, .delay = 1, .start = 3};
  for (const int saved : {2, 3, 6}) {
    goes_on_with_the_same_bits({2, 2}, {.wire = "int4", .local_steps = later}, saved);
  }
}

// Of nodes 0 and 2, and of 1 and 3; what a set keeps is its own.
TEST(WireCheckpoint, ReplicaSetsGoOnWithTheSameBits) {
  const MultiNodeOptimizerOptions wire{.wire = "int4"};
  const MultiNodeOptimizerOptions local{.wire = "int4",
                                        .local_steps = {{.steps = 4, .fragments = 2, .delay = 1}}};
  using OfSets = std::vector<MultiNodeOptimizerOptions>;
  for (const OfSets& of_sets :
       {OfSets{wire, wire}, OfSets{local, local}, OfSets{local, {}}, OfSets{wire, local}}) {
    const ScratchFolder scratch;
    std::mutex mutex;
    ByRank expected;
    const auto job =
        [&](const std::function<void(Rounded&, MultiNodeCheckpointer&, int first)>& body) {
          on_ranks({1, 1, 1, 1}, [&](const Comm& comm) {
            const int set = comm->rank() % 2;
            Rounded trained(comm->split(set, comm->rank()), of_sets[static_cast<std::size_t>(set)]);
            const auto checkpointer =
                multi_node_snapshot(comm, "run", {{0, 2}, {1, 3}}, {.path = scratch.path()});
            checkpointer->add("model", &trained.layer);
            checkpointer->add("optimizer", *trained.optimizer);
            body(trained, *checkpointer, 100 * set);  // with gradients of its own
            trained.optimizer->flush();
            const std::lock_guard lock(mutex);
            const auto [known, is_new] = expected.emplace(comm->rank(), trained.fingerprint());
            EXPECT_EQ(known->second, trained.fingerprint()) << "rank " << comm->rank();
          });
        };
    job([](Rounded& trained, MultiNodeCheckpointer& checkpointer, int first) {
      trained.train(first, first + 7);
      checkpointer.save(7);
      checkpointer.wait();
      trained.train(first + 7, first + 15);
    });
    job([](Rounded& trained, MultiNodeCheckpointer& checkpointer, int first) {
      EXPECT_EQ(checkpointer.maybe_load(), std::optional<std::int64_t>(7));
      trained.train(first + 7, first + 15);
    });
  }
}

// One optimizer over all ranks, of which sets are replicas: any rank's rows may be in any set.
TEST(WireCheckpoint, AnOptimizerOverSeveralSetsLosesNothing) {
  constexpr int kSaved = 8;
  using Sets = std::vector<std::vector<int>>;
  struct Job {
    Shape shape;
    Sets sets;
  };
  const ScratchFolder scratch;
  std::mutex mutex;
  ByRank expected;
  const Job saved{{1, 1, 1, 1}, {{0, 1}, {2, 3}}};
  const auto with = [&](const Job& job,
                        const std::function<void(Rounded&, MultiNodeCheckpointer&)>& body) {
    on_ranks(job.shape, [&](const Comm& comm) {
      Rounded trained(comm, {.wire = "int4"});
      const auto checkpointer =
          multi_node_snapshot(comm, "run", job.sets, {.path = scratch.path()});
      checkpointer->add("model", &trained.layer);
      checkpointer->add("optimizer", *trained.optimizer);
      body(trained, *checkpointer);
    });
  };
  with(saved, [&](Rounded& trained, MultiNodeCheckpointer& checkpointer) {
    trained.train(0, kSaved);
    checkpointer.save(kSaved);
    checkpointer.wait();
    EXPECT_GT(trained.error(saved.shape, kSaved), 1e-2) << "nothing is owed";
    trained.train(kSaved, 15);
    const std::lock_guard lock(mutex);
    expected[trained.communicator->rank()] = trained.fingerprint();
  });
  for (const Job& job : {Job{{1, 1}, {{0}, {1}}}, Job{{2, 1}, {{0, 2}, {1}}}}) {
    with(job, [&](Rounded& trained, MultiNodeCheckpointer& checkpointer) {
      ASSERT_TRUE(checkpointer.maybe_load().has_value());
      trained.train(kSaved, kSaved + 64, 0);
      EXPECT_LE(trained.error(saved.shape, kSaved), 1e-5);
      verify_equal(*trained.communicator, trained.layer->parameters());
    });
  }
  for (const Sets& sets : {saved.sets, Sets{{0, 2}, {1, 3}}}) {
    with({saved.shape, sets}, [&](Rounded& trained, MultiNodeCheckpointer& checkpointer) {
      ASSERT_TRUE(checkpointer.maybe_load().has_value());
      trained.train(kSaved, 15);
      const std::lock_guard lock(mutex);
      EXPECT_EQ(trained.fingerprint(), expected.at(trained.communicator->rank()));
    });
  }
}

// channels_last and such: what is owed of an element is paid to that element.
TEST(WireCheckpoint, AnotherMemoryLayoutIsConverted) {
  constexpr int kSaved = 8;
  const Shape shape{2, 2};
  const LocalSteps local{.steps = 4, .outer_lr = 1, .outer_momentum = 0};
  const LocalSteps fragments{.steps = 4, .fragments = 2, .outer_lr = 1, .outer_momentum = 0};
  for (const auto& local_steps :
       std::vector<std::optional<LocalSteps>>{std::nullopt, local, fragments}) {
    for (const bool is_transposed : {true, false}) {
      const ScratchFolder scratch;
      std::mutex mutex;
      ByRank expected;
      const MultiNodeOptimizerOptions options{.wire = "int4", .local_steps = local_steps};
      const auto make = [&](const Comm& comm, bool transposed) {
        return std::make_unique<Rounded>(comm, options, transposed);
      };
      on_ranks(shape, [&](const Comm& comm) {
        const auto trained = make(comm, is_transposed);
        trained->train(0, kSaved);
        const auto checkpointer = trained->checkpointer(scratch.path());
        checkpointer->save(kSaved);
        checkpointer->wait();
        EXPECT_GT(trained->error(shape, kSaved), 1e-2) << "nothing is owed";
        trained->train(kSaved, 16);
        trained->optimizer->flush();
        const std::lock_guard lock(mutex);
        expected[comm->rank()] = trained->fingerprint();
      });
      on_ranks(shape, [&](const Comm& comm) {
        const auto same = make(comm, is_transposed);
        ASSERT_TRUE(same->checkpointer(scratch.path())->maybe_load().has_value());
        same->train(kSaved, 16);
        same->optimizer->flush();
        EXPECT_EQ(same->fingerprint(), expected.at(comm->rank()));
      });
      for (const Shape& later : std::vector<Shape>{shape, {1, 1, 1}}) {
        on_ranks(later, [&](const Comm& comm) {
          const auto other = make(comm, !is_transposed);
          ASSERT_TRUE(other->checkpointer(scratch.path())->maybe_load().has_value());
          other->train(kSaved, kSaved + 64, 0);
          other->optimizer->flush();
          EXPECT_LE(other->error(shape, kSaved), 1e-5);
          verify_equal(*comm, other->layer->parameters());
        });
      }
    }
  }
}

// Without a checkpoint: when buckets are made anew, as for another parameter.
TEST(WireCheckpoint, WhatIsOwedFollowsElementsToAnotherMemoryLayout) {
  on_ranks({1, 1}, [](const Comm& comm) {
    Rounded trained(comm, {.wire = "int4"});
    trained.train(0, 8);
    trained.transpose();
    trained.layer->register_parameter("another", torch::zeros({3}));
    trained.train(8, 72, 0);
    EXPECT_LE(trained.error({1, 1}, 8), 1e-5);
  });
}

// Owed of a parameter that nobody has used since, and that is not trained any more.
TEST(WireCheckpoint, ADebtOfAParameterThatIsGoneIsDroppedWithAWarning) {
  const ScratchFolder scratch;
  on_ranks({1, 1}, [&](const Comm& comm) {
    Rounded first(comm, {.wire = "int4"});
    first.train(0, 5);
    first.checkpointer(scratch.path() + "/1")->save(5);
    Rounded second(comm, {.wire = "auto"});
    ASSERT_TRUE(second.checkpointer(scratch.path() + "/1")->maybe_load().has_value());
    second.checkpointer(scratch.path() + "/2")->save(5);
    Rounded third(comm, {.wire = "auto"});
    third.layer->weight.set_requires_grad(false);
    third.optimizer->synchronize();
    if (comm->rank() == 0) ::testing::internal::CaptureStderr();
    EXPECT_TRUE(third.checkpointer(scratch.path() + "/2")->maybe_load().has_value());
    comm->barrier();
    if (comm->rank() == 0) {
      EXPECT_THAT(::testing::internal::GetCapturedStderr(),
                  ::testing::HasSubstr("has still to pay of 'weight'"));
    }
    for (int step = 0; step < 3; ++step) {
      third.optimizer->zero_grad();
      third.layer->bias.sum().backward();
      third.optimizer->step();
    }
  });
}

TEST(WireCheckpoint, AnOptimizerInPartsOverSeveralSetsIsRefused) {
  const ScratchFolder scratch;
  for (const MultiNodeOptimizerOptions& options :
       {MultiNodeOptimizerOptions{.local_steps = LocalSteps{}},
        MultiNodeOptimizerOptions{.shard = Sharding::kNode}}) {
    on_ranks({2, 2}, [&](const Comm& comm) {
      Rounded trained(comm, options);
      const auto checkpointer =
          multi_node_snapshot(comm, "run", {{0, 1}, {2, 3}}, {.path = scratch.path()});
      EXPECT_THAT([&] { checkpointer->add("optimizer", *trained.optimizer); },
                  ::testing::ThrowsMessage<InvalidArgument>(::testing::AllOf(
                      ::testing::HasSubstr("'optimizer'"), ::testing::HasSubstr("split(set"))));
    });
  }
}

/// Saves in a job of one shape and goes on in another one with gradients of zeros, which pay what
/// is owed: less of it in each step.
void pays_all(const Shape& saved, const Shape& loaded, const MultiNodeOptimizerOptions& options,
              std::optional<MultiNodeOptimizerOptions> later = std::nullopt) {
  SCOPED_TRACE(std::to_string(saved.size()) + " nodes, then " + std::to_string(loaded.size()));
  constexpr int kSaved = 8;
  const ScratchFolder scratch;
  on_ranks(saved, [&](const Comm& comm) {
    Rounded trained(comm, options);
    trained.train(0, kSaved);
    const auto checkpointer = trained.checkpointer(scratch.path());
    checkpointer->save(kSaved);
    checkpointer->wait();
    EXPECT_GT(trained.error(saved, kSaved), 1e-2) << "nothing is owed";
  });
  on_ranks(loaded, [&](const Comm& comm) {
    Rounded trained(comm, later.value_or(options));
    ASSERT_TRUE(trained.checkpointer(scratch.path())->maybe_load().has_value());
    for (const auto& bucket :
         internal::LocalAccess::model(*trained.optimizer).gradients().buckets()) {
      EXPECT_TRUE(bucket.debts().are_expected()) << "on all ranks";
    }
    trained.train(kSaved, kSaved + 64, 0);
    trained.optimizer->flush();
    EXPECT_LE(trained.error(saved, kSaved), 1e-5);
    verify_equal(*comm, trained.layer->parameters());
  });
}

// Acceptance row A17, second part.
TEST(WireCheckpoint, InAJobOfAnotherShapeAllIsOwed) {
  const std::vector<std::pair<Shape, Shape>> shapes = {
      {{1, 1}, {1, 1, 1}}, {{2, 2}, {1, 1}}, {{1, 1, 1}, {2, 2}}, {{2, 2}, {3, 1}}, {{1, 1}, {2}}};
  for (const auto& [saved, loaded] : shapes) {
    pays_all(saved, loaded, {.wire = "int4"});
    pays_all(saved, loaded, {.double_buffering = true, .wire = "int4"});
  }
  pays_all({2, 2}, {1, 1}, {.shard = Sharding::kNode, .wire = "int4"});
  // Two steps of each job and of another one's make up a round of local steps.
  const LocalSteps local{.steps = 4, .outer_lr = 1, .outer_momentum = 0};
  for (const auto& [saved, loaded] : shapes) {
    pays_all(saved, loaded, {.wire = "int4", .local_steps = local});
  }
}

TEST(WireCheckpoint, OnAnotherWireAllIsOwed) {
  const Shape shape{2, 2};
  const MultiNodeOptimizerOptions int4{.wire = "int4"};
  pays_all(shape, shape, int4, {{}});
  pays_all(shape, {1, 1, 1}, int4, {{.double_buffering = true}});
  pays_all(shape, shape, int4, {{.shard = Sharding::kNode}});
  pays_all(shape, shape, int4, {{.shard = Sharding::kAll}});
  pays_all(shape, shape, int4, {{.wire = "auto"}});
  pays_all(shape, shape, int4, {{.loss_scaler = std::make_shared<LossScaler>()}});
  const LocalSteps local{.steps = 4, .outer_lr = 1, .outer_momentum = 0};
  pays_all(shape, shape, {.wire = "int4", .local_steps = local}, {{.local_steps = local}});
  pays_all(shape, {3}, {.wire = "int4", .local_steps = local}, {{.local_steps = local}});
  LocalSteps later = local;
  later.start = 100;  // gradients were rounded so far
  pays_all({1, 1}, {2, 1}, {.wire = "int4", .local_steps = later}, {{.local_steps = local}});
}

// What is owed and not paid yet is saved on any wire.
TEST(WireCheckpoint, WhatIsOwedIsSavedAgain) {
  const ScratchFolder scratch;
  constexpr int kSteps = 5;
  const Shape shape{2, 2};
  on_ranks(shape, [&](const Comm& comm) {
    Rounded first(comm, {.wire = "int4"});
    first.train(0, kSteps);
    first.checkpointer(scratch.path() + "/1")->save(kSteps);
    Rounded second(comm, {});
    ASSERT_TRUE(second.checkpointer(scratch.path() + "/1")->maybe_load().has_value());
    second.checkpointer(scratch.path() + "/2")->save(kSteps);
    Rounded third(comm, {.wire = "float16"});
    ASSERT_TRUE(third.checkpointer(scratch.path() + "/2")->maybe_load().has_value());
    for (int step = 0; step < 3; ++step) {  // nobody has gradients: nothing is paid
      third.optimizer->zero_grad();
      third.optimizer->step();
    }
    third.train(kSteps, kSteps + 3, 0);
    EXPECT_LE(third.error(shape, kSteps), 1e-3);  // in 16 bits
    EXPECT_GT(first.error(shape, kSteps), 1e-2);
  });
}

TEST(WireCheckpoint, HasWhatAutoHasChosen) {
  const ScratchFolder scratch;
  on_ranks({1, 1}, [&](const Comm& comm) {
    Rounded trained(comm, {.wire = "auto"});
    MultiNodeOptimizerState state = trained.optimizer->state();
    EXPECT_EQ(state.wire, "native");
    state.wire = "int8";
    trained.optimizer->load_state(state);
    trained.train(0, 3);
    trained.checkpointer(scratch.path())->save(3);
    Rounded other(comm, {.wire = "auto"});
    EXPECT_TRUE(other.checkpointer(scratch.path())->maybe_load().has_value());
    EXPECT_EQ(other.optimizer->state().wire, "int8");
  });
}

// A checkpoint of a job that rounded nothing, and the reverse.
TEST(WireCheckpoint, OtherWires) {
  const ScratchFolder scratch;
  on_ranks({1, 1}, [&](const Comm& comm) {
    Rounded native(comm, {});
    native.train(0, 3);
    native.checkpointer(scratch.path() + "/native")->save(3);
    Rounded rounded(comm, {.wire = "int8"});
    rounded.train(0, 3);
    rounded.checkpointer(scratch.path() + "/rounded")->save(3);
    EXPECT_TRUE(rounded.checkpointer(scratch.path() + "/native")->maybe_load().has_value());
    EXPECT_EQ(rounded.fingerprint(), native.fingerprint());
    rounded.train(3, 6);
    EXPECT_TRUE(native.checkpointer(scratch.path() + "/rounded")->maybe_load().has_value());
    native.train(3, 6);
    verify_equal(*comm, native.layer->parameters());
  });
}

}  // namespace
}  // namespace chainmail::testing
