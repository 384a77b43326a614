// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// send, recv and recvAnysource of c10d: tags, any order, any source, several as one.

#include <chainmail/error.h>
#include <torch/types.h>

#include <chrono>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/plugin/c10d/job_group.h"
#include "tests/support/patience.h"

namespace chainmail::internal {
namespace {

using std::chrono::milliseconds;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

at::Tensor filled(at::IntArrayRef sizes, int value) {
  return torch::full(sizes, value, at::kFloat);
}

class TransfersTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (job().size < 2) {
      GTEST_SKIP() << "needs two ranks";
    }
    group_ = make_group();
    backend_ = group_->getBackend(c10::kCPU);
  }

  WorkPtr send(at::Tensor tensor, int destination, int tag = 0) {
    std::vector<at::Tensor> tensors{std::move(tensor)};
    return backend_->send(tensors, destination, tag);
  }
  WorkPtr receive(at::Tensor tensor, int source, int tag = 0) {
    std::vector<at::Tensor> tensors{std::move(tensor)};
    return backend_->recv(tensors, source, tag);
  }
  WorkPtr receive_from_any(at::Tensor tensor, int tag = 0) {
    std::vector<at::Tensor> tensors{std::move(tensor)};
    return backend_->recvAnysource(tensors, tag);
  }
  /// In place of the group of all ranks, for the sake of which no rank must end it alone.
  void be_alone(milliseconds limit) {
    backend_.reset();
    group_.reset();
    BackendOptions options;
    options.group_name = "alone " + std::to_string(job().rank);
    options.timeout = limit;
    backend_ = make_process_group(make_job_store(std::chrono::seconds{30}), 0, 1, options)
                   ->getBackend(c10::kCPU);
  }
  int next() const { return (job().rank + 1) % job().size; }
  int previous() const { return (job().rank + job().size - 1) % job().size; }

  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  c10::intrusive_ptr<c10d::Backend> backend_;
};

TEST_F(TransfersTest, FromAnyRankAndWhoItWas) {
  if (job().rank != 0) {
    send(filled({3, 4}, job().rank).t(), 0, 7)->wait();
    return;
  }
  std::set<int> sources;
  for (int i = 1; i < job().size; ++i) {
    at::Tensor tensor = torch::zeros({8, 3}).slice(0, 0, 8, 2);  // strided
    const WorkPtr work = receive_from_any(tensor, 7);
    work->wait();
    EXPECT_TRUE(at::equal(tensor, filled({4, 3}, work->sourceRank())));
    sources.insert(work->sourceRank());
  }
  EXPECT_EQ(sources.size(), static_cast<std::size_t>(job().size - 1));
}

TEST_F(TransfersTest, TagsMayMeetInAnyOrder) {
  const WorkPtr first = send(filled({5}, 1), next(), 1);
  const WorkPtr second = send(filled({5}, 2), next(), 2);
  at::Tensor two = torch::zeros({5});
  at::Tensor one = torch::zeros({5});
  const WorkPtr received = receive(two, previous(), 2);
  received->wait();
  receive(one, previous(), 1)->wait();
  first->wait();
  second->wait();
  EXPECT_EQ(received->sourceRank(), previous());
  EXPECT_EQ(one[4].item<float>(), 1.0F);
  EXPECT_EQ(two[4].item<float>(), 2.0F);
  EXPECT_THROW(first->sourceRank(), c10::Error);
}

TEST_F(TransfersTest, AllSendLargeOnesFirst) {
  const at::Tensor mine = filled({1'000'000}, job().rank);
  at::Tensor other = torch::zeros({1'000'000});
  const WorkPtr sent = send(mine, next());
  receive(other, previous())->wait();
  sent->wait();
  EXPECT_EQ(other[999'999].item<float>(), static_cast<float>(previous()));
}

TEST_F(TransfersTest, ABatchIsOneWork) {
  // As batch_isend_irecv does it: to and from everybody, between collectives.
  std::vector<at::Tensor> sum{torch::ones({10})};
  const WorkPtr before = backend_->allreduce(sum);
  std::vector<at::Tensor> received;
  backend_->startCoalescing();
  for (int peer = 0; peer < job().size; ++peer) {
    received.push_back(filled({100'000}, -1));
    send(filled({100'000}, job().rank * 10 + peer), peer);
    receive(received.back(), peer);
  }
  const WorkPtr all = backend_->endCoalescing();
  all->wait();
  before->wait();
  for (int peer = 0; peer < job().size; ++peer) {
    EXPECT_EQ(received[static_cast<std::size_t>(peer)][99'999].item<int>(), peer * 10 + job().rank);
  }
  EXPECT_EQ(sum[0][0].item<float>(), static_cast<float>(job().size));
}

TEST_F(TransfersTest, ToItselfByTagInEitherOrder) {
  const int self = job().rank;
  at::Tensor one = torch::zeros({4, 2}).t();  // strided
  at::Tensor two = torch::zeros({2, 4});
  at::Tensor three = torch::zeros({2, 4});
  const WorkPtr first = receive(one, self, 1);
  EXPECT_FALSE(first->isCompleted());
  const WorkPtr second = send(filled({2, 4}, 2), self, 2);
  const WorkPtr third = send(filled({2, 4}, 3), self, 2);
  send(filled({4, 2}, 1).t(), self, 1)->wait();
  first->wait();
  receive(two, self, 2)->wait();
  receive(three, self, 2)->wait();
  second->wait();
  third->wait();
  EXPECT_EQ(first->sourceRank(), self);
  EXPECT_TRUE(at::equal(one, filled({2, 4}, 1)));
  EXPECT_TRUE(at::equal(two, filled({2, 4}, 2)));
  EXPECT_TRUE(at::equal(three, filled({2, 4}, 3)));
}

TEST_F(TransfersTest, ToItselfOfAnotherLengthEndsTheGroup) {
  be_alone(std::chrono::minutes{20});
  const WorkPtr first = receive(torch::zeros({3}), 0);
  const WorkPtr unmatched = receive(torch::zeros({3}), 0, 1);
  const auto unmatched_end = unmatched->getFuture();
  const WorkPtr second = send(filled({4}, 1), 0);
  EXPECT_THROW(first->wait(), MismatchError);
  EXPECT_THROW(second->wait(), MismatchError);
  unmatched_end->wait();
  EXPECT_TRUE(unmatched_end->hasError());
  EXPECT_THROW(send(filled({4}, 1), 0), MismatchError);
}

TEST_F(TransfersTest, ToItselfWithoutTheOtherSideTimesOut) {
  constexpr milliseconds kLimit{1000};
  const auto start = std::chrono::steady_clock::now();
  be_alone(kLimit);
  const WorkPtr lone = receive(torch::zeros({3}), 0, 1);
  EXPECT_THROW(lone->wait(milliseconds{50}), TimeoutError);
  EXPECT_FALSE(lone->isCompleted()) << "the limit was only that of the wait";
  const WorkPtr other = send(filled({3}, 1), 0, 2);
  const auto future = lone->getFuture();
  const auto other_future = other->getFuture();
  future->wait();  // nobody waits for the transfers themselves
  other_future->wait();
  EXPECT_GE(std::chrono::steady_clock::now() - start, kLimit);
  EXPECT_TRUE(future->hasError());
  EXPECT_TRUE(other_future->hasError());
  EXPECT_TRUE(lone->isCompleted());
  EXPECT_THROW(lone->wait(), TimeoutError);
  EXPECT_EQ(backend_->getError(), c10d::ErrorType::TIMEOUT);
  EXPECT_THROW(receive(torch::zeros({3}), 0, 1), TimeoutError);
}

TEST_F(TransfersTest, ToItselfTheTimeOfEachBeginsWithTheEndOfTheOneBefore) {
  const auto pause = std::chrono::ceil<milliseconds>(patient(milliseconds{600}));
  be_alone(pause * 5 / 3);
  const at::Tensor one = torch::zeros({3});
  const at::Tensor two = torch::zeros({3});
  const WorkPtr first = receive(one, 0);
  const WorkPtr second = receive(two, 0);
  std::this_thread::sleep_for(pause);
  send(filled({3}, 1), 0)->wait();
  first->wait();
  std::this_thread::sleep_for(pause);
  send(filled({3}, 2), 0)->wait();
  second->wait();
  EXPECT_TRUE(torch::equal(one, filled({3}, 1)));
  EXPECT_TRUE(torch::equal(two, filled({3}, 2)));
}

TEST_F(TransfersTest, ToItselfEndsWithTheGroup) {
  enum class End { kAbort, kFailure, kShutdown, kRelease };
  for (const End end : {End::kAbort, End::kFailure, End::kShutdown, End::kRelease}) {
    const int number = static_cast<int>(end);
    be_alone(std::chrono::minutes{20});  // the test's limit is far shorter
    const WorkPtr work = receive(torch::zeros({3}), 0);
    std::thread waiter([&] { EXPECT_THROW(work->wait(), chainmail::Error) << number; });
    const WorkPtr sent = send(filled({3}, 1), 0, 1);
    const auto future = work->getFuture();
    const auto sent_future = sent->getFuture();
    EXPECT_FALSE(future->completed());
    switch (end) {
      case End::kAbort:
        backend_->abort();
        break;
      case End::kFailure:
        work->abort();  // of the group, which its backend does not hear of
        break;
      case End::kShutdown:
        backend_->shutdown();
        break;
      case End::kRelease:
        backend_.reset();
        break;
    }
    future->wait();
    sent_future->wait();
    waiter.join();
    EXPECT_TRUE(future->hasError()) << number;
    EXPECT_TRUE(sent_future->hasError()) << number;
    if (backend_) {
      EXPECT_ANY_THROW(send(filled({3}, 1), 0)) << number;
    }
  }
}

TEST_F(TransfersTest, WhileACollectiveWaits) {
  // Rank 0 is in an all-reduce that the others join only after they have heard from it.
  std::vector<at::Tensor> sum{torch::ones({4})};
  if (job().rank == 0) {
    const WorkPtr reduced = backend_->allreduce(sum);
    for (int peer = 1; peer < job().size; ++peer) send(torch::ones({2}), peer)->wait();
    reduced->wait();
  } else {
    receive(torch::zeros({2}), 0)->wait();
    backend_->allreduce(sum)->wait();
  }
  EXPECT_EQ(sum[0][3].item<float>(), static_cast<float>(job().size));
}

TEST_F(TransfersTest, ShutdownEndsReceivesThatNothingComesFor) {
  BackendOptions options;
  options.timeout = std::chrono::minutes{20};
  options.group_name = "shut down with a receive";
  const auto group = make_group(options);
  const auto backend = group->getBackend(c10::kCPU);
  backend->barrier()->wait();
  std::vector<at::Tensor> tensors{torch::zeros({4})};
  const WorkPtr work = backend->recv(tensors, next(), 0);
  const auto future = work->getFuture();
  backend->shutdown();  // the test's time limit is far shorter than the group's
  EXPECT_TRUE(work->isCompleted());
  EXPECT_FALSE(work->isSuccess());
  EXPECT_TRUE(future->completed());
  EXPECT_TRUE(future->hasError());
}

}  // namespace
}  // namespace chainmail::internal
