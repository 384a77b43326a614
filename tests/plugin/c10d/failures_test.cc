// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What callers of c10d see when ranks disagree, when one does not come, and under threads.

#include <chainmail/error.h>
#include <gmock/gmock.h>
#include <pthread.h>
#include <torch/types.h>
#include <torch/csrc/distributed/c10d/FileStore.hpp>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "tests/plugin/c10d/job_group.h"
#include "tests/support/patience.h"

namespace chainmail::internal {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

class FailuresTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (job().size < 2) {
      GTEST_SKIP() << "needs two ranks";
    }
    group_ = make_group();
    // So that connections exist and all start together.
    group_->barrier()->wait();
    watch_ = Stopwatch();
  }

  c10::intrusive_ptr<c10d::Work> all_reduce(at::Tensor tensor,
                                            c10d::ReduceOp op = c10d::ReduceOp::SUM) {
    std::vector<at::Tensor> tensors{std::move(tensor)};
    c10d::AllreduceOptions options;
    options.reduceOp = std::move(op);
    return group_->allreduce(tensors, options);
  }

  bool is_last() const { return job().rank == job().size - 1; }

  // Every rank must get a MismatchError with both texts, soon.
  void expect_mismatch(const std::function<void()>& call, const std::string& one,
                       const std::string& other) {
    try {
      call();
      FAIL() << "rank " << job().rank << " noticed nothing";
    } catch (const MismatchError& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr(one), HasSubstr(other)));
    }
    EXPECT_LT(watch_.elapsed(), patient(seconds(4))) << "far below the time limit";
    EXPECT_THROW(all_reduce(torch::ones({1}))->wait(), MismatchError) << "the group is dead";
  }

  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  Stopwatch watch_;
};

TEST_F(FailuresTest, AnotherSizeOfAMatrix) {
  expect_mismatch(
      [&] {
        all_reduce(is_last() ? torch::ones({3, 4}) : torch::ones({4, 4}))->wait();
      },
      "[3, 4]", "[4, 4]");
}

TEST_F(FailuresTest, AnotherSize) {
  expect_mismatch(
      [&] { all_reduce(is_last() ? torch::ones({7}) : torch::ones({100'000}))->wait(); }, "[7]",
      "[100000]");
}

TEST_F(FailuresTest, AnotherType) {
  expect_mismatch(
      [&] { all_reduce(torch::ones({8}, is_last() ? at::kDouble : at::kFloat))->wait(); },
      "float64", "float32");
}

TEST_F(FailuresTest, AnotherReduction) {
  expect_mismatch(
      [&] {
        all_reduce(torch::ones({8}), is_last() ? c10d::ReduceOp::MAX : c10d::ReduceOp::SUM)->wait();
      },
      "max", "sum");
}

TEST_F(FailuresTest, AnotherOperation) {
  expect_mismatch(
      [&] {
        std::vector<at::Tensor> tensors{torch::ones({8})};
        (is_last() ? group_->broadcast(tensors) : group_->allreduce(tensors))->wait();
      },
      "broadcast", "all_reduce");
}

TEST_F(FailuresTest, AnotherOrder) {
  expect_mismatch(
      [&] {
        const at::Tensor small = torch::ones({2});
        const at::Tensor big = torch::ones({5});
        auto first = all_reduce(is_last() ? small : big);
        auto second = all_reduce(is_last() ? big : small);
        first->wait();
        second->wait();
      },
      "[2]", "[5]");
}

TEST_F(FailuresTest, AsynchronousErrorsReachTheFuture) {
  c10::intrusive_ptr<c10d::Work> work;
  try {
    work = all_reduce(is_last() ? torch::ones({3}) : torch::ones({4}));
  } catch (const MismatchError&) {
    return;  // the news of the others' disagreement was here first
  }
  auto future = work->getFuture();
  EXPECT_THROW(work->wait(), MismatchError);
  future->wait();
  EXPECT_TRUE(future->hasError());
  EXPECT_THROW(std::rethrow_exception(future->exception_ptr()), MismatchError);
  EXPECT_FALSE(work->isSuccess());
  EXPECT_NE(work->exception(), nullptr);
}

TEST_F(FailuresTest, ARankThatDoesNotCome) {
  BackendOptions options;
  options.timeout = milliseconds(1500);  // in which the ranks have to meet, too
  options.group_name = "short";
  const auto group = make_group(options);
  std::vector<at::Tensor> tensors{torch::ones({4})};
  if (!is_last()) {
    const Stopwatch watch;
    try {
      group->allreduce(tensors)->wait();
      ADD_FAILURE() << "the last rank was not there";
    } catch (const TimeoutError& error) {
      EXPECT_THAT(error.what(), HasSubstr(std::to_string(job().size - 1)));
    }
    EXPECT_GE(watch.elapsed(), milliseconds(1400));
    EXPECT_LT(watch.elapsed(), patient(milliseconds(3300)));
  }
  // The other group of this process goes on; the last rank waits there for the time limit of the
  // others.
  all_reduce(torch::ones({4}))->wait();
}

// Holds the thread that it is sent to, wherever that is.
void hold_for_two_limits(int) {
  const timespec time{4, 0};
  ::nanosleep(&time, nullptr);
}

TEST_F(FailuresTest, ARankThatStopsInTheMiddleOfALargeTransfer) {
  constexpr milliseconds kLimit{2000};
  BackendOptions options;
  options.timeout = kLimit;
  options.group_name = "held";
  const auto group = make_group(options);
  std::vector<at::Tensor> tensors{torch::zeros({std::int64_t{16} << 20U})};
  c10d::AllreduceOptions in_this_thread;
  in_this_thread.asyncOp = false;
  group->allreduce(tensors, in_this_thread);  // connections and memory are there
  group_->barrier()->wait();
  std::thread holder;
  if (is_last()) {
    std::signal(SIGUSR1, hold_for_two_limits);
    holder = std::thread([thread = ::pthread_self()] {
      std::this_thread::sleep_for(milliseconds{300});
      ::pthread_kill(thread, SIGUSR1);
    });
  }
  auto begin = steady_clock::now();
  const auto transfer_until_it_fails = [&] {
    while (watch_.elapsed() < seconds{20}) {
      begin = steady_clock::now();
      group->allreduce(tensors, in_this_thread);
    }
  };
  try {
    transfer_until_it_fails();
    ADD_FAILURE() << "the last rank was held";
  } catch (const TimeoutError& error) {
    EXPECT_THAT(error.what(), HasSubstr("rank " + std::to_string(job().size - 1)));
  }
  if (is_last()) {
    holder.join();
  } else {
    const auto took = steady_clock::now() - begin;
    std::cout << "held in the middle, limit " << kLimit.count() << " ms: error after "
              << std::chrono::duration_cast<milliseconds>(took).count() << " ms\n";
    EXPECT_GE(took, kLimit * 9 / 10);
    EXPECT_LE(took, patient(kLimit * 3 / 2)) << "10 % are enough on an idle machine";
  }
  // The other group of this process goes on, also while the first one's rank is held.
  for (int round = 0; round < 10; ++round) all_reduce(torch::ones({4}))->wait();
}

TEST_F(FailuresTest, AListThatDiffersBetweenRanks) {
  expect_mismatch(
      [&] {
        std::vector<std::vector<at::Tensor>> outputs(1);
        for (int rank = 0; rank < job().size; ++rank)
          outputs[0].push_back(torch::empty({rank + 1}));
        if (is_last()) outputs[0][0] = torch::empty({9});
        std::vector<at::Tensor> inputs{torch::ones({job().rank + 1})};
        group_->allgather(outputs, inputs)->wait();
      },
      "[9]", "[1]");
}

TEST_F(FailuresTest, AListInAnotherOrder) {
  // As many elements of the same type altogether: parameters that do not belong together.
  expect_mismatch(
      [&] {
        std::vector<at::Tensor> tensors{torch::ones({2, 3}), torch::ones({3, 5})};
        if (is_last()) std::swap(tensors[0], tensors[1]);
        group_->getBackend(c10::kCPU)->allreduce_coalesced(tensors)->wait();
      },
      "[2, 3], [3, 5]", "[3, 5], [2, 3]");
}

TEST_F(FailuresTest, OfATransferBothLengthsAreNamed) {
  if (job().rank > 1) return;
  std::vector<at::Tensor> tensors{torch::ones({3 + job().rank})};
  try {
    // A send may be done before its receiver has come.
    const auto backend = group_->getBackend(c10::kCPU);
    (job().rank == 0 ? backend->send(tensors, 1, 0) : backend->recv(tensors, 0, 0))->wait();
    ASSERT_EQ(job().rank, 0);
    all_reduce(torch::ones({1}))->wait();
    ADD_FAILURE() << "rank 0 noticed nothing";
  } catch (const MismatchError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("rank 0"), HasSubstr("rank 1"),
                                    ContainsRegex("float32 \\[3\\]|12 bytes"),
                                    ContainsRegex("float32 \\[4\\]|16 bytes|receives 16")));
  }
}

// Of callers that know nothing of our launcher: the environment says which rank of the job each
// member is.
TEST_F(FailuresTest, OverAnotherStoreASubgroupNamesRanksOfTheJob) {
  if (job().size < 3) {
    GTEST_SKIP() << "needs three ranks";
  }
  const auto board = make_job_store(seconds{30});
  if (job().rank == 0) {
    std::string folder = std::filesystem::temp_directory_path() / "chainmail_members_XXXXXX";
    ASSERT_NE(::mkdtemp(folder.data()), nullptr);
    board->set("members/folder", std::vector<std::uint8_t>(folder.begin(), folder.end()));
    group_->barrier()->wait();
    group_->barrier()->wait();
    std::filesystem::remove_all(folder);
    return;
  }
  const std::vector<std::uint8_t> folder = board->get("members/folder");
  const std::string path = std::string(folder.begin(), folder.end()) + "/store";
  BackendOptions options;
  options.group_name = "over a file";
  options.timeout = seconds{2};
  auto pair =
      make_process_group(c10::make_intrusive<c10d::FileStore>(path, 2), job().rank - 1, 2, options);
  pair->barrier()->wait();
  if (job().rank == 1) {
    try {
      pair->barrier()->wait();
      ADD_FAILURE() << "rank 2 has come";
    } catch (const TimeoutError& error) {
      EXPECT_THAT(error.what(),
                  AllOf(HasSubstr("on rank 1"), HasSubstr("rank 2"), Not(HasSubstr("rank 0"))));
      EXPECT_EQ(error.missing_ranks(), std::vector<int>{2});
    }
  }
  group_->barrier()->wait();  // rank 2 has stayed long enough
  pair.reset();               // while there is a store
  group_->barrier()->wait();
}

TEST_F(FailuresTest, SparseTensorsOfAnotherShape) {
  expect_mismatch(
      [&] {
        all_reduce(torch::ones({is_last() ? 5 : 4, 2}).to_sparse())->wait();
      },
      "[5, 2]", "[4, 2]");
}

TEST_F(FailuresTest, AbortReachesTheOthers) {
  if (is_last()) {
    group_->abort();
    EXPECT_THROW(all_reduce(torch::ones({4}))->wait(), Error);
  } else {
    EXPECT_THROW(all_reduce(torch::ones({4}))->wait(), Error);
    EXPECT_LT(watch_.elapsed(), patient(seconds(2)));
  }
  EXPECT_NE(group_->getBackend(c10::kCPU)->getError(), c10d::ErrorType::SUCCESS);
}

TEST_F(FailuresTest, TwoThreadsOnOneGroup) {
  // Every operation is the same, so that the order in which the threads get there does not matter.
  constexpr int kRounds = 4000;
  std::vector<int> wrong(2, 0);
  std::vector<std::thread> threads;
  for (int& errors : wrong) {
    threads.emplace_back([&] {
      for (int round = 0; round < kRounds; ++round) {
        std::vector<at::Tensor> tensors{torch::ones({64})};
        group_->allreduce(tensors)->wait();
        errors += tensors[0].sum().item<float>() != 64.0F * static_cast<float>(job().size);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(2, 0));
}

}  // namespace
}  // namespace chainmail::internal
