// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What a profiler sees of operations: their names and shapes, and that events have ended when
// somebody sees an operation's end.

#include <ATen/record_function.h>
#include <gmock/gmock.h>
#include <torch/csrc/autograd/profiler_legacy.h>
#include <torch/types.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/plugin/c10d/job_group.h"

namespace chainmail::internal {
namespace {

using std::chrono::milliseconds;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

class ProfilingTest : public GroupTest {};

TEST_F(ProfilingTest, TheProfilerSeesEveryOperationWithItsShapes) {
  using torch::autograd::profiler::ProfilerConfig;
  using torch::autograd::profiler::ProfilerState;
  torch::autograd::profiler::enableProfilerLegacy(
      ProfilerConfig(ProfilerState::CPU, /*report_input_shapes=*/true));
  std::vector<at::Tensor> tensors{torch::ones({7, 2})};
  backend_->allreduce(tensors)->wait();
  c10d::BroadcastOptions options;
  options.asyncOp = false;
  backend_->broadcast(tensors, options);
  backend_->barrier()->wait();
  const auto events = torch::autograd::profiler::disableProfilerLegacy();
  std::vector<std::string> seen;
  for (const auto& thread : events) {
    for (const auto& event : thread) {
      const std::string name = event.name();
      if (name.rfind("chainmail:", 0) != 0 || event.kindStr() != "push") continue;
      seen.push_back(name);
      if (name != "chainmail:barrier") {
        EXPECT_EQ(event.shapes(), (std::vector<std::vector<std::int64_t>>{{7, 2}})) << name;
      }
    }
  }
  EXPECT_THAT(seen, ::testing::UnorderedElementsAre("chainmail:all_reduce", "chainmail:broadcast",
                                                    "chainmail:barrier"));
}

/// Of operations, in this thread and what it begins, so slowly that who does not wait for it is
/// seen.
class SlowObserver {
 public:
  SlowObserver()
      : handle_(at::addThreadLocalCallback(
            at::RecordFunctionCallback(
                [](const at::RecordFunction& /*function*/) {
                  return std::unique_ptr<at::ObserverContext>();
                },
                [](const at::RecordFunction& function, at::ObserverContext* /*context*/) {
                  if (std::string(function.name()).rfind("chainmail:", 0) != 0) return;
                  ++begun;
                  std::this_thread::sleep_for(milliseconds{50});
                  for (int i = 0; is_held && i < 20'000; ++i) {
                    std::this_thread::sleep_for(milliseconds{1});
                  }
                  ++ended;
                })
                .scopes({at::RecordScope::USER_SCOPE}))) {
    begun = 0;
    ended = 0;
    is_held = false;
  }
  ~SlowObserver() { at::removeCallback(handle_); }
  SlowObserver(const SlowObserver&) = delete;
  SlowObserver& operator=(const SlowObserver&) = delete;

  static inline std::atomic<int> begun{0};
  static inline std::atomic<int> ended{0};
  static inline std::atomic<bool> is_held{false};

 private:
  at::CallbackHandle handle_;
};

// A profiler that is stopped then reads what the end of an event writes.
TEST_F(ProfilingTest, WhoSeesTheEndComesAfterTheProfilersEvent) {
  const SlowObserver observer;
  std::vector<at::Tensor> tensors{torch::ones({7, 2})};
  backend_->allreduce(tensors)->wait();
  EXPECT_EQ(SlowObserver::ended, 1);
  const WorkPtr polled = backend_->allreduce(tensors);
  while (!polled->isCompleted()) std::this_thread::yield();
  EXPECT_EQ(SlowObserver::ended, 2);
  backend_->allreduce(tensors)->getFuture()->wait();
  EXPECT_EQ(SlowObserver::ended, 3);
  c10d::BroadcastOptions options;
  options.asyncOp = false;
  backend_->broadcast(tensors, options);
  EXPECT_EQ(SlowObserver::ended, 4);
  const int next = (job().rank + 1) % job().size;
  const int last = (job().rank + job().size - 1) % job().size;
  std::vector<at::Tensor> received{torch::empty({7, 2})};
  const WorkPtr sent = backend_->send(tensors, next, 0);
  backend_->recv(received, last, 0)->wait();
  sent->wait();
  EXPECT_EQ(SlowObserver::ended, 6);
  backend_->startCoalescing();
  static_cast<void>(backend_->send(tensors, next, 0));
  static_cast<void>(backend_->recv(received, last, 0));
  backend_->endCoalescing()->wait();
  EXPECT_EQ(SlowObserver::ended, 8);
}

// Python's callers ask with its lock held, which what is called at the end may need.
TEST_F(ProfilingTest, WhoAsksDoesNotWaitForWhatTheEndCalls) {
  const SlowObserver observer;
  std::vector<at::Tensor> out{torch::ones({3})};
  std::vector<at::Tensor> in{torch::zeros({3})};
  SlowObserver::is_held = true;
  const WorkPtr received = backend_->recv(in, job().rank, 7);
  std::thread sender([&] { backend_->send(out, job().rank, 7)->wait(); });
  while (SlowObserver::begun == 0) std::this_thread::yield();
  EXPECT_FALSE(received->isCompleted());
  EXPECT_FALSE(received->isSuccess());
  EXPECT_EQ(received->exception(), nullptr);
  const auto future = received->getFuture();
  EXPECT_FALSE(future->completed());
  EXPECT_EQ(SlowObserver::ended, 0);
  SlowObserver::is_held = false;
  future->wait();
  EXPECT_EQ(SlowObserver::ended, 1);
  EXPECT_TRUE(received->isCompleted());
  EXPECT_TRUE(received->isSuccess());
  sender.join();
}

TEST_F(ProfilingTest, TheProfilersEventEndsWithAnOperationThatFails) {
  const SlowObserver observer;
  BackendOptions options;
  options.group_name = "profiled " + std::to_string(job().rank);
  auto group = make_process_group(make_job_store(std::chrono::seconds{30}), 0, 1, options);
  auto backend = group->getBackend(c10::kCPU);
  std::vector<at::Tensor> in{torch::zeros({3})};
  const WorkPtr received = backend->recv(in, 0, 7);
  EXPECT_EQ(SlowObserver::ended, 0);
  auto waiting = std::async(std::launch::async, [&] {
    EXPECT_ANY_THROW(received->wait());
    EXPECT_EQ(SlowObserver::ended, 1) << "before who waits sees the error";
  });
  backend->shutdown();
  waiting.get();
}

}  // namespace
}  // namespace chainmail::internal
