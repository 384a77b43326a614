// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Checkpointers of jobs whose ranks are threads.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <mutex>
#include <numeric>

#include "plugin/checkpoint/checkpointer_impl.h"
#include "plugin/checkpoint/store/generations.h"
#include "tests/plugin/checkpoint/faulty_file_system.h"
#include "tests/plugin/checkpoint/trainee.h"

namespace chainmail::testing {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
CheckpointOptions in(const ScratchFolder& scratch, int keep = 5, bool is_async = true) {
  return {.path = scratch.path(), .keep = keep, .is_async = is_async};
}

void save_value(const ScratchFolder& scratch, std::int64_t iteration, std::int64_t value) {
  on_ranks({1}, [&](const Comm& comm) {
    const auto checkpointer = create_multi_node_checkpointer("run", comm, in(scratch));
    checkpointer->add("value", &value);
    checkpointer->save(iteration);
    checkpointer->wait();
  });
}

void flip_byte(const std::string& path, std::uintmax_t from_end) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  const auto at = static_cast<std::streamoff>(std::filesystem::file_size(path) - from_end);
  file.seekg(at);
  const int byte = file.get();
  file.seekp(at);
  file.put(static_cast<char>(byte ^ 1));
}

std::string generation(const ScratchFolder& scratch, std::int64_t iteration) {
  return scratch.path() + "/run/" + internal::generation_name(iteration);
}

class Resume : public ::testing::TestWithParam<std::tuple<Shape, Kind, bool>> {};

// Row A18 without the kill: bit-equal to a run that was not interrupted.
TEST_P(Resume, AtTheSameSizeIsBitExact) {
  const auto [shape, kind, double_buffering] = GetParam();
  const ScratchFolder scratch;
  std::vector<std::uint64_t> straight(8);
  on_ranks(shape, [&, kind = kind, double_buffering = double_buffering](const Comm& comm) {
    Trainee trainee(comm, kind, double_buffering);
    const auto checkpointer = create_multi_node_checkpointer("run", comm, in(scratch));
    trainee.add_to(*checkpointer);
    EXPECT_EQ(checkpointer->maybe_load(), std::nullopt);
    trainee.train(3);
    checkpointer->save(3);
    trainee.train(4);
    straight.at(static_cast<std::size_t>(comm->rank())) = trainee.fingerprint();
    checkpointer->wait();
  });
  on_ranks(shape, [&, kind = kind, double_buffering = double_buffering](const Comm& comm) {
    Trainee trainee(comm, kind, double_buffering);
    trainee.train(2);  // all of which is replaced
    const auto checkpointer = create_multi_node_checkpointer("run", comm, in(scratch));
    trainee.add_to(*checkpointer);
    EXPECT_EQ(checkpointer->maybe_load(), std::optional<std::int64_t>(3));
    EXPECT_EQ(trainee.steps, 3);
    EXPECT_EQ(trainee.note, "after 3");
    trainee.train(4);
    EXPECT_EQ(trainee.fingerprint(), straight.at(static_cast<std::size_t>(comm->rank())));
  });
}

INSTANTIATE_TEST_SUITE_P(Jobs, Resume,
                         ::testing::Values(std::tuple(Shape{1}, Kind::kAdam, false),
                                           std::tuple(Shape{2}, Kind::kSgd, false),
                                           std::tuple(Shape{3}, Kind::kRmsprop, false),
                                           std::tuple(Shape{3, 1}, Kind::kAdamW, false),
                                           std::tuple(Shape{2, 2}, Kind::kAdam, true),
                                           std::tuple(Shape{4, 4}, Kind::kSgd, false)));

TEST(Checkpointer, AnotherWorldSizeResumes) {
  const ScratchFolder scratch;
  std::uint64_t parameters = 0;
  on_ranks({2, 2}, [&](const Comm& comm) {
    Trainee trainee(comm, Kind::kAdam, false);
    const auto checkpointer = create_multi_node_checkpointer("run", comm, in(scratch));
    trainee.add_to(*checkpointer);
    trainee.train(3);
    if (comm->rank() == 0) parameters = digest(trainee.net->parameters());
    checkpointer->save(3);
    checkpointer->wait();
  });
  for (const Shape& shape : {Shape{1}, Shape{2}, Shape{3}, Shape{4, 4}}) {
    const int size = std::accumulate(shape.begin(), shape.end(), 0);
    std::atomic<std::int64_t> seen = 0;
    std::mutex mutex;
    std::set<double> drawn;
    on_ranks(shape, [&](const Comm& comm) {
      Trainee trainee(comm, Kind::kAdam, false);
      const auto checkpointer = create_multi_node_checkpointer("run", comm, in(scratch));
      trainee.add_to(*checkpointer);
      EXPECT_EQ(checkpointer->maybe_load(), std::optional<std::int64_t>(3));
      EXPECT_EQ(trainee.old_world, 4);
      EXPECT_EQ(digest(trainee.net->parameters()), parameters);
      seen += trainee.seen;
      const double number = at::rand({1}, trainee.generator, torch::kDouble).item<double>();
      {
        const std::lock_guard lock(mutex);
        drawn.insert(number);
      }
      trainee.train(1);
      (void)verify_equal(*comm, trainee.net->parameters());
    });
    EXPECT_EQ(seen, 4 * 3 * 5);
    EXPECT_EQ(drawn.size(), static_cast<std::size_t>(size));  // no two ranks alike
  }
}

TEST(Checkpointer, ADamagedOneIsLeftOutByAllRanks) {
  const ScratchFolder scratch;
  const auto job = [&](const std::function<void(MultiNodeCheckpointer&, Trainee&)>& body) {
    return errors_with_communicator({2, 1}, "flat", [&](const Comm& comm) {
      Trainee trainee(comm, Kind::kSgd, false);
      const auto checkpointer = create_multi_node_checkpointer("run", comm, in(scratch));
      trainee.add_to(*checkpointer);
      body(*checkpointer, trainee);
    });
  };
  EXPECT_THAT(job([](MultiNodeCheckpointer& checkpointer, Trainee& trainee) {
                for (const std::int64_t iteration : {1, 2, 3}) {
                  trainee.train(1);
                  checkpointer.save(iteration);
                }
                checkpointer.wait();
              }),
              Each(""));
  flip_byte(generation(scratch, 3) + "/rank-2.bin", 1);
  std::filesystem::remove(generation(scratch, 2) + "/manifest");
  EXPECT_THAT(job([](MultiNodeCheckpointer& checkpointer, Trainee& trainee) {
                EXPECT_EQ(checkpointer.maybe_load(), std::optional<std::int64_t>(1));
                EXPECT_EQ(trainee.steps, 1);
              }),
              Each(""));
  flip_byte(generation(scratch, 1) + "/set-0.bin", 1);
  const auto refuse = [](MultiNodeCheckpointer& checkpointer, Trainee& /*trainee*/) {
    try {
      (void)checkpointer.maybe_load();
    } catch (const CheckpointError& error) {
      throw std::runtime_error(std::string("refused: ") + error.what());
    }
  };
  const auto errors = job(refuse);
  EXPECT_THAT(errors, Each(HasSubstr("refused: ")));
  EXPECT_THAT(errors, Each(HasSubstr("differs from its digest")));
  EXPECT_THAT(errors, Each(HasSubstr("set-0.bin")));
}

TEST(Checkpointer, RanksThatDifferAreFoundByName) {
  const ScratchFolder scratch;
  const auto errors = errors_with_communicator({2, 1}, "flat", [&](const Comm& comm) {
    Trainee trainee(comm, Kind::kSgd, false);
    const auto checkpointer = create_multi_node_checkpointer("run", comm, in(scratch));
    trainee.add_to(*checkpointer);
    checkpointer->save(1);
    checkpointer->wait();
    if (comm->rank() == 2) {
      const torch::NoGradGuard no_grad;
      trainee.net->l2->bias.add_(1);
    }
    checkpointer->save(2);
    try {
      checkpointer->wait();
    } catch (const CheckpointError& error) {
      EXPECT_THAT(error.what(), HasSubstr("ranks 0 and 2"));
      EXPECT_THAT(error.what(), HasSubstr("'model/l2.bias'"));
      // Nothing is dead: with equal ranks the next save works.
      (void)trainee.optimizer->synchronize();
      checkpointer->save(3);
      checkpointer->wait();
      return;
    }
    ADD_FAILURE() << "saved";
  });
  EXPECT_THAT(errors, Each(""));
  EXPECT_FALSE(std::filesystem::exists(generation(scratch, 2)));
  EXPECT_TRUE(std::filesystem::exists(generation(scratch, 3)));
}

TEST(Checkpointer, WhatChangesAfterSaveIsNotSaved) {
  const ScratchFolder scratch;
  on_ranks({2}, [&](const Comm& comm) {
    Net net(500);
    const auto checkpointer = create_multi_node_checkpointer("run", comm, in(scratch));
    checkpointer->add("model", &net);
    const torch::NoGradGuard no_grad;
    for (const torch::Tensor& parameter : net->parameters()) parameter.fill_(1);
    checkpointer->save(1);
    for (const torch::Tensor& parameter : net->parameters()) parameter.fill_(2);
    EXPECT_EQ(checkpointer->maybe_load(), std::optional<std::int64_t>(1));
    EXPECT_EQ(net->l1->weight.sum().item<float>(), 3000.0F);
  });
}

// Row f for a job: the n-th call of one rank's file system fails, for every n.
TEST(Checkpointer, EveryCallOfEveryRankMayFail) {
  for (const int victim : {0, 1}) {
    bool has_failed = true;
    for (int at = 1; has_failed; ++at) {
      SCOPED_TRACE("call " + std::to_string(at) + " of rank " + std::to_string(victim));
      const ScratchFolder scratch;
      std::atomic<int> failures = 0;
      const auto errors = errors_with_communicator({2}, "flat", [&](const Comm& comm) {
        std::int64_t value = 1;
        std::int64_t own = comm->rank();  // so that both ranks have a file to write
        const auto good = create_multi_node_checkpointer("run", comm, in(scratch));
        good->add("value", &value);
        good->add("own", &own);
        good->save(1);
        good->wait();
        const bool is_victim = comm->rank() == victim;
        try {
          const auto checkpointer = internal::make_checkpointer(
              comm, "run", {}, in(scratch, 1, at % 2 == 0),
              std::make_shared<FaultyFileSystem>(
                  Fault{.kind = is_victim ? Fault::Kind::kError : Fault::Kind::kNone,
                        .at = at,
                        .code = at % 3 == 0 ? ENOSPC : EIO}));
          checkpointer->add("value", &value);
          checkpointer->add("own", &own);
          value = 2;
          checkpointer->save(2);
          checkpointer->wait();
        } catch (const CheckpointError& error) {
          EXPECT_THAT(error.what(), HasSubstr("rank " + std::to_string(victim)));
          ++failures;
        }
        value = 0;
        const auto iteration = good->maybe_load();
        ASSERT_TRUE(iteration.has_value());
        EXPECT_EQ(value, *iteration);
        EXPECT_EQ(own, comm->rank());
        good->save(3);
        good->wait();
      });
      EXPECT_THAT(errors, Each(""));
      EXPECT_TRUE(failures == 0 || failures == 2) << failures;  // all ranks, or none
      has_failed = failures != 0;
      EXPECT_TRUE(has_failed || at > 6) << at;
    }
  }
}

TEST(Checkpointer, TheErrorOfASaveComesWithTheNextOne) {
  const ScratchFolder scratch;
  on_ranks({1}, [&](const Comm& comm) {
    std::int64_t value = 1;
    const auto checkpointer = internal::make_checkpointer(
        comm, "run", {}, in(scratch),
        std::make_shared<FaultyFileSystem>(Fault{.kind = Fault::Kind::kError, .at = 7}));
    checkpointer->add("value", &value);
    checkpointer->save(1);
    EXPECT_THROW(checkpointer->save(2), CheckpointError);
    checkpointer->save(3);
    checkpointer->wait();
    EXPECT_EQ(checkpointer->maybe_load(), std::optional<std::int64_t>(3));
  });
}

TEST(Checkpointer, FoldersOfNodesMakeOneCheckpointTogether) {
  const ScratchFolder scratch;
  const auto options = [&](const Comm& comm) {
    return CheckpointOptions{.path = scratch.path() + "/node" + std::to_string(comm->inter_rank())};
  };
  on_ranks({2, 2}, [&](const Comm& comm) {
    Trainee trainee(comm, Kind::kAdam, false);
    const auto checkpointer = create_multi_node_checkpointer("run", comm, options(comm));
    trainee.add_to(*checkpointer);
    for (const std::int64_t iteration : {1, 2}) {
      trainee.train(1);
      checkpointer->save(iteration);
    }
    checkpointer->wait();
  });
  const std::string second = scratch.path() + "/node1/run/" + internal::generation_name(2);
  EXPECT_TRUE(std::filesystem::exists(second + "/rank-3.bin"));
  EXPECT_FALSE(std::filesystem::exists(second + "/set-0.bin"));
  const auto resume = [&](std::int64_t expected) {
    on_ranks({2, 2}, [&](const Comm& comm) {
      Trainee trainee(comm, Kind::kAdam, false);
      const auto checkpointer = create_multi_node_checkpointer("run", comm, options(comm));
      trainee.add_to(*checkpointer);
      EXPECT_EQ(checkpointer->maybe_load(), std::optional<std::int64_t>(expected));
      EXPECT_EQ(trainee.steps, expected);
    });
  };
  resume(2);
  std::filesystem::remove_all(second);
  resume(1);
}

TEST(Checkpointer, ReplicaSetsResumeTogether) {
  const ScratchFolder scratch;
  const std::vector<std::vector<int>> sets = {{0}};  // and {1, 2, 3}
  const auto job = [&](const std::function<void(MultiNodeCheckpointer&, std::int64_t&)>& body) {
    on_ranks({4}, [&](const Comm& comm) {
      std::int64_t part = comm->rank() == 0 ? 10 : 20;
      const auto checkpointer = multi_node_snapshot(comm, "run", sets, in(scratch));
      checkpointer->add(
          "part", CheckpointCallbacks{
                      .save =
                          [&] {
                            CheckpointState state;
                            state.set_integer("v", part);
                            return state;
                          },
                      .load = [&](const CheckpointState& state) { part = state.integer("v"); }});
      body(*checkpointer, part);
    });
  };
  job([](MultiNodeCheckpointer& checkpointer, std::int64_t& part) {
    checkpointer.save(1);
    part += 1;
    checkpointer.save(2);
    checkpointer.wait();
  });
  // ChainerMN resumed set 0 at 2 and the other one at 1.
  flip_byte(generation(scratch, 2) + "/set-1.bin", 1);
  job([](MultiNodeCheckpointer& checkpointer, std::int64_t& part) {
    const std::int64_t expected = part;
    part = 0;
    EXPECT_EQ(checkpointer.maybe_load(), std::optional<std::int64_t>(1));
    EXPECT_EQ(part, expected);
  });
  on_ranks({4}, [&](const Comm& comm) {
    EXPECT_THROW((void)multi_node_snapshot(comm, "run", {{0, 1}, {1}}, in(scratch)),
                 InvalidArgument);
    EXPECT_THROW((void)multi_node_snapshot(comm, "run", {{4}}, in(scratch)), InvalidArgument);
    EXPECT_THROW((void)multi_node_snapshot(comm, "run", {{}}, in(scratch)), InvalidArgument);
    const auto one_set = create_multi_node_checkpointer("run", comm, in(scratch));
    EXPECT_THROW((void)one_set->maybe_load(), CheckpointError);
  });
}

TEST(Checkpointer, AnotherModelIsRefusedByName) {
  const ScratchFolder scratch;
  on_ranks({2}, [&](const Comm& comm) {
    Trainee trainee(comm, Kind::kSgd, false, 4);
    const auto checkpointer = create_multi_node_checkpointer("run", comm, in(scratch));
    trainee.add_to(*checkpointer);
    checkpointer->save(1);
    checkpointer->wait();
  });
  on_ranks({2}, [&](const Comm& comm) {
    Trainee trainee(comm, Kind::kSgd, false, 5);
    const auto checkpointer = create_multi_node_checkpointer("run", comm, in(scratch));
    trainee.add_to(*checkpointer);
    const std::uint64_t before = digest(trainee.net->parameters());
    try {
      (void)checkpointer->maybe_load();
      ADD_FAILURE() << "loaded";
    } catch (const CheckpointError& error) {
      EXPECT_THAT(error.what(), HasSubstr("'l1.weight' is [4, 6] Float"));
    }
    EXPECT_EQ(digest(trainee.net->parameters()), before);
  });
}

TEST(Checkpointer, NamesWithDotsAreFineOthersAreRefused) {
  const ScratchFolder scratch;
  save_value(scratch, 1, 5);
  on_ranks({1}, [&](const Comm& comm) {
    std::int64_t value = 3;
    const auto checkpointer = create_multi_node_checkpointer("run.1.2", comm, in(scratch));
    EXPECT_EQ(checkpointer->maybe_load(), std::nullopt);  // another run
    checkpointer->add("value", &value);
    EXPECT_THROW(checkpointer->add("value", &value), InvalidArgument);
    EXPECT_THROW(checkpointer->add("a/b", &value), InvalidArgument);
    EXPECT_THROW(checkpointer->save(-1), InvalidArgument);
    for (int i = 1; i <= 12; ++i) checkpointer->save(i);
    checkpointer->wait();
    value = 0;
    EXPECT_EQ(checkpointer->maybe_load(), std::optional<std::int64_t>(12));
    EXPECT_EQ(value, 3);
    for (const char* const name : {"", ".", "..", "a/b"}) {
      EXPECT_THROW((void)create_multi_node_checkpointer(name, comm, in(scratch)), InvalidArgument);
    }
    EXPECT_THROW((void)create_multi_node_checkpointer("run", comm, in(scratch, 0)),
                 InvalidArgument);
  });
  EXPECT_EQ(internal::list_generations(scratch.path() + "/run.1.2").size(), 5U);
}

TEST(Checkpointer, NamesThatCannotBeReadAgainAreRefused) {
  const ScratchFolder scratch;
  on_ranks({2}, [&](const Comm& comm) {
    std::int64_t value = 3;
    std::string key(internal::kMaxNameBytes - 2, 'k');  // "p/" comes before it
    const auto checkpointer = create_multi_node_checkpointer("run", comm, in(scratch));
    EXPECT_THROW(checkpointer->add(std::string(internal::kMaxNameBytes, 'n'), &value),
                 InvalidArgument);
    checkpointer->add("p", CheckpointCallbacks{.save =
                                                   [&] {
                                                     CheckpointState state;
                                                     state.set_text(key, "saved");
                                                     return state;
                                                   },
                                               .load =
                                                   [&](const CheckpointState& saved) {
                                                     EXPECT_EQ(saved.text(key), "saved");
                                                     value = 4;
                                                   }});
    checkpointer->save(1);
    EXPECT_EQ(checkpointer->maybe_load(), std::optional<std::int64_t>(1));
    EXPECT_EQ(value, 4);
    key += 'k';
    try {
      checkpointer->save(2);
      ADD_FAILURE() << "saved";
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(),
                  HasSubstr("has 4097 bytes; a checkpoint takes names of up to 4096"));
    }
  });
  EXPECT_FALSE(std::filesystem::exists(generation(scratch, 2)));
}

TEST(Checkpointer, RanksMustSaveTheSameThings) {
  const ScratchFolder scratch;
  on_ranks({2}, [&](const Comm& comm) {
    std::int64_t value = 3;
    const auto checkpointer = create_multi_node_checkpointer("run", comm, in(scratch));
    checkpointer->add("value", &value);
    EXPECT_THROW(checkpointer->save(comm->rank() + 1), InvalidArgument);
    checkpointer->add("more",
                      CheckpointCallbacks{.save = [&]() -> CheckpointState {
                                            throw std::runtime_error("no state on " +
                                                                     std::to_string(comm->rank()));
                                          },
                                          .load = [](const CheckpointState&) {}});
    try {
      checkpointer->save(1);
      ADD_FAILURE() << "saved";
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(), HasSubstr("no state on 0"));
    }
  });
}

// ChainerMN removed all checkpoints when training ended by an exception.
TEST(Checkpointer, AnExceptionRemovesNothing) {
  const ScratchFolder scratch;
  const auto errors = errors_with_communicator({2}, "flat", [&](const Comm& comm) {
    std::int64_t value = 3;
    const auto checkpointer = create_multi_node_checkpointer("run", comm, in(scratch));
    checkpointer->add("value", &value);
    checkpointer->save(1);
    checkpointer->save(2);
    throw std::runtime_error("training failed");
  });
  EXPECT_THAT(errors, Each("training failed"));
  EXPECT_TRUE(std::filesystem::exists(generation(scratch, 1) + "/manifest"));
  EXPECT_TRUE(std::filesystem::exists(generation(scratch, 2) + "/manifest"));
}

}  // namespace
}  // namespace chainmail::testing
