// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What the backend does with tensors on an accelerator: which stream waits for what, in which
// order, and how long memory is kept. On devices that only write down what is asked of them; no GPU
// is needed, and none of this has been seen by one.

#include <chainmail/error.h>
#include <gmock/gmock.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "ops/core/rendezvous.h"
#include "ops/engine/create_group.h"
#include "plugin/c10d/backend/chainmail_backend.h"
#include "tests/plugin/c10d/device/fake_device.h"

namespace chainmail::internal {
namespace {

using chainmail::testing::fake_tensor;
using chainmail::testing::FakeOutcome;
using chainmail::testing::take_calls;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;

class DevicesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto group = ops::create_group(0, ops::Topology::single_node(2),
                                   std::make_shared<ops::LocalRendezvous>(), ops::GroupOptions{});
    backend_ = c10::make_intrusive<ChainmailBackend>(
        std::move(group), std::make_shared<ops::LocalRendezvous>(), BackendOptions{},
        std::vector<std::uint64_t>{0, 1}, [this](c10::Device device, int number) {
          if (no_cuda_) throw InvalidArgument("there is no CUDA");
          made_.push_back(device.str() + " as " + std::to_string(number));
          return chainmail::testing::make_fake_group(device.index(), outcome_);
        });
    static_cast<void>(take_calls());
  }

  c10::intrusive_ptr<c10d::Work> all_reduce(const at::Tensor& tensor, bool is_async = true) {
    std::vector<at::Tensor> tensors{tensor};
    c10d::AllreduceOptions options;
    options.asyncOp = is_async;
    return backend_->allreduce(tensors, options);
  }

  template <typename Call>
  static std::string error_of(const Call& call) {
    try {
      call();
    } catch (const std::exception& error) {
      return error.what();
    }
    return "no error";
  }

  std::vector<float> memory_ = std::vector<float>(8, 1.0F);
  std::shared_ptr<FakeOutcome> outcome_ = std::make_shared<FakeOutcome>();
  std::vector<std::string> made_;
  bool no_cuda_ = false;
  c10::intrusive_ptr<ChainmailBackend> backend_;
};

TEST_F(DevicesTest, AsynchronousCallsRunOnAStreamOfTheirOwn) {
  const auto work = all_reduce(fake_tensor(memory_));
  const std::vector<std::string> calls = take_calls();
  ASSERT_EQ(calls.size(), 5U);
  EXPECT_THAT(calls[0], MatchesRegex("record e[0-9]+ on s0")) << "what the caller has written";
  const std::string own = calls[1].substr(0, calls[1].find(' '));
  EXPECT_NE(own, "s0");
  EXPECT_EQ(calls[1], own + " waits for " + calls[0].substr(7, calls[0].find(' ', 7) - 7));
  EXPECT_EQ(calls[2], "all_reduce on " + own);
  EXPECT_THAT(calls[3], MatchesRegex("record e[0-9]+ on " + own)) << "the end of the operation";
  EXPECT_THAT(calls[4], MatchesRegex("record e[0-9]+ on " + own)) << "the Future's";
  const std::string end = calls[3].substr(7, calls[3].find(' ', 7) - 7);

  EXPECT_TRUE(work->wait());
  EXPECT_THAT(take_calls(), ElementsAre("s0 waits for " + end)) << "no thread is blocked";
  // The next one is on the same stream.
  all_reduce(fake_tensor(memory_))->wait();
  EXPECT_EQ(take_calls().at(2), "all_reduce on " + own);
}

TEST_F(DevicesTest, OtherCallsRunOnTheCurrentStream) {
  const auto work = all_reduce(fake_tensor(memory_), false);
  EXPECT_THAT(take_calls(),
              ElementsAre("all_reduce on s0", "memory kept for s0", "memory kept for s0"))
      << "the input and the result, which are the same here";
  ASSERT_TRUE(work);
  EXPECT_TRUE(work->wait());
  EXPECT_THAT(take_calls(), IsEmpty());
}

TEST_F(DevicesTest, TensorsAreKeptUntilSomebodyWaits) {
  at::Tensor tensor = fake_tensor(memory_);
  const auto before = tensor.use_count();
  const auto work = all_reduce(tensor);
  EXPECT_GT(tensor.use_count(), before);
  work->wait();
  static_cast<void>(take_calls());
  all_reduce(tensor);  // and nobody waits
  EXPECT_THAT(take_calls(), ::testing::Contains(MatchesRegex("memory kept for s[1-9][0-9]*")));
}

TEST_F(DevicesTest, ALimitBlocksTheHost) {
  outcome_->is_done = false;
  const auto work = all_reduce(fake_tensor(memory_));
  EXPECT_FALSE(work->isCompleted());
  static_cast<void>(take_calls());
  EXPECT_THROW(work->wait(std::chrono::milliseconds{5}), TimeoutError);
  outcome_->is_done = true;
  EXPECT_TRUE(work->wait(std::chrono::milliseconds{5}));
  EXPECT_TRUE(work->isCompleted());
  EXPECT_TRUE(work->isSuccess());
  EXPECT_THAT(take_calls(), ElementsAre("the host waits", "the host waits",
                                        MatchesRegex("s0 waits for e[0-9]+")));
}

TEST_F(DevicesTest, FailuresReachWaitAndLaterCalls) {
  const auto work = all_reduce(fake_tensor(memory_));
  outcome_->error = std::make_exception_ptr(PeerError("rank 1 died", 1));
  EXPECT_THROW(work->wait(), PeerError);
  EXPECT_TRUE(work->isCompleted());
  EXPECT_FALSE(work->isSuccess());
  outcome_->issue_error = outcome_->error;
  EXPECT_THROW(all_reduce(fake_tensor(memory_)), PeerError);
}

TEST_F(DevicesTest, TheFutureIsCompletedAtOnceAndMakesStreamsWait) {
  outcome_->is_done = false;
  at::Tensor tensor = fake_tensor(memory_);
  const auto work = all_reduce(tensor);
  const auto future = work->getFuture();
  EXPECT_TRUE(future->completed());
  static_cast<void>(take_calls());
  future->wait();
  EXPECT_THAT(take_calls(), ::testing::Contains(MatchesRegex("s0 waits for e[0-9]+")));
  EXPECT_TRUE(future->value().toTensorVector().at(0).is_same(tensor));
  c10::StreamId in_callback = 0;
  future->addCallback([&](c10::ivalue::Future&) {
    const c10::Device device(chainmail::testing::kFakeDevice, 0);
    in_callback = c10::impl::VirtualGuardImpl(device.type()).getStream(device).id();
  });
  EXPECT_NE(in_callback, 0) << "callbacks have a stream of their own, ordered after the operation";
}

TEST_F(DevicesTest, EveryDeviceHasItsStreamAndGroup) {
  std::vector<float> other(3, 2.0F);
  all_reduce(fake_tensor(other, 1))->wait();
  const std::string first = take_calls().at(2);
  all_reduce(fake_tensor(memory_, 0))->wait();
  EXPECT_NE(take_calls().at(2), first);
  all_reduce(fake_tensor(other, 1))->wait();
  EXPECT_EQ(take_calls().at(2), first);
  EXPECT_THAT(made_, ElementsAre("privateuseone:1 as 0", "privateuseone:0 as 1"));
  backend_->shutdown();
  EXPECT_THAT(take_calls(), ElementsAre("shutdown of device 0", "shutdown of device 1"));
}

TEST_F(DevicesTest, CoalescedTransfersAreIssuedTogether) {
  std::vector<float> other(8, 0.0F);
  std::vector<at::Tensor> sent{fake_tensor(memory_)};
  std::vector<at::Tensor> received{fake_tensor(other)};
  backend_->startCoalescing();
  backend_->send(sent, 1, 0);
  backend_->recv(received, 1, 0);
  EXPECT_THAT(take_calls(), IsEmpty()) << "a send alone would wait for the peer's";
  const auto work = backend_->endCoalescing();
  EXPECT_THAT(take_calls().at(2), MatchesRegex("send \\+ recv together on s[1-9][0-9]*"));
  EXPECT_TRUE(work->wait());
  all_reduce(sent[0])->wait();  // not coalesced any more
  EXPECT_THAT(take_calls(), ::testing::Contains(MatchesRegex("all_reduce on s[1-9][0-9]*")));

  backend_->startCoalescing();
  all_reduce(sent[0]);
  all_reduce(received[0]);
  EXPECT_TRUE(backend_->endCoalescing()->wait());
}

TEST_F(DevicesTest, TransfersOfTheirOwnHaveAStreamForEachPeerAndDirection) {
  std::vector<at::Tensor> one{fake_tensor(memory_)};
  const auto stream_of = [&](const c10::intrusive_ptr<c10d::Work>& work) {
    EXPECT_TRUE(work->wait());
    const std::string call = take_calls().at(2);  // behind what the caller has written
    return call.substr(call.find(" on "));
  };
  const std::string collectives = stream_of(all_reduce(one[0]));
  const std::string sends = stream_of(backend_->send(one, 1, 0));
  const std::string receives = stream_of(backend_->recv(one, 1, 0));
  EXPECT_NE(sends, collectives);
  EXPECT_NE(receives, collectives);
  EXPECT_NE(receives, sends);
  EXPECT_EQ(stream_of(backend_->send(one, 1, 0)), sends);
  EXPECT_EQ(stream_of(all_reduce(one[0])), collectives);

  backend_->startCoalescing();
  backend_->send(one, 1, 0);
  EXPECT_EQ(stream_of(backend_->endCoalescing()), collectives) << "a batch of one is a batch";
}

TEST_F(DevicesTest, MistakesAreRefused) {
  std::vector<float> other(8, 0.0F);
  std::vector<at::Tensor> two{fake_tensor(memory_, 0), fake_tensor(other, 1)};
  EXPECT_THAT(error_of([&] { backend_->allreduce(two, {}); }),
              HasSubstr("one device, got privateuseone:0 and privateuseone:1"));
  std::vector<at::Tensor> one{fake_tensor(memory_)};
  EXPECT_THAT(error_of([&] { backend_->recvAnysource(one, 0); }), HasSubstr("name the sender"));
  no_cuda_ = true;
  EXPECT_THAT(error_of([&] { all_reduce(one[0]); }),
              HasSubstr("chainmail: allreduce: there is no CUDA"));
  no_cuda_ = false;
  EXPECT_TRUE(all_reduce(one[0])->wait()) << "asking again may succeed";
}

}  // namespace
}  // namespace chainmail::internal
