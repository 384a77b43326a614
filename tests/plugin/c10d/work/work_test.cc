// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What Work and Future promise: waiting with and without a limit, results, callbacks, errors,
// several operations as one.

#include <chainmail/error.h>
#include <gmock/gmock.h>
#include <torch/types.h>

#include <atomic>
#include <chrono>
#include <future>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tests/plugin/c10d/job_group.h"

namespace chainmail::internal {
namespace {

using std::chrono::milliseconds;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

class WorkTest : public GroupTest {
 protected:
  bool is_last() const { return job().rank == job().size - 1; }
  float ranks() const { return static_cast<float>(job().size); }
};

TEST_F(WorkTest, ALimitOfTheWaitIsNotTheEndOfTheOperation) {
  if (job().size < 2) {
    GTEST_SKIP() << "needs two ranks";
  }
  BackendOptions named;
  named.group_name = "the others have looked";
  const auto others = make_group(named);
  std::vector<at::Tensor> tensors{torch::ones({4})};
  if (is_last()) others->barrier()->wait();
  const WorkPtr work = backend_->allreduce(tensors);
  if (!is_last()) {
    EXPECT_FALSE(work->isCompleted());
    EXPECT_THROW(work->result(), c10::Error) << "before it is there";
    EXPECT_EQ(work->exception(), nullptr);
    EXPECT_THROW(work->wait(milliseconds{50}), TimeoutError);
    EXPECT_THROW(work->wait(milliseconds{-50}), TimeoutError) << "time that is used up already";
    others->barrier()->wait();
  }
  EXPECT_TRUE(work->wait());
  EXPECT_TRUE(work->isCompleted());
  EXPECT_TRUE(work->isSuccess());
  EXPECT_TRUE(work->wait(milliseconds{-50}));
  EXPECT_EQ(work->result().at(0)[3].item<float>(), ranks());
}

TEST_F(WorkTest, SynchronousCallsAreDoneWhenTheyReturn) {
  std::vector<at::Tensor> tensors{torch::ones({100, 3}).t()};
  c10d::AllreduceOptions options;
  options.asyncOp = false;
  const WorkPtr work = backend_->allreduce(tensors, options);
  EXPECT_TRUE(work->isCompleted());
  EXPECT_EQ(tensors[0][2][99].item<float>(), ranks());
}

TEST_F(WorkTest, TensorsLiveUntilTheOperationEnds) {
  if (job().size < 2) {
    GTEST_SKIP() << "needs two ranks";
  }
  if (is_last()) std::this_thread::sleep_for(milliseconds{300});
  c10::intrusive_ptr<c10::ivalue::Future> future;
  {
    std::vector<at::Tensor> tensors{torch::full({200'000}, 2.0)};
    future = backend_->allreduce(tensors)->getFuture();
  }  // neither tensor nor Work is held any more
  future->wait();
  EXPECT_EQ(future->value().toTensorVector().at(0)[199'999].item<float>(), 2 * ranks());
}

TEST_F(WorkTest, CallbacksRunOnceWithTheResult) {
  std::atomic<int> calls{0};
  std::vector<at::Tensor> tensors{torch::ones({5})};
  const WorkPtr work = backend_->allreduce(tensors);
  const auto doubled = work->getFuture()->then(
      [&calls](c10::ivalue::Future& done) {
        ++calls;
        return c10::IValue(done.value().toTensorVector().at(0) * 2);
      },
      c10::TensorType::get());
  doubled->wait();
  EXPECT_EQ(doubled->value().toTensor()[0].item<float>(), 2 * ranks());
  EXPECT_EQ(calls, 1);
  // Later ones run at once, and may begin operations of their own.
  std::vector<at::Tensor> more{torch::ones({5})};
  work->getFuture()->then([&](c10::ivalue::Future&) { return backend_->allreduce(more)->result(); },
                          c10::ListType::ofTensors());
  backend_->barrier()->wait();
  EXPECT_EQ(more[0][0].item<float>(), ranks());
  const auto result = work->getFutureResult();
  result->wait();
  EXPECT_EQ(result->value().toInt(), static_cast<std::int64_t>(c10d::WorkResult::SUCCESS));
}

TEST_F(WorkTest, ListsOfListsReachTheFutureAsSuch) {
  std::vector<std::vector<at::Tensor>> outputs;
  for (int rank = 0; rank < job().size; ++rank) {
    outputs.push_back({torch::empty({2}), torch::empty({3})});
  }
  std::vector<at::Tensor> inputs{torch::ones({2}), torch::ones({3})};
  const WorkPtr work = backend_->allgather_coalesced(outputs, inputs);
  const auto future = work->getFuture();
  future->wait();
  if (job().size > 1) {
    EXPECT_EQ(future->value().toList().size(), outputs.size());
    EXPECT_EQ(future->value().toList().get(0).toTensorVector().size(), 2U);
    EXPECT_THROW(work->result(), c10::Error);
  }
}

TEST_F(WorkTest, AbortEndsWhatIsUnderWay) {
  if (job().size < 2) {
    GTEST_SKIP() << "needs two ranks";
  }
  std::vector<at::Tensor> tensors{torch::ones({1'000'000})};
  if (is_last()) {
    // Never comes; learns of the end.
    EXPECT_THROW(
        {
          for (int i = 0; i < 1000; ++i) {
            std::this_thread::sleep_for(milliseconds{10});
            if (backend_->getError() != c10d::ErrorType::SUCCESS) throw PeerError("heard of it");
          }
        },
        PeerError);
    return;
  }
  const WorkPtr work = backend_->allreduce(tensors);
  const auto future = work->getFuture();
  const auto result = work->getFutureResult();
  std::thread killer([&] {
    std::this_thread::sleep_for(milliseconds{200});
    if (job().rank == 0) work->abort();
  });
  EXPECT_THROW(work->wait(), PeerError);
  killer.join();
  EXPECT_TRUE(work->isCompleted());
  EXPECT_FALSE(work->isSuccess());
  EXPECT_NE(work->exception(), nullptr);
  future->wait();
  EXPECT_TRUE(future->hasError());
  result->wait();
  EXPECT_EQ(result->value().toInt(), static_cast<std::int64_t>(c10d::WorkResult::COMM_ERROR));
  EXPECT_NE(backend_->getError(), c10d::ErrorType::SUCCESS);
}

TEST_F(WorkTest, CoalescedOperationsAreOneWork) {
  ASSERT_TRUE(backend_->supportsCoalescing());
  std::vector<std::vector<at::Tensor>> lists;
  for (int i = 0; i < 10; ++i) lists.push_back({torch::full({i + 1, 2}, i).t()});
  backend_->startCoalescing();
  std::thread([&] { EXPECT_THROW(backend_->startCoalescing(), c10::Error); }).join();
  for (auto& tensors : lists) {
    c10d::AllreduceOptions options;
    options.asyncOp = false;  // not waited for inside
    backend_->allreduce(tensors, options);
  }
  std::vector<at::Tensor> other{torch::ones({1})};
  if (job().size == 1) {
    // Another thread's operations are not taken along.
    std::thread([&] { EXPECT_TRUE(backend_->allreduce(other)->wait()); }).join();
  }
  const WorkPtr work = backend_->endCoalescing();
  EXPECT_TRUE(work->wait(milliseconds{20'000}));
  for (int i = 0; i < 10; ++i) {
    EXPECT_TRUE(
        at::equal(lists[static_cast<std::size_t>(i)][0], torch::full({2, i + 1}, i * job().size)))
        << i;
  }
  EXPECT_EQ(work->result().size(), 10U);
  EXPECT_THROW(backend_->endCoalescing(), c10::Error);
  backend_->startCoalescing();
  EXPECT_TRUE(backend_->endCoalescing()->isCompleted()) << "nothing between them";
}

TEST_F(WorkTest, AMistakeInABatchIsToldAtItsEndAndNothingIsSent) {
  if (job().size < 2) {
    GTEST_SKIP() << "needs two ranks";
  }
  const int next = (job().rank + 1) % job().size;
  const int previous = (job().rank + job().size - 1) % job().size;
  std::vector<at::Tensor> out{torch::full({2}, job().rank, at::kFloat)};
  std::vector<at::Tensor> in{torch::zeros({2})};
  std::vector<at::Tensor> bad{torch::zeros({1}).expand({2})};
  backend_->startCoalescing();
  const WorkPtr refused = backend_->send(out, next, 0);
  EXPECT_THROW(refused->wait(), InvalidArgument) << "the batch has not begun";
  backend_->recv(bad, previous, 0);
  EXPECT_THROW(backend_->endCoalescing(), c10::Error);
  EXPECT_THROW(refused->wait(), c10::Error);
  EXPECT_TRUE(refused->isCompleted());

  // Left open, as by an exception of the caller's own.
  out[0].add_(100);
  backend_->startCoalescing();
  const WorkPtr given_up = backend_->send(out, next, 0);
  backend_->startCoalescing();
  EXPECT_THROW(given_up->wait(), InvalidArgument);

  out[0].add_(100);
  backend_->send(out, next, 0);
  backend_->recv(in, previous, 0);
  backend_->endCoalescing()->wait();
  EXPECT_EQ(in[0][0].item<float>(), static_cast<float>(previous + 200))
      << "the first that was sent";
  std::vector<at::Tensor> one{torch::ones({1})};
  c10d::AllreduceOptions options;
  options.asyncOp = false;
  backend_->allreduce(one, options);
  EXPECT_EQ(one[0].item<float>(), ranks());
}

TEST_F(WorkTest, CallbacksOfABatchThatIsRefusedMaySendOnTheirGroup) {
  constexpr int kMessages = 50;
  std::vector<at::Tensor> out{torch::ones({2})};
  std::vector<at::Tensor> in{torch::zeros({2})};
  for (const bool is_left_open : {false, true}) {
    std::vector<WorkPtr> sent;
    std::vector<c10::intrusive_ptr<c10::ivalue::Future>> ends;
    backend_->startCoalescing();
    for (int i = 0; i < 3; ++i) {
      ends.push_back(backend_->send(out, job().rank, i)
                         ->getFuture()
                         ->then(
                             [&, i](c10::ivalue::Future& refused) {
                               EXPECT_TRUE(refused.hasError());
                               for (int k = 0; i == 0 && k < kMessages; ++k) {
                                 sent.push_back(backend_->send(out, job().rank, 100));
                               }
                               return c10::IValue(i);
                             },
                             c10::IntType::get()));
    }
    if (is_left_open) {
      backend_->startCoalescing();
      backend_->endCoalescing()->wait();
    } else {
      backend_->recv(in, job().size, 0);
      EXPECT_THROW(backend_->endCoalescing(), c10::Error);
    }
    for (const auto& end : ends) end->wait();
    ASSERT_EQ(sent.size(), kMessages);
    for (const WorkPtr& work : sent) {
      backend_->recv(in, job().rank, 100)->wait();
      EXPECT_TRUE(work->wait());
    }
  }
}

TEST_F(WorkTest, ABatchThatIsNeverEndedEndsWithItsGroup) {
  for (const bool is_shut_down : {false, true}) {
    BackendOptions options;
    options.group_name = "left open " + std::to_string(job().rank);
    auto group = make_process_group(make_job_store(std::chrono::seconds{30}), 0, 1, options);
    auto backend = group->getBackend(c10::kCPU);
    std::vector<at::Tensor> tensors{torch::zeros({2, 2}).t()};  // received into a packed copy
    const c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl> tensor(
        tensors[0].getIntrusivePtr());
    WorkPtr work;
    std::thread([&] {
      backend->startCoalescing();
      work = backend->recv(tensors, 0, 0);
    }).join();
    auto future = work->getFuture();
    tensors.clear();
    if (is_shut_down) backend->shutdown();
    backend.reset();
    group.reset();
    future->wait();
    EXPECT_TRUE(future->hasError());
    EXPECT_THROW(work->wait(), InvalidArgument);
    EXPECT_TRUE(work->isCompleted());
    work.reset();
    future.reset();
    EXPECT_TRUE(tensor.expired()) << "kept by a Work that keeps itself";
  }
}

TEST_F(WorkTest, ALimitThatNoClockCanHoldIsNever) {
  if (job().size < 2) {
    GTEST_SKIP() << "needs two ranks";
  }
  backend_->setTimeout(milliseconds::max());
  std::vector<at::Tensor> tensors{torch::full({2}, job().rank, at::kFloat)};
  const int last = job().size - 1;
  if (is_last()) {
    std::this_thread::sleep_for(milliseconds{300});
    for (int rank = 0; rank < last; ++rank) backend_->send(tensors, rank, 0)->wait();
  } else {
    EXPECT_TRUE(backend_->recv(tensors, last, 0)->wait(milliseconds::max()));
  }
  EXPECT_EQ(tensors[0][0].item<int>(), last);
  const WorkPtr lone = backend_->recv(tensors, job().rank, 0);
  EXPECT_THROW(lone->wait(milliseconds{50}), TimeoutError);
  EXPECT_FALSE(lone->isCompleted());
  backend_->send(tensors, job().rank, 0)->wait();
  EXPECT_TRUE(lone->wait(milliseconds::max()));
}

TEST_F(WorkTest, ResultsReachInferenceTensors) {
  const c10::InferenceMode mode;
  std::vector<at::Tensor> tensors{torch::ones({3, 5}).t()};
  std::vector<at::Tensor> two{torch::ones({3}), torch::ones({4})};
  const WorkPtr work = backend_->allreduce(tensors);
  const WorkPtr coalesced = backend_->allreduce_coalesced(two);
  const auto future = work->getFuture();
  const auto other_future = coalesced->getFuture();
  future->wait();  // the copies are made in a thread of the group
  other_future->wait();
  EXPECT_FALSE(future->hasError());
  EXPECT_FALSE(other_future->hasError());
  EXPECT_EQ(tensors[0].sum().item<float>(), 15 * ranks());
  EXPECT_EQ(two[1].sum().item<float>(), 4 * ranks());
}

TEST_F(WorkTest, CallbacksOfFuturesDoNotRunInAThreadThatWaitsForAnotherOperation) {
  std::mutex lock;
  for (int round = 0; round < 5; ++round) {
    std::vector<at::Tensor> first{torch::ones({8})};
    std::vector<at::Tensor> second{torch::ones({8})};
    c10::intrusive_ptr<c10::ivalue::Future> chained;
    {
      const std::lock_guard held(lock);
      chained = backend_->allreduce(first)->getFuture()->then(
          [&lock](c10::ivalue::Future& done) {
            const std::lock_guard taken(lock);
            return done.value();
          },
          c10::ListType::ofTensors());
      backend_->allreduce(second)->wait();
    }
    chained->wait();
    EXPECT_FALSE(chained->hasError());
  }
}

TEST_F(WorkTest, MistakesAreTorchErrorsAndTheGroupLives) {
  std::vector<at::Tensor> tensors{torch::ones({2})};
  EXPECT_THROW(backend_->send(tensors, job().size, 0), c10::Error);
  EXPECT_THROW(backend_->recv(tensors, 0, -1), c10::Error) << "negative tag";
  EXPECT_THROW(backend_->setTimeout(milliseconds{0}), c10::Error);
  EXPECT_THROW(backend_->shrink({0}), c10::Error);
  std::vector<at::Tensor> bools{torch::ones({2}, at::kBool)};
  c10d::AllreduceOptions average;
  average.reduceOp = c10d::ReduceOp::AVG;
  EXPECT_THROW(backend_->allreduce(bools, average), c10::Error);
  backend_->allreduce(tensors)->wait();
  EXPECT_EQ(backend_->getError(), c10d::ErrorType::SUCCESS);
}

}  // namespace
}  // namespace chainmail::internal
