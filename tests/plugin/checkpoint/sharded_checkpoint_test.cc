// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Checkpoints of a sharded optimizer: any job reads them, sharded or not, and a sharded one reads
// those of any other; parameters, state and what follows have equal bits.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include <torch/torch.h>

#include <chainmail/checkpoint.h>

#include "tests/plugin/checkpoint/faulty_file_system.h"
#include "tests/plugin/checkpoint/trainee.h"
#include "tests/plugin/support/weights.h"

namespace chainmail::testing {
namespace {

using ::testing::HasSubstr;

// Its gradients are the same on all ranks, so that the number of ranks changes no bits.
struct Pupil {
  Pupil(const Comm& comm, Kind kind, Sharding shard, bool double_buffering = false) : net(3000) {
    fill(*net, 0.3);
    optimizer = create_multi_node_optimizer(
        make_optimizer(kind, net), comm,
        {.model = &net, .double_buffering = double_buffering, .shard = shard});
    checkpointer = [&](const ScratchFolder& scratch) {
      auto made = create_multi_node_checkpointer("run", comm, {.path = scratch.path()});
      made->add("model", &net);
      made->add("optimizer", *optimizer);
      return made;
    };
  }

  void train(int begin, int end) {
    for (int step = begin; step < end; ++step) {
      optimizer->zero_grad();
      for (torch::Tensor& parameter : net->parameters()) {
        parameter.mutable_grad() = (parameter.detach() + step).sin().mul_(1024).round_() / 1024;
      }
      optimizer->step();
    }
  }

  /// Of parameters and, put together, the optimizer's state.
  std::uint64_t fingerprint() {
    optimizer->gather_state();
    std::vector<torch::Tensor> all = net->parameters();
    const CheckpointState state =
        internal::optimizer_item("o", optimizer->actual_optimizer()).save();
    for (const auto& [key, value] : state.values()) {
      if (const auto* const tensor = std::get_if<at::Tensor>(&value)) all.push_back(*tensor);
    }
    const torch::NoGradGuard no_grad;
    return digest(all);
  }

  Net net;
  std::unique_ptr<MultiNodeOptimizer> optimizer;
  std::function<std::unique_ptr<MultiNodeCheckpointer>(const ScratchFolder&)> checkpointer;
};

struct Job {
  Shape shape;
  Sharding shard;
};
const std::vector<Job> kReaders = {
    {{1}, Sharding::kNone},    {{1}, Sharding::kNode},    {{2}, Sharding::kNode},
    {{2}, Sharding::kNone},    {{4}, Sharding::kNode},    {{1, 1}, Sharding::kNode},
    {{2, 2}, Sharding::kNode}, {{2, 2}, Sharding::kNone}, {{2, 2}, Sharding::kAll}};
const std::vector<Job> kWriters = {{{2}, Sharding::kNode},
                                   {{2, 2}, Sharding::kNode},
                                   {{2}, Sharding::kNone},
                                   {{1, 1}, Sharding::kAll}};

void check(Kind kind, const Job& writer) {
  const ScratchFolder scratch;
  std::uint64_t saved = 0;
  std::uint64_t last = 0;
  on_ranks(writer.shape, [&](const Comm& comm) {
    Pupil pupil(comm, kind, writer.shard);
    const auto checkpointer = pupil.checkpointer(scratch);
    pupil.train(0, 3);
    checkpointer->save(3);
    const std::uint64_t now = pupil.fingerprint();
    pupil.train(3, 6);  // saving has changed nothing
    checkpointer->wait();
    const std::uint64_t then = pupil.fingerprint();
    if (comm->rank() == 0) std::tie(saved, last) = std::tie(now, then);
  });
  for (const Job& reader : kReaders) {
    on_ranks(reader.shape, [&](const Comm& comm) {
      Pupil pupil(comm, kind, reader.shard);
      pupil.train(0, 1);  // so that there is state to replace
      EXPECT_EQ(pupil.checkpointer(scratch)->maybe_load(), std::optional<std::int64_t>(3));
      EXPECT_EQ(pupil.fingerprint(), saved);
      EXPECT_EQ(pupil.checkpointer(scratch)->maybe_load(), std::optional<std::int64_t>(3));
      pupil.train(3, 6);
      EXPECT_EQ(pupil.fingerprint(), last) << "rank " << comm->rank() << " of " << comm->size();
    });
  }
}

TEST(ShardedCheckpoint, IsReadByAnyJob) {
  for (const Kind kind : {Kind::kSgd, Kind::kAdamW}) {
    for (const Job& writer : kWriters) {
      SCOPED_TRACE(static_cast<int>(kind));
      check(kind, writer);
    }
  }
}

TEST(ShardedCheckpoint, AppliesTheMeanOnItsWay) {
  const ScratchFolder scratch;
  std::uint64_t last = 0;
  on_ranks({2}, [&](const Comm& comm) {
    Pupil pupil(comm, Kind::kAdam, Sharding::kNode, true);
    const auto checkpointer = pupil.checkpointer(scratch);
    pupil.train(0, 3);
    checkpointer->save(3);
    checkpointer->wait();
    const std::uint64_t now = pupil.fingerprint();
    if (comm->rank() == 0) last = now;
  });
  on_ranks({1}, [&](const Comm& comm) {
    Pupil pupil(comm, Kind::kAdam, Sharding::kNone);
    EXPECT_EQ(pupil.checkpointer(scratch)->maybe_load(), std::optional<std::int64_t>(3));
    EXPECT_EQ(pupil.fingerprint(), last);
  });
}

TEST(ShardedCheckpoint, TheWrappedOptimizerAloneIsRefused) {
  const ScratchFolder scratch;
  const auto errors = errors_with_communicator({2}, "auto", [&](const Comm& comm) {
    Pupil pupil(comm, Kind::kAdam, Sharding::kNode);
    const auto checkpointer = create_multi_node_checkpointer("run", comm, {.path = scratch.path()});
    checkpointer->add("optimizer", pupil.optimizer->actual_optimizer());
    pupil.train(0, 1);
    checkpointer->save(1);
  });
  for (const std::string& error : errors) {
    EXPECT_THAT(error, HasSubstr("add the multi-node optimizer to the checkpointer"));
  }
}

}  // namespace
}  // namespace chainmail::testing
