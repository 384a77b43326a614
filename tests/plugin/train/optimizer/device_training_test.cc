// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Training with parameters on an accelerator: what is queued on which stream, and what waits for
// what. On a device that only writes down what is asked of it and whose operators are the CPU's; no
// GPU has seen any of this. There is one rank, so means are its own gradients.

#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <memory>
#include <regex>
#include <string>
#include <vector>

#include <torch/torch.h>

#include <chainmail/optimizer.h>
#include <chainmail/train/agreement.h>

#include "plugin/train/communicator/communicator_impl.h"
#include "tests/plugin/c10d/device/fake_device.h"
#include "tests/plugin/c10d/device/fake_kernels.h"
#include "tests/plugin/support/thread_world.h"

namespace chainmail {
namespace {

using testing::as_cpu_tensor;
using ::testing::ElementsAre;
using testing::FakeOutcome;
using ::testing::HasSubstr;
using testing::on_fake_device;
using testing::take_calls;
using CommPtr = std::shared_ptr<Communicator>;
using Body = std::function<void(const CommPtr&, FakeOutcome&)>;

constexpr double kRate = 0.5;

// A communicator of one rank whose GPUs are fake ones.
void with_fake_gpus(const std::string& name, const Body& body) {
  testing::with_communicator({1}, name, {}, [&](const CommPtr& comm) {
    const auto outcome = std::make_shared<FakeOutcome>();
    comm->impl().device_contexts =
        std::make_unique<internal::DeviceContexts>([&](c10::Device device, int /*number*/) {
          return testing::make_fake_group(device.index(), outcome);
        });
    static_cast<void>(take_calls());
    body(comm, *outcome);
  });
}

torch::Tensor weight_of(double value) {
  return on_fake_device(torch::full({3}, value, torch::kFloat)).requires_grad_();
}

std::unique_ptr<MultiNodeOptimizer> sgd_of(const std::vector<torch::Tensor>& weights,
                                           const CommPtr& comm, MultiNodeOptimizerOptions options) {
  return create_multi_node_optimizer(std::make_unique<torch::optim::SGD>(weights, kRate), comm,
                                     std::move(options));
}

double first_of(const torch::Tensor& weight) {
  return as_cpu_tensor(weight.detach()).index({0}).item<double>();
}

// The calls since the last time that are about collectives, with the context's stream as "context"
// and events numbered in the order in which they appear.
std::vector<std::string> take_plain_calls() {
  std::vector<std::string> events;
  std::vector<std::string> plain;
  for (std::string call : take_calls()) {
    std::smatch match;
    if (std::regex_search(call, match, std::regex("e[0-9]+\\b"))) {
      const std::string event = match.str();
      auto found = std::find(events.begin(), events.end(), event);
      if (found == events.end()) found = events.insert(events.end(), event);
      call.replace(static_cast<std::size_t>(match.position()), event.size(),
                   "event " + std::to_string(found - events.begin()));
    }
    plain.push_back(std::regex_replace(call, std::regex("\\bs[1-9][0-9]*\\b"), "context"));
  }
  return plain;
}

TEST(DeviceTraining, BucketsLieInMemoryOfTheGroup) {
  with_fake_gpus("flat", [](const CommPtr& comm, FakeOutcome&) {
    const auto weight = weight_of(2);
    const auto optimizer = sgd_of({weight}, comm, {.overlap = false});
    EXPECT_THAT(take_plain_calls(), ElementsAre("prepare all_reduce", "allocate"));
    weight.square().sum().backward();
    EXPECT_THAT(take_plain_calls(), ElementsAre("all_reduce on s0"))
        << "nothing to overlap with: in order with the rest";
    const auto bucket = weight.grad().data_ptr();
    EXPECT_TRUE(optimizer->step().is_applied);
    EXPECT_DOUBLE_EQ(first_of(weight), 2 - kRate * 4);
    optimizer->zero_grad(false);
    weight.square().sum().backward();
    EXPECT_EQ(weight.grad().data_ptr(), bucket) << "autograd adds to it in place";
    optimizer->step();
    EXPECT_DOUBLE_EQ(first_of(weight), 0);
  });
}

TEST(DeviceTraining, BucketsStartWhileBackwardGoesOn) {
  with_fake_gpus("flat", [](const CommPtr& comm, FakeOutcome&) {
    const auto near = weight_of(1);
    const auto far = weight_of(3);
    const auto optimizer =
        sgd_of({far, near}, comm, {.overlap = true, .bucket_bytes = 8, .first_bucket_bytes = 8});
    static_cast<void>(take_calls());
    (far.square() * near).sum().backward();
    EXPECT_THAT(
        take_plain_calls(),
        ElementsAre("record event 0 on s0", "context waits for event 0", "all_reduce on context",
                    "record event 1 on context",  // the end of the first bucket
                    "record event 2 on s0", "context waits for event 2", "all_reduce on context",
                    "record event 3 on context",  // and of the second
                    "s0 waits for event 1", "s0 waits for event 3"))
        << "the host waits for nothing";
    optimizer->step();
    EXPECT_DOUBLE_EQ(first_of(near), 1 - kRate * 9);
    EXPECT_DOUBLE_EQ(first_of(far), 3 - kRate * 6);
  });
}

TEST(DeviceTraining, DoubleBufferingWaitsForTheStepBefore) {
  with_fake_gpus("flat", [](const CommPtr& comm, FakeOutcome&) {
    const auto weight = weight_of(2);
    const auto optimizer = sgd_of({weight}, comm, {.overlap = false, .double_buffering = true});
    EXPECT_THAT(take_plain_calls(),
                ElementsAre("prepare all_reduce", "allocate", "prepare all_reduce", "allocate"));
    weight.square().sum().backward();
    EXPECT_THAT(take_plain_calls(),
                ElementsAre("record event 0 on s0", "context waits for event 0",
                            "all_reduce on context", "record event 1 on context"))
        << "nobody waits for the first mean yet";
    EXPECT_FALSE(optimizer->step().is_applied);
    optimizer->zero_grad();
    std::vector<std::string> calls = take_calls();
    (weight.square() * 2).sum().backward();
    calls = take_plain_calls();
    ASSERT_EQ(calls.size(), 5U);
    EXPECT_EQ(calls[2], "all_reduce on context") << "the second one is queued first";
    EXPECT_EQ(calls[4], "s0 waits for event 2") << "and then the first one, not this one, awaited";
    EXPECT_TRUE(optimizer->step().is_applied);
    EXPECT_DOUBLE_EQ(first_of(weight), 2 - kRate * 4);
    EXPECT_TRUE(optimizer->flush());
    EXPECT_DOUBLE_EQ(first_of(weight), 0 - kRate * 8);
  });
}

TEST(DeviceTraining, MissingGradientsAreToldOnTheDevice) {
  with_fake_gpus("flat", [](const CommPtr& comm, FakeOutcome&) {
    const auto used = weight_of(1);
    const auto unused = weight_of(5);
    const auto optimizer = sgd_of({used, unused}, comm, {});
    used.square().sum().backward();
    optimizer->step();
    EXPECT_FALSE(unused.grad().defined()) << "no rank has one";
    EXPECT_DOUBLE_EQ(first_of(used), 1 - kRate * 2);
    EXPECT_DOUBLE_EQ(first_of(unused), 5);
  });
}

TEST(DeviceTraining, FailuresReachTheCallerOfBackward) {
  with_fake_gpus("flat", [](const CommPtr& comm, FakeOutcome& outcome) {
    const auto weight = weight_of(2);
    const auto optimizer = sgd_of({weight}, comm, {.overlap = true});
    outcome.issue_error = std::make_exception_ptr(PeerError("rank 1 died", 1));
    EXPECT_THROW(weight.square().sum().backward(), PeerError);
  });
  with_fake_gpus("flat", [](const CommPtr& comm, FakeOutcome& outcome) {
    const auto weight = weight_of(2);
    const auto optimizer = sgd_of({weight}, comm, {.overlap = true});
    outcome.error = std::make_exception_ptr(PeerError("rank 1 died", 1));
    EXPECT_THROW(weight.square().sum().backward(), PeerError) << "on the device meanwhile";
  });
}

TEST(DeviceTraining, MemoryIsFreedWhenTheDeviceIsDone) {
  with_fake_gpus("flat", [](const CommPtr& comm, FakeOutcome&) {
    auto weight = weight_of(2);
    auto optimizer = sgd_of({weight}, comm, {.overlap = false});
    weight.square().sum().backward();
    static_cast<void>(take_calls());
    optimizer.reset();
    EXPECT_THAT(take_calls(), ElementsAre()) << "the gradient still lies there";
    weight.mutable_grad().reset();
    EXPECT_THAT(take_calls(), ElementsAre("the host waits for device 0"));
  });
}

TEST(DeviceTraining, ListsOfTensorsAreReducedInOrderWithTheCaller) {
  with_fake_gpus("flat", [](const CommPtr& comm, FakeOutcome&) {
    const std::vector<torch::Tensor> tensors = {on_fake_device(torch::ones({2})),
                                                on_fake_device(torch::ones({3}))};
    comm->allreduce_mean(tensors);
    comm->allreduce(tensors[0]);
    EXPECT_THAT(take_calls(), ElementsAre("all_reduce on s0", "all_reduce on s0"));
    comm->bcast(tensors);
    EXPECT_EQ(digest(tensors), digest({torch::ones({2}), torch::ones({3})}));
    EXPECT_THROW(comm->allreduce({tensors[0], torch::ones({3})}), InvalidArgument);
  });
}

// By torch's own clipping, and once.
TEST(DeviceTraining, GradientsAreClippedAsOnTheCpu) {
  for (const double gradient : {4.0, std::numeric_limits<double>::infinity()}) {
    with_fake_gpus("flat", [&](const CommPtr& comm, FakeOutcome&) {
      const auto large = weight_of(1);
      const auto small = weight_of(1);
      const torch::Tensor on_cpu_large = as_cpu_tensor(large.detach()).clone().requires_grad_();
      const torch::Tensor on_cpu_small = as_cpu_tensor(small.detach()).clone().requires_grad_();
      const auto optimizer = sgd_of({large, small}, comm, {.max_grad_norm = 0.5});
      const auto on_cpu = sgd_of({on_cpu_large, on_cpu_small}, comm, {.max_grad_norm = 0.5});
      large.mutable_grad() = on_fake_device(torch::full({3}, gradient, torch::kFloat));
      small.mutable_grad() = on_fake_device(torch::full({3}, 3.0, torch::kFloat));
      on_cpu_large.mutable_grad() = torch::full({3}, gradient, torch::kFloat);
      on_cpu_small.mutable_grad() = torch::full({3}, 3.0, torch::kFloat);
      EXPECT_FLOAT_EQ(static_cast<float>(optimizer->step().grad_norm),
                      static_cast<float>(on_cpu->step().grad_norm));
      EXPECT_FLOAT_EQ(static_cast<float>(first_of(small)), on_cpu_small[0].item<float>());
      EXPECT_TRUE(std::isfinite(first_of(small)));
    });
  }
}

TEST(DeviceTraining, MistakesAreRefused) {
  with_fake_gpus("flat", [](const CommPtr& comm, FakeOutcome&) {
    const auto here = torch::ones({3}).requires_grad_();
    try {
      static_cast<void>(sgd_of({weight_of(1), here}, comm, {}));
      FAIL();
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(), HasSubstr("is on cpu and 'param_groups[0][0]' on "));
    }
  });
  testing::with_communicator({1}, "flat", {}, [&](const CommPtr& comm) {
    EXPECT_THROW(static_cast<void>(sgd_of({weight_of(1)}, comm, {})), InvalidArgument)
        << "a device that is no CUDA device";
    comm->impl().name = "pure_nccl";
    const auto here = torch::ones({3}).requires_grad_();
    EXPECT_THROW(static_cast<void>(sgd_of({here}, comm, {})), InvalidArgument);
    comm->impl().name = "gloo";
    EXPECT_THROW(comm->allreduce(weight_of(1).detach()), InvalidArgument);
  });
}

// One GPU per rank; the message is that about GPUs, not that ranks differ.
TEST(DeviceTraining, AWireThatMeasuresIsRefusedOnAllRanks) {
  testing::with_communicator({1, 1}, "flat", {}, [](const CommPtr& comm) {
    const auto weight =
        on_fake_device(torch::ones({3}), static_cast<int>(comm->rank())).requires_grad_();
    EXPECT_THAT([&] { static_cast<void>(sgd_of({weight}, comm, {.wire = "auto"})); },
                ::testing::ThrowsMessage<InvalidArgument>(HasSubstr("is not measured")));
    comm->barrier();
  });
}

// Also on those that have nothing to mend.
TEST(DeviceTraining, ParametersOnSeveralDevicesAreRefusedOnAllRanks) {
  testing::with_communicator({1, 1}, "flat", {}, [](const CommPtr& comm) {
    const auto here = torch::ones({3}).requires_grad_();
    const auto other = comm->rank() == 0 ? torch::ones({3}).requires_grad_() : weight_of(1);
    EXPECT_THAT(
        [&] {
          static_cast<void>(sgd_of({here, other}, comm, {}));
        },
        ::testing::ThrowsMessage<MismatchError>(HasSubstr("several devices")));
  });
}

// What is refused in the middle of a training changes nothing: what is owed stays owed.
TEST(DeviceTraining, AParameterThatCannotBeRoundedIsRefusedBeforeAnythingChanges) {
  for (const bool is_on_gpu : {true, false}) {
    testing::with_communicator({1, 1}, "flat", {}, [&](const CommPtr& comm) {
      torch::Tensor matrix = torch::zeros({90, 100}).requires_grad_();
      const torch::Tensor factor = torch::sin(torch::arange(9000, torch::kFloat)).view({90, 100});
      const auto optimizer = create_multi_node_optimizer(
          std::make_unique<torch::optim::SGD>(std::vector{matrix}, 1.0), comm, {.wire = "int4"});
      const auto step = [&](double size) {
        optimizer->zero_grad();
        ((matrix * factor).sum() * size).backward();
        optimizer->step();
      };
      for (int i = 0; i < 9; ++i) step(1);
      // Of float64 it would not be rounded, but a rank trains on one device.
      const auto added = on_fake_device(torch::ones({40, 40})).requires_grad_();
      std::vector<torch::Tensor>& all =
          optimizer->actual_optimizer().param_groups().front().params();
      all.push_back(is_on_gpu ? added : torch::ones({4}).requires_grad_());
      if (is_on_gpu) {
        for (int i = 0; i < 2; ++i) {
          EXPECT_THAT([&] { step(1); },
                      ::testing::ThrowsMessage<InvalidArgument>(HasSubstr("is for CPUs")));
          optimizer->zero_grad();
        }
        all.pop_back();
      }
      for (int i = 0; i < 20; ++i) step(0);
      const torch::Tensor error = (matrix.detach() + 9 * factor).abs().max();
      EXPECT_LE(error.item<double>(), 1e-4);
    });
  }
}

}  // namespace
}  // namespace chainmail
