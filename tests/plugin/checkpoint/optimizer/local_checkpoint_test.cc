// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Checkpoints of an optimizer with local steps: every node goes on with its own state, and all with
// what they have in common, bit for bit.

#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plugin/checkpoint/items/optimizer/optimizer_parts.h"
#include "plugin/train/local_steps/local_access.h"
#include "tests/plugin/checkpoint/faulty_file_system.h"
#include "tests/plugin/checkpoint/trainee.h"

namespace chainmail::testing {
namespace {

using ::testing::HasSubstr;

constexpr LocalSteps kLocally{.steps = 4, .fragments = 2, .delay = 1, .start = 3};

struct Walker {
  /// `before`: what is done to the net before it has an optimizer.
  Walker(const Comm& comm, Kind kind, const std::optional<LocalSteps>& local,
         const std::function<void(Walker&)>& before = nullptr)
      : communicator(comm),
        generator(at::detail::createCPUGenerator(static_cast<std::uint64_t>(comm->rank() + 7))),
        net(30) {
    if (before) before(*this);
    optimizer = create_multi_node_optimizer(make_optimizer(kind, net), comm,
                                            {.model = &net, .local_steps = local});
  }

  std::unique_ptr<MultiNodeCheckpointer> checkpointer(const std::string& path) {
    auto made = create_multi_node_checkpointer("run", communicator, {.path = path});
    made->add("model", &net);
    made->add("optimizer", *optimizer);
    made->add("rng", generator);
    return made;
  }

  void train(int steps) {
    for (int i = 0; i < steps; ++i) {
      optimizer->zero_grad();
      net->forward(at::rand({5, 6}, generator, torch::kFloat)).square().mean().backward();
      optimizer->step();
    }
  }

  internal::LocalStepping& stepping() { return *internal::LocalAccess::stepping(*optimizer); }

  /// Of what this rank has, also of its slices.
  std::uint64_t fingerprint() {
    std::vector<torch::Tensor> all = net->parameters();
    for (const torch::Tensor& buffer : net->buffers()) all.push_back(buffer);
    for (const auto& piece : stepping().pieces()) {
      all.push_back(piece.common);
      all.push_back(piece.velocity);
    }
    all.push_back(
        torch::tensor({stepping().counts().steps, stepping().counts().rounds}, torch::kLong));
    all.push_back(generator.get_state());
    return digest(all) ^ inner_fingerprint();
  }

  /// Of the wrapped optimizer's state alone.
  std::uint64_t inner_fingerprint() {
    std::vector<torch::Tensor> all;
    const CheckpointState state = internal::save_optimizer_without(
        optimizer->actual_optimizer(), [](const torch::Tensor&) { return false; });
    for (const auto& [key, value] : state.values()) {
      if (const auto* const tensor = std::get_if<at::Tensor>(&value)) all.push_back(*tensor);
    }
    return digest(all);
  }

  /// The outer momentum of all parameters, put together.
  std::uint64_t momentum_fingerprint() {
    const torch::NoGradGuard no_grad;
    std::vector<torch::Tensor> whole;
    for (const torch::Tensor& parameter : net->parameters()) {
      whole.push_back(torch::zeros({parameter.numel()}, torch::kDouble));
    }
    for (const auto& piece : stepping().pieces()) {
      whole.at(piece.parameter)
          .slice(0, static_cast<std::int64_t>(piece.begin), static_cast<std::int64_t>(piece.end))
          .copy_(piece.velocity);
    }
    communicator->allreduce(whole);
    for (torch::Tensor& momentum : whole) momentum /= communicator->inter_size();
    return digest(whole);
  }

  Comm communicator;
  at::Generator generator;
  Net net;
  std::unique_ptr<MultiNodeOptimizer> optimizer;
};

// By rank.
using Fingerprints = std::map<int, std::uint64_t>;

class Record {
 public:
  void set(int rank, std::uint64_t value) {
    const std::lock_guard lock(mutex_);
    all_[rank] = value;
  }
  std::uint64_t at(int rank) {
    const std::lock_guard lock(mutex_);
    return all_.at(rank);
  }

 private:
  std::mutex mutex_;
  Fingerprints all_;
};

void resumes_with_the_same_bits(const Shape& shape, Kind kind, int before) {
  const ScratchFolder scratch;
  Record expected;
  on_ranks(shape, [&](const Comm& comm) {
    Walker walker(comm, kind, kLocally);
    walker.train(before);
    const auto checkpointer = walker.checkpointer(scratch.path());
    checkpointer->save(before);
    checkpointer->wait();
    walker.train(9);
    walker.optimizer->flush();
    expected.set(comm->rank(), walker.fingerprint());
  });
  on_ranks(shape, [&](const Comm& comm) {
    Walker walker(comm, kind, kLocally);
    walker.train(5);  // so that there is state to replace, and something on its way
    const auto checkpointer = walker.checkpointer(scratch.path());
    EXPECT_EQ(checkpointer->maybe_load(), std::optional<std::int64_t>(before));
    walker.train(9);
    walker.optimizer->flush();
    EXPECT_EQ(walker.fingerprint(), expected.at(comm->rank())) << "rank " << comm->rank();
    verify_equal(*comm, walker.net->parameters());
  });
}

// Before nodes part, just then, and with a fragment on its way.
TEST(LocalCheckpoint, ResumesWithTheSameBits) {
  for (const Kind kind : {Kind::kSgd, Kind::kAdam, Kind::kRmsprop}) {
    for (const int before : {2, 3, 11}) resumes_with_the_same_bits({2, 2}, kind, before);
  }
  for (const Shape& shape : std::vector<Shape>{{1, 1}, {2, 1}}) {
    resumes_with_the_same_bits(shape, Kind::kAdam, 11);
  }
}

TEST(LocalCheckpoint, OtherNumbersOfNodesAndRanks) {
  const ScratchFolder scratch;
  Record inner;
  Record momentum;
  on_ranks({2, 2}, [&](const Comm& comm) {
    Walker walker(comm, Kind::kAdam, kLocally);
    walker.train(13);
    const auto checkpointer = walker.checkpointer(scratch.path());
    checkpointer->save(13);
    checkpointer->wait();
    inner.set(comm->inter_rank(), walker.inner_fingerprint());
    momentum.set(0, walker.momentum_fingerprint());
  });
  EXPECT_NE(inner.at(0), inner.at(1));
  for (const Shape& shape : std::vector<Shape>{{1}, {1, 1, 1}, {3, 1}, {2, 2, 2, 2}}) {
    LocalSteps local = kLocally;
    local.fragments = 1;
    on_ranks(shape, [&](const Comm& comm) {
      Walker walker(comm, Kind::kAdam, local);
      const auto checkpointer = walker.checkpointer(scratch.path());
      EXPECT_EQ(checkpointer->maybe_load(), std::optional<std::int64_t>(13));
      EXPECT_EQ(walker.inner_fingerprint(), inner.at(comm->inter_rank() % 2));
      EXPECT_EQ(walker.momentum_fingerprint(), momentum.at(0)) << shape.size() << " nodes";
      EXPECT_EQ(walker.stepping().counts().steps, 13);
      walker.train(6);
      walker.optimizer->flush();
      verify_equal(*comm, walker.net->parameters());
    });
  }
}

// Momentum follows its elements: what comes after has the bits of a job whose parameters always lay
// that way.
TEST(LocalCheckpoint, AnotherMemoryLayoutIsConverted) {
  const auto transpose = [](Walker& walker) {
    for (const torch::Tensor& weight : {walker.net->l1->weight, walker.net->l2->weight}) {
      weight.set_data(weight.detach().t().contiguous().t());
    }
  };
  using Before = std::function<void(Walker&)>;
  for (const bool is_transposed : {false, true}) {
    const ScratchFolder scratch;
    Record digests;
    const auto momentum_of = [](Walker& walker) {
      const torch::NoGradGuard no_grad;
      std::vector<torch::Tensor> whole;
      for (const torch::Tensor& parameter : walker.net->parameters()) {
        whole.push_back(
            torch::empty_strided(parameter.sizes(), parameter.strides(), torch::kDouble));
        whole.back().zero_();
      }
      for (const auto& piece : walker.stepping().pieces()) {
        torch::Tensor& tensor = whole.at(piece.parameter);
        tensor.as_strided({tensor.numel()}, {1})
            .slice(0, static_cast<std::int64_t>(piece.begin), static_cast<std::int64_t>(piece.end))
            .copy_(piece.velocity);
      }
      for (torch::Tensor& tensor : whole) tensor = tensor.contiguous();
      walker.communicator->allreduce(whole);
      for (torch::Tensor& tensor : whole) tensor /= walker.communicator->inter_size();
      return digest(whole);
    };
    on_ranks({2, 2}, [&](const Comm& comm) {
      Walker walker(comm, Kind::kSgd, kLocally, is_transposed ? Before(transpose) : nullptr);
      walker.train(13);
      walker.optimizer->flush();
      digests.set(comm->rank(), momentum_of(walker));
      if (!is_transposed) transpose(walker);  // no rows of momentum change by that
      const auto checkpointer = walker.checkpointer(scratch.path());
      checkpointer->save(13);
      checkpointer->wait();
    });
    for (const Shape& shape : std::vector<Shape>{{2, 2}, {3, 1}}) {
      on_ranks(shape, [&](const Comm& comm) {
        Walker walker(comm, Kind::kSgd, kLocally, is_transposed ? nullptr : Before(transpose));
        EXPECT_TRUE(walker.checkpointer(scratch.path())->maybe_load().has_value());
        EXPECT_EQ(momentum_of(walker), digests.at(0)) << is_transposed;
        walker.train(6);
        walker.optimizer->flush();
        verify_equal(*comm, walker.net->parameters());
      });
    }
  }
}

TEST(LocalCheckpoint, WithAndWithoutLocalSteps) {
  const ScratchFolder scratch;
  on_ranks({1, 1}, [&](const Comm& comm) {
    Walker plain(comm, Kind::kAdam, std::nullopt);
    plain.train(4);
    plain.checkpointer(scratch.path() + "/plain")->save(4);
    Walker local(comm, Kind::kAdam, kLocally);
    local.train(4);
    local.checkpointer(scratch.path() + "/local")->save(4);
    try {
      (void)local.checkpointer(scratch.path() + "/plain")->maybe_load();
      ADD_FAILURE() << "loaded";
    } catch (const CheckpointError& error) {
      EXPECT_THAT(error.what(), HasSubstr("without local steps"));
    }
    try {
      (void)plain.checkpointer(scratch.path() + "/local")->maybe_load();
      ADD_FAILURE() << "loaded";
    } catch (const CheckpointError& error) {
      EXPECT_THAT(error.what(), HasSubstr("'optimizer' was saved by each node"));
    }
  });
}

}  // namespace
}  // namespace chainmail::testing
