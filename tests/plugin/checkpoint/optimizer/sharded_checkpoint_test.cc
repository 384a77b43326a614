// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Checkpoints of a sharded optimizer: any job reads them, sharded or not, and a sharded one reads
// those of any other; parameters, state and what follows have equal bits. Each rank writes and
// reads its own slices.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <tuple>

#include "plugin/checkpoint/store/parts.h"
#include "plugin/train/sharding/state/parameter_state.h"
#include "tests/plugin/checkpoint/pupil.h"

namespace chainmail::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct ShardJob {
  Shape shape;
  Sharding shard;
};

std::vector<ShardJob> shard_jobs() {
  std::vector<ShardJob> jobs = {{{1}, Sharding::kNone}, {{2, 2}, Sharding::kNone}};
  for (const int nodes : {1, 2}) {
    for (int ranks = 1; ranks <= 4; ++ranks) {
      jobs.push_back({Shape(static_cast<std::size_t>(nodes), ranks), Sharding::kNode});
    }
  }
  jobs.push_back({{2, 2}, Sharding::kAll});
  jobs.push_back({{3, 1}, Sharding::kAll});
  return jobs;
}

struct Expected {
  std::uint64_t saved = 0;  ///< the state in the checkpoint
  std::uint64_t last = 0;   ///< three steps later
};

Expected save_by(Kind kind, const ShardJob& writer, const ScratchFolder& scratch) {
  Expected expected;
  on_ranks(writer.shape, [&](const Comm& comm) {
    Pupil pupil(comm, kind, writer.shard);
    const auto checkpointer = pupil.checkpointer(comm, scratch.path());
    pupil.train(0, 3);
    checkpointer->save(3);
    pupil.train(3, 6);  // beside the save, which changes nothing
    checkpointer->wait();
    const std::uint64_t last = pupil.fingerprint();
    EXPECT_EQ(checkpointer->maybe_load(), std::optional<std::int64_t>(3));
    const std::uint64_t saved = pupil.fingerprint();
    if (comm->rank() == 0) expected = {saved, last};
  });
  return expected;
}

void load_by(Kind kind, const ShardJob& reader, const ScratchFolder& scratch,
             const Expected& expected) {
  on_ranks(reader.shape, [&](const Comm& comm) {
    Pupil pupil(comm, kind, reader.shard);
    pupil.train(0, 1);  // so that there is state to replace
    const auto checkpointer = pupil.checkpointer(comm, scratch.path());
    EXPECT_EQ(checkpointer->maybe_load(), std::optional<std::int64_t>(3));
    EXPECT_EQ(pupil.fingerprint(), expected.saved);
    EXPECT_EQ(checkpointer->maybe_load(), std::optional<std::int64_t>(3));
    pupil.train(3, 6);
    EXPECT_EQ(pupil.fingerprint(), expected.last) << "rank " << comm->rank();
  });
}

std::string name_of(const ShardJob& job) {
  return std::to_string(job.shape.size()) + " nodes of " + std::to_string(job.shape[0]) +
         (job.shard == Sharding::kNone   ? " unsharded"
          : job.shard == Sharding::kNode ? " sharded by node"
                                         : " sharded by all");
}

// What each job has saved is loaded by every `stride`-th one, others for each.
void check_pairs(Kind kind, std::size_t stride) {
  const std::vector<ShardJob> jobs = shard_jobs();
  std::optional<Expected> same;
  for (std::size_t w = 0; w < jobs.size(); ++w) {
    const ScratchFolder scratch;
    SCOPED_TRACE("saved by " + name_of(jobs[w]));
    const Expected expected = save_by(kind, jobs[w], scratch);
    if (!same) same = expected;
    EXPECT_EQ(expected.saved, same->saved);
    EXPECT_EQ(expected.last, same->last);
    for (std::size_t r = w % stride; r < jobs.size(); r += stride) {
      SCOPED_TRACE("loaded by " + name_of(jobs[r]));
      load_by(kind, jobs[r], scratch, *same);
    }
  }
}

// Row B12.
TEST(ShardedCheckpoint, IsReadByAnyJob) { check_pairs(Kind::kAdam, 4); }

// The long form: tests/soak/sharding/sharding.sh.
TEST(ShardedCheckpoint, DISABLED_OfEveryOptimizerIsReadByEveryJob) {
  for (const Kind kind : {Kind::kSgd, Kind::kAdam, Kind::kAdamW, Kind::kRmsprop, Kind::kAdagrad}) {
    SCOPED_TRACE(static_cast<int>(kind));
    check_pairs(kind, 1);
  }
}

TEST(ShardedCheckpoint, OfOtherOptimizers) {
  const std::vector<ShardJob> jobs = {
      {{1}, Sharding::kNone}, {{3}, Sharding::kNode}, {{2, 2}, Sharding::kNode}};
  for (const Kind kind : {Kind::kSgd, Kind::kAdamW, Kind::kRmsprop, Kind::kAdagrad}) {
    for (const ShardJob& writer : jobs) {
      const ScratchFolder scratch;
      SCOPED_TRACE(static_cast<int>(kind));
      const Expected expected = save_by(kind, writer, scratch);
      for (const ShardJob& reader : jobs) load_by(kind, reader, scratch, expected);
    }
  }
}

TEST(ShardedCheckpoint, OfSharedParametersAndFreedGradients) {
  const ScratchFolder of_one;
  const Expected expected = save_by(Kind::kAdam, {{1}, Sharding::kNone}, of_one);
  for (const auto& [shares, frees] : {std::tuple(true, false), {false, true}, {true, true}}) {
    const MultiNodeOptimizerOptions options{
        .shard = Sharding::kNode, .share_parameters = shares, .free_gradients = frees};
    const ScratchFolder scratch;
    for (const bool saves : {true, false}) {
      on_ranks(saves ? Shape{2, 2} : Shape{3}, [&](const Comm& comm) {
        Pupil pupil(comm, Kind::kAdam, options);
        const auto checkpointer = pupil.checkpointer(comm, scratch.path());
        if (saves) {
          pupil.train(0, 3);
          checkpointer->save(3);
        } else {
          pupil.train(1, 3);
          EXPECT_EQ(checkpointer->maybe_load(), std::optional<std::int64_t>(3));
        }
        pupil.train(3, 6);
        checkpointer->wait();
        EXPECT_EQ(pupil.fingerprint(), expected.last);
      });
    }
    load_by(Kind::kAdam, {{2}, Sharding::kNone}, scratch, expected);
  }
}

TEST(ShardedCheckpoint, AppliesTheMeanOnItsWay) {
  const ScratchFolder scratch;
  std::uint64_t last = 0;
  on_ranks({2}, [&](const Comm& comm) {
    Pupil pupil(comm, Kind::kAdam, {.double_buffering = true, .shard = Sharding::kNode});
    const auto checkpointer = pupil.checkpointer(comm, scratch.path());
    pupil.train(0, 3);
    checkpointer->save(3);
    checkpointer->wait();
    const std::uint64_t now = pupil.fingerprint();
    if (comm->rank() == 0) last = now;
  });
  on_ranks({1}, [&](const Comm& comm) {
    Pupil pupil(comm, Kind::kAdam, Sharding::kNone);
    EXPECT_EQ(pupil.checkpointer(comm, scratch.path())->maybe_load(),
              std::optional<std::int64_t>(3));
    EXPECT_EQ(pupil.fingerprint(), last);
  });
}

internal::Generation newest(const std::string& path) {
  return internal::list_generations(path + "/run").at(0);
}

// Row B14: nobody has more than a slice, neither in memory nor in a file.
TEST(ShardedCheckpoint, NobodyHasMoreThanItsSlice) {
  constexpr int kRanks = 4;
  const ScratchFolder scratch;
  const auto expect_slice = [](Pupil& pupil) {
    std::int64_t all = 0;
    for (const torch::Tensor& parameter : pupil.net->parameters()) all += parameter.numel();
    EXPECT_TRUE(internal::is_marked_sliced(pupil.optimizer->actual_optimizer()));
    // A cut is moved by less than 4096 elements.
    EXPECT_LT(pupil.state_elements(), all / kRanks + 4096);
  };
  on_ranks({kRanks}, [&](const Comm& comm) {
    Pupil pupil(comm, Kind::kAdam, Sharding::kNode);
    const auto checkpointer = pupil.checkpointer(comm, scratch.path());
    pupil.train(0, 2);
    checkpointer->save(2);
    expect_slice(pupil);
    EXPECT_EQ(checkpointer->maybe_load(), std::optional<std::int64_t>(2));
    expect_slice(pupil);
    checkpointer->save(3);
    checkpointer->wait();
  });
  std::vector<std::string> names;
  const internal::Generation generation = newest(scratch.path());
  for (const internal::ManifestFile& file : generation.manifest.value().files) {
    names.push_back(file.name);
    // 33,002 parameters, of 8 bytes of state each; the set's file has the parameters.
    EXPECT_LT(file.bytes, file.name == "set-0.bin" ? 200'000U : 120'000U) << file.name;
  }
  EXPECT_THAT(names, ElementsAre("set-0.bin", "set-0.part-0.bin", "set-0.part-1.bin",
                                 "set-0.part-2.bin", "set-0.part-3.bin"));
}

TEST(ShardedCheckpoint, EntriesAreAtMostFourMebibytes) {
  const ScratchFolder scratch;
  std::uint64_t saved = 0;
  const auto job = [&](const Shape& shape, Sharding shard, const auto& body) {
    on_ranks(shape, [&](const Comm& comm) {
      torch::Tensor large = torch::arange(2'500'001, torch::kFloat).div_(2'500'001);
      large.requires_grad_();
      const auto optimizer = create_multi_node_optimizer(
          std::make_unique<torch::optim::Adam>(std::vector{large}, 1e-2), comm, {.shard = shard});
      const auto checkpointer =
          create_multi_node_checkpointer("run", comm, {.path = scratch.path()});
      checkpointer->add("optimizer", *optimizer);
      body(*comm, *checkpointer, *optimizer, large);
    });
  };
  const auto state_of = [](MultiNodeOptimizer& optimizer) {
    optimizer.gather_state();
    const auto& state = *optimizer.actual_optimizer().state().begin()->second;
    const torch::NoGradGuard no_grad;
    return digest({static_cast<const torch::optim::AdamParamState&>(state).exp_avg()});
  };
  job({2}, Sharding::kNode,
      [&](Communicator& comm, auto& checkpointer, auto& optimizer, torch::Tensor& large) {
        large.mutable_grad() = large.detach().clone();
        optimizer.step();
        checkpointer.save(1);
        checkpointer.wait();
        const std::uint64_t now = state_of(optimizer);
        if (comm.rank() == 0) saved = now;
      });
  const internal::Generation generation = newest(scratch.path());
  std::size_t entries = 0;
  for (const internal::ManifestFile& file : generation.manifest.value().files) {
    if (!internal::set_of_part_file(file.name)) continue;
    const internal::PartReader reader(generation, file);
    for (const internal::FileEntry& entry : reader.index().entries) {
      EXPECT_LE(entry.bytes, internal::kMaxRangeBytes);
      ++entries;
    }
  }
  EXPECT_EQ(entries, 2U * (2 + 2 + 1));  // of each half: two averages in two pieces, and a count
  for (const Shape& shape : {Shape{1}, Shape{3}}) {
    for (const Sharding shard : {Sharding::kNone, Sharding::kNode}) {
      job(shape, shard, [&](Communicator&, auto& checkpointer, auto& optimizer, auto&) {
        EXPECT_EQ(checkpointer.maybe_load(), std::optional<std::int64_t>(1));
        EXPECT_EQ(state_of(optimizer), saved);
      });
    }
  }
}

// Frozen after a step: its state is on every rank, whole, and waits there.
TEST(ShardedCheckpoint, FrozenParametersKeepTheirState) {
  const ScratchFolder scratch;
  std::uint64_t saved = 0;
  std::uint64_t last = 0;
  const auto unfreeze_and_train = [](Pupil& pupil) {
    pupil.net->l1->weight.requires_grad_(true);
    pupil.train(4, 6);
    return pupil.fingerprint();
  };
  on_ranks({3}, [&](const Comm& comm) {
    Pupil pupil(comm, Kind::kAdam, Sharding::kNode);
    pupil.train(0, 2);
    pupil.net->l1->weight.requires_grad_(false);
    pupil.train(2, 4);
    const auto checkpointer = pupil.checkpointer(comm, scratch.path());
    checkpointer->save(4);
    checkpointer->wait();
    const std::uint64_t now = pupil.fingerprint();
    const std::uint64_t then = unfreeze_and_train(pupil);
    if (comm->rank() == 0) std::tie(saved, last) = std::tie(now, then);
  });
  for (const bool is_frozen : {false, true}) {
    for (const ShardJob& job : {ShardJob{{1}, Sharding::kNone}, ShardJob{{2}, Sharding::kNode}}) {
      on_ranks(job.shape, [&](const Comm& comm) {
        Pupil pupil(comm, Kind::kAdam, job.shard);
        pupil.net->l1->weight.requires_grad_(!is_frozen);
        pupil.train(0, 1);
        EXPECT_EQ(pupil.checkpointer(comm, scratch.path())->maybe_load(),
                  std::optional<std::int64_t>(4));
        EXPECT_EQ(pupil.fingerprint(), saved);
        EXPECT_EQ(unfreeze_and_train(pupil), last);
      });
    }
  }
}

// Slices are in the order of memory, which may be another one in the job that loads.
TEST(ShardedCheckpoint, AnotherMemoryLayoutIsConverted) {
  const ScratchFolder scratch;
  std::vector<std::uint64_t> states;
  const auto job = [&](const Shape& shape, Sharding shard, bool channels_last, bool saves) {
    on_ranks(shape, [&](const Comm& comm) {
      torch::Tensor weight = torch::arange(16 * 40 * 5 * 5, torch::kFloat).view({16, 40, 5, 5});
      if (channels_last) weight = weight.contiguous(torch::MemoryFormat::ChannelsLast);
      weight.requires_grad_();
      const auto optimizer = create_multi_node_optimizer(
          std::make_unique<torch::optim::Adam>(std::vector{weight}, 1e-2), comm, {.shard = shard});
      const auto checkpointer =
          create_multi_node_checkpointer("run", comm, {.path = scratch.path()});
      checkpointer->add("optimizer", *optimizer);
      weight.mutable_grad() = weight.detach().sin();
      optimizer->step();
      if (saves) {
        checkpointer->save(1);
        checkpointer->wait();
      } else {
        EXPECT_EQ(checkpointer->maybe_load(), std::optional<std::int64_t>(1));
      }
      optimizer->gather_state();
      const auto& state = *optimizer->actual_optimizer().state().begin()->second;
      const torch::NoGradGuard no_grad;
      const torch::Tensor average =
          static_cast<const torch::optim::AdamParamState&>(state).exp_avg();
      EXPECT_EQ(average.strides(), weight.strides());
      if (comm->rank() == 0) states.push_back(digest({average.contiguous()}));
    });
  };
  for (const bool channels_last : {false, true}) {
    job({2}, Sharding::kNode, channels_last, true);
    for (const bool reader : {false, true}) {
      job({3}, Sharding::kNode, reader, false);
      job({1}, Sharding::kNone, reader, false);
    }
  }
  EXPECT_THAT(states, ::testing::Each(states.front()));
}

TEST(ShardedCheckpoint, ReplicaSetsHavePartsOfTheirOwn) {
  const ScratchFolder scratch;
  const auto job = [&](const std::function<void(MultiNodeCheckpointer&, Pupil&)>& body) {
    on_ranks({4}, [&](const Comm& comm) {
      const int set = comm->rank() / 2;
      const Comm of_set = comm->split(set, comm->rank());
      Pupil pupil(of_set, Kind::kAdam, Sharding::kNode);
      pupil.train(set, set + 1);
      const auto checkpointer =
          multi_node_snapshot(comm, "run", {{0, 1}, {2, 3}}, {.path = scratch.path()});
      pupil.add_to(*checkpointer);
      body(*checkpointer, pupil);
    });
  };
  job([](MultiNodeCheckpointer& checkpointer, Pupil& /*pupil*/) {
    checkpointer.save(1);
    checkpointer.wait();
  });
  job([](MultiNodeCheckpointer& checkpointer, Pupil& pupil) {
    const std::uint64_t before = pupil.fingerprint();
    pupil.train(5, 6);
    EXPECT_EQ(checkpointer.maybe_load(), std::optional<std::int64_t>(1));
    EXPECT_EQ(pupil.fingerprint(), before);
  });
  EXPECT_TRUE(std::filesystem::exists(newest(scratch.path()).folder + "/set-1.part-3.bin"));
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
