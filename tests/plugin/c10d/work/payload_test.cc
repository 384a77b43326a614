// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What a Payload has of its caller never ends in a thread of the engine.

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <exception>
#include <memory>
#include <vector>

#include "ops/engine/callbacks/callback_executor.h"
#include "ops/engine/callbacks/user_code.h"
#include "plugin/c10d/work/work.h"

namespace chainmail::internal {
namespace {

struct Ends {
  std::atomic<int> in_engine = 0;
  std::atomic<int> elsewhere = 0;

  std::shared_ptr<void> watched() {
    return {nullptr,
            [this](void*) { ++(ops::DefersRelease::is_active() ? in_engine : elsewhere); }};
  }
};

struct WatchedError {
  std::shared_ptr<void> watched;
};

// Tensors, a function and an error, as Python's may be.
void fill(Payload& payload, Ends& ends) {
  auto memory = std::make_shared<std::vector<float>>(4);
  payload.keep.push_back(at::from_blob(
      memory->data(), {4}, [memory, watched = ends.watched()](void*) mutable { watched.reset(); }));
  payload.copy_out = [watched = ends.watched()] {};
  payload.copy_error = std::make_exception_ptr(WatchedError{ends.watched()});
}

TEST(Payload, ContentsEndInTheExecutorWhenTheEngineLetsGo) {
  Ends ends;
  auto executor = std::make_shared<ops::CallbackExecutor>();
  auto payload = std::make_shared<Payload>(executor);
  fill(*payload, ends);
  {
    const ops::DefersRelease guard;
    payload.reset();
  }
  EXPECT_TRUE(executor->drain(std::chrono::seconds{10}));
  executor->stop(std::chrono::seconds{10});
  EXPECT_EQ(ends.in_engine, 0);
  EXPECT_EQ(ends.elsewhere, 3);
}

TEST(Payload, ContentsEndAtOnceInTheCallersThread) {
  Ends ends;
  auto payload = std::make_shared<Payload>(std::make_shared<ops::CallbackExecutor>());
  fill(*payload, ends);
  payload.reset();
  EXPECT_EQ(ends.elsewhere, 3);
}

}  // namespace
}  // namespace chainmail::internal
