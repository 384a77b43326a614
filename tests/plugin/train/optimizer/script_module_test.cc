// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// TorchScript's modules, wherever a model is taken.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <torch/script.h>
#include <torch/torch.h>

#include <chainmail/checkpoint.h>
#include <chainmail/nn/allreduce_persistent.h>
#include <chainmail/optimizer.h>
#include <chainmail/train/agreement.h>
#include <chainmail/train/distributed_model.h>
#include <chainmail/train/mean_grad.h>

#include "tests/plugin/checkpoint/faulty_file_system.h"
#include "tests/plugin/support/thread_world.h"

namespace chainmail {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using CommPtr = std::shared_ptr<Communicator>;

// y = (x - mean of the batch) * scale, and the running mean, which it replaces in each forward, as
// Python's `self.mean = ...` does; and a counter, which it changes in place.
torch::jit::Module make_centering(double value) {
  torch::jit::Module module("Centering");
  module.register_attribute("training", c10::BoolType::get(), true);
  module.register_parameter("scale", torch::full({3}, value, torch::requires_grad()),
                            /*is_buffer=*/false);
  module.register_buffer("running_mean", torch::full({3}, value));
  module.register_buffer("batches",
                         torch::full({}, static_cast<std::int64_t>(value), torch::kLong));
  module.define(R"(
    def forward(self, x: Tensor):
      mean = x.detach().mean([0])
      if self.training:
        self.running_mean = self.running_mean * 0.9 + mean * 0.1
        self.batches.add_(1)
        return (x - mean) * self.scale
      return (x - self.running_mean) * self.scale
  )");
  return module;
}

// A linear layer over the one above.
torch::jit::Module make_module(double value) {
  torch::jit::Module net("Net");
  net.register_attribute("training", c10::BoolType::get(), true);
  net.register_module("centering", make_centering(value));
  net.register_parameter("weight",
                         (torch::linspace(-1, 1, 6).view({2, 3}) + value).requires_grad_(true),
                         /*is_buffer=*/false);
  net.define(R"(
    def forward(self, x: Tensor):
      return torch.matmul(self.centering.forward(x), self.weight.t())
  )");
  return net;
}

std::vector<torch::Tensor> parameters_of(const torch::jit::Module& module) {
  return ModuleRef(&module).parameters();
}

std::vector<torch::Tensor> everything_of(const torch::jit::Module& module) {
  std::vector<torch::Tensor> all = parameters_of(module);
  for (const torch::Tensor& buffer : module.buffers()) all.push_back(buffer);
  return all;
}

std::uint64_t digest_of(const torch::jit::Module& module) {
  const torch::NoGradGuard no_grad;
  return digest(everything_of(module));
}

torch::Tensor inputs() { return torch::linspace(-1, 2, 12 * 3).view({12, 3}).sin(); }

torch::Tensor loss_of(torch::jit::Module& module, const torch::Tensor& x) {
  return module.forward({x}).toTensor().square().mean();
}

struct Trainee {
  explicit Trainee(const CommPtr& communicator, double value)
      : comm(communicator), net(make_module(value)) {
    optimizer = create_multi_node_optimizer(
        std::make_unique<torch::optim::Adam>(parameters_of(net), 0.01), comm, {.model = net});
  }
  void train(int count) {
    for (; count > 0; --count) {
      optimizer->zero_grad();
      loss_of(net, inputs().narrow(0, 4 * comm->rank(), 4)).backward();
      optimizer->step();
    }
  }
  CommPtr comm;
  torch::jit::Module net;
  std::unique_ptr<MultiNodeOptimizer> optimizer;
};

std::vector<std::string> names_of(const ModuleRef::NamedTensors& tensors) { return tensors.keys(); }

TEST(ScriptModule, IsTakenInEveryFormThatAProgramHolds) {
  torch::jit::Module module = make_module(1);
  torch::jit::script::Module& script = module;
  const ModuleRef by_value = module;
  for (const ModuleRef& ref : {ModuleRef(&module), ModuleRef(&script), by_value,
                               ModuleRef(std::make_shared<torch::jit::Module>(module))}) {
    EXPECT_TRUE(ref);
    EXPECT_THAT(names_of(ref.named_parameters()), ElementsAre("centering.scale", "weight"));
    EXPECT_THAT(names_of(ref.named_buffers()),
                ElementsAre("centering.running_mean", "centering.batches"));
    EXPECT_TRUE(ref.parameters().back().is_same(module.attr("weight").toTensor()));
    EXPECT_TRUE(ref.is_training());
  }
  module.eval();
  EXPECT_FALSE(by_value.is_training());  // the same module, not a copy
  EXPECT_FALSE(ModuleRef(std::shared_ptr<torch::jit::Module>()));
  EXPECT_FALSE(ModuleRef(static_cast<torch::jit::Module*>(nullptr)));
  EXPECT_TRUE(ModuleRef().named_parameters().is_empty());

  const torch::Tensor weight = module.attr("weight").toTensor();
  weight.mutable_grad() = torch::ones({2, 3});
  by_value.zero_grad(/*set_to_none=*/false);
  EXPECT_EQ(weight.grad().abs().sum().item<float>(), 0);
  by_value.zero_grad(/*set_to_none=*/true);
  EXPECT_FALSE(weight.grad().defined());
}

TEST(ScriptModule, TrainsToEqualParametersAndBuffers) {
  for (const std::vector<int>& shape : {std::vector<int>{2}, std::vector<int>{2, 1}}) {
    testing::with_communicator(shape, "hierarchical", {}, [](const CommPtr& comm) {
      // Other parameters, buffers and counters on each rank: all become those of rank 0.
      Trainee trainee(comm, comm->rank() + 1);
      EXPECT_EQ(digest_of(trainee.net), digest_of(make_module(1)));
      trainee.train(5);
      EXPECT_NO_THROW(verify_equal(*comm, parameters_of(trainee.net)));
      const auto centering = trainee.net.attr("centering").toModule();
      EXPECT_EQ(centering.attr("batches").toTensor().item<std::int64_t>(), 6);
      // Each rank has seen its own samples.
      const torch::NoGradGuard no_grad;
      const torch::Tensor own = centering.attr("running_mean").toTensor();
      torch::Tensor mean = own.clone();
      comm->allreduce_mean(mean);
      EXPECT_FALSE(torch::equal(own, mean));
      AllreducePersistent average(&trainee.net, comm);
      average();
      EXPECT_NO_THROW(verify_equal(*comm, everything_of(trainee.net)));
      EXPECT_TRUE(torch::allclose(centering.attr("running_mean").toTensor(), mean));
      // And from rank 0 again, after a change on one rank.
      if (comm->rank() == comm->size() - 1) centering.attr("batches").toTensor().fill_(77);
      trainee.optimizer->synchronize();
      EXPECT_NO_THROW(verify_equal(*comm, everything_of(trainee.net)));
      EXPECT_EQ(centering.attr("batches").toTensor().item<std::int64_t>(), 6);
    });
  }
}

// Two ranks with equal halves of a batch, without the part that sees the whole of it.
TEST(ScriptModule, TrainsAsOneProcessWithTheWholeBatch) {
  testing::with_communicator({2}, "flat", {}, [](const CommPtr& comm) {
    const auto make = [](double value) {
      torch::jit::Module net("Plain");
      net.register_attribute("training", c10::BoolType::get(), true);
      net.register_parameter("weight", torch::full({2, 3}, value, torch::requires_grad()), false);
      net.define(R"(
        def forward(self, x: Tensor):
          return torch.tanh(torch.matmul(x, self.weight.t()))
      )");
      return net;
    };
    torch::jit::Module net = make(comm->rank());
    DistributedModel model(net, comm);
    EXPECT_TRUE(model->hasattr("weight"));
    model.eval();
    EXPECT_FALSE(net.is_training());
    model.train();
    EXPECT_TRUE(net.is_training());
    torch::optim::SGD optimizer(model.parameters(), 0.5);
    torch::jit::Module alone = make(0);
    torch::optim::SGD plain(parameters_of(alone), 0.5);
    const auto distance = [](const torch::Tensor& y) { return (y - 1).square().mean(); };
    for (int step = 0; step < 5; ++step) {
      const torch::Tensor x = inputs().narrow(0, 6 * comm->rank(), 6);
      optimizer.zero_grad();
      // As with modules of torch::nn, and as with TorchScript's own.
      distance((step % 2 == 0 ? model(x) : model.forward({x})).toTensor()).backward();
      optimizer.step();
      plain.zero_grad();
      distance(alone.forward({inputs()}).toTensor()).backward();
      plain.step();
    }
    EXPECT_TRUE(torch::allclose(net.attr("weight").toTensor(), alone.attr("weight").toTensor()));
    EXPECT_NO_THROW(verify_equal(*comm, parameters_of(net)));
  });
}

TEST(ScriptModule, IsSavedAndResumedBitExactly) {
  const testing::ScratchFolder scratch;
  const auto checkpointer_of = [&](Trainee& trainee) {
    auto checkpointer =
        create_multi_node_checkpointer("run", trainee.comm, {.path = scratch.path()});
    checkpointer->add("model", trainee.net);
    checkpointer->add("optimizer", *trainee.optimizer);
    return checkpointer;
  };
  std::vector<std::uint64_t> straight(2);
  testing::with_communicator({2}, "flat", {}, [&](const CommPtr& comm) {
    Trainee trainee(comm, 1);
    const auto checkpointer = checkpointer_of(trainee);
    trainee.train(3);
    checkpointer->save(3);
    trainee.train(2);
    straight[static_cast<std::size_t>(comm->rank())] = digest_of(trainee.net);
    checkpointer->wait();
  });
  EXPECT_NE(straight[0], straight[1]);  // running means
  testing::with_communicator({2}, "flat", {}, [&](const CommPtr& comm) {
    Trainee trainee(comm, 5);
    const auto checkpointer = checkpointer_of(trainee);
    EXPECT_EQ(checkpointer->maybe_load(), std::optional<std::int64_t>(3));
    trainee.train(2);
    EXPECT_EQ(digest_of(trainee.net), straight[static_cast<std::size_t>(comm->rank())]);
  });
  testing::with_communicator({3}, "flat", {}, [&](const CommPtr& comm) {
    Trainee trainee(comm, 5);
    EXPECT_EQ(checkpointer_of(trainee)->maybe_load(), std::optional<std::int64_t>(3));
    EXPECT_NO_THROW(verify_equal(*comm, parameters_of(trainee.net)));
  });
}

// In the forward that comes between the exchange of its mean and its use.
TEST(ScriptModule, BuffersThatAreReplacedWhileTheirMeanTravels) {
  testing::with_communicator({1, 1}, "hierarchical", {}, [](const CommPtr& comm) {
    torch::jit::Module net = make_module(1);
    const auto optimizer = create_multi_node_optimizer(
        std::make_unique<torch::optim::SGD>(parameters_of(net), 0.01), comm,
        {.model = net, .local_steps = {{.steps = 4, .fragments = 2, .delay = 1}}});
    const auto mean = [&] {
      return net.attr("centering").toModule().attr("running_mean").toTensor();
    };
    std::vector<torch::Tensor> sent;
    for (int step = 1; step <= 5; ++step) {
      optimizer->zero_grad();
      loss_of(net, inputs().narrow(0, 4 * comm->rank(), 4)).backward();
      optimizer->step();
      if (step == 4) sent = {mean().clone()};
    }
    comm->allreduce_mean(sent);
    EXPECT_TRUE(torch::allclose(mean(), sent[0])) << mean() << sent[0];
    verify_equal(*comm, {mean()});
  });
}

TEST(ScriptModule, BroadcastAndMeanWithoutAnOptimizer) {
  testing::with_communicator({2}, "flat", {}, [](const CommPtr& comm) {
    torch::jit::Module net = make_module(comm->rank() + 1);
    bcast_data(*comm, &net);
    EXPECT_EQ(digest_of(net), digest_of(make_module(1)));
    const torch::Tensor weight = net.attr("weight").toTensor();
    weight.mutable_grad() = torch::full({2, 3}, 2.0 * comm->rank());
    multi_node_mean_grad(*comm, &net);
    EXPECT_TRUE(weight.grad().eq(1).all().item<bool>());
  });
}

TEST(ScriptModule, AnotherModelOnOneRankIsNamed) {
  const auto errors = testing::errors_with_communicator({2}, "flat", [](const CommPtr& comm) {
    torch::jit::Module net = make_module(1);
    if (comm->rank() == 1) {
      net.register_buffer("more", torch::zeros({2}));
    }
    (void)create_multi_node_optimizer(std::make_unique<torch::optim::SGD>(parameters_of(net), 0.1),
                                      comm, {.model = &net});
  });
  EXPECT_THAT(errors, ::testing::Each(HasSubstr("buffer more [2]")));
}

}  // namespace
}  // namespace chainmail
