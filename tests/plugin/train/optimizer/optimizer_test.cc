// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <torch/torch.h>

#include <chainmail/optimizer.h>
#include <chainmail/train/agreement.h>

#include "tests/plugin/support/thread_world.h"
#include "tests/plugin/support/weights.h"

namespace chainmail {
namespace {

namespace nn = torch::nn;
namespace optim = torch::optim;
using ::testing::HasSubstr;
using CommPtr = std::shared_ptr<Communicator>;

const std::vector<std::string> kOfSeveralNodes = {"naive", "flat", "hierarchical",
                                                  "two_dimensional"};

struct NetImpl : nn::Module {
  NetImpl()
      : a(register_module("a", nn::Linear(3, 4))),
        norm(register_module("norm", nn::BatchNorm1d(4))),
        b(register_module("b", nn::Linear(4, 2))),
        spare(register_module("spare", nn::Linear(2, 2))) {}
  torch::Tensor forward(const torch::Tensor& x) { return b(norm(a(x))); }
  nn::Linear a;
  nn::BatchNorm1d norm;
  nn::Linear b;
  nn::Linear spare;
};
TORCH_MODULE(Net);

std::vector<torch::Tensor> copies(const std::vector<torch::Tensor>& tensors) {
  std::vector<torch::Tensor> result;
  for (const torch::Tensor& tensor : tensors) result.push_back(tensor.detach().clone());
  return result;
}

TEST(MultiNodeOptimizer, LbfgsIsRefused) {
  testing::with_communicator({2}, "flat", {}, [](const CommPtr& comm) {
    const nn::Linear model(2, 2);
    try {
      (void)create_multi_node_optimizer(std::make_unique<optim::LBFGS>(model->parameters()), comm);
      ADD_FAILURE() << "wrapped";
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(), HasSubstr("loss averaged over the ranks"));
    }
    comm->barrier();  // nothing was sent
  });
}

TEST(MultiNodeOptimizer, BroadcastsParametersAndBuffers) {
  for (const std::string& name : kOfSeveralNodes) {
    testing::with_communicator({2, 1}, name, {}, [](const CommPtr& comm) {
      Net model;
      testing::fill(*model, comm->rank());
      model->norm->running_mean.fill_(comm->rank() + 5);
      model->norm->num_batches_tracked.fill_(comm->rank() + 7);
      const auto optimizer = create_multi_node_optimizer(
          std::make_unique<optim::SGD>(model->parameters(), 0.1), comm, {.model = &model});
      Net expected;
      testing::fill(*expected, 0);
      for (std::size_t i = 0; i < expected->parameters().size(); ++i) {
        EXPECT_TRUE(torch::equal(model->parameters()[i], expected->parameters()[i]));
      }
      EXPECT_TRUE(model->norm->running_mean.eq(5).all().item<bool>());
      EXPECT_EQ(model->norm->num_batches_tracked.item<std::int64_t>(), 7);
    });
  }
}

// The state after some steps exists on `with_state` only; afterwards all ranks must go on alike.
template <typename Optimizer, typename OptimizerOptions>
void check_state_broadcast(const OptimizerOptions& options, int with_state) {
  testing::with_communicator({3}, "flat", {}, [&](const CommPtr& comm) {
    nn::Linear model(3, 2);
    testing::fill(*model, comm->rank());
    auto actual = std::make_unique<Optimizer>(model->parameters(), options);
    const auto local_step = [&] {
      actual->zero_grad();
      model->forward(torch::full({1, 3}, 1.0 + comm->rank())).sum().backward();
      actual->step();
    };
    if (comm->rank() == with_state || with_state < 0) {
      local_step();
      local_step();
    }
    // What rank 0 alone would do next, with a gradient of ones.
    std::vector<torch::Tensor> expected;
    const auto unit_step = [&](optim::Optimizer& optimizer) {
      for (torch::Tensor& parameter : model->parameters()) {
        parameter.mutable_grad() = torch::ones_like(parameter);
      }
      optimizer.step();
    };
    auto optimizer = create_multi_node_optimizer(std::move(actual), comm, {.model = &model});
    unit_step(optimizer->actual_optimizer());
    EXPECT_NO_THROW(verify_equal(*comm, model->parameters()));
    EXPECT_EQ(
        comm->allgather_obj(std::to_string(optimizer->actual_optimizer().state().size())),
        std::vector<std::string>(3, std::to_string(optimizer->actual_optimizer().state().size())));
  });
}

TEST(MultiNodeOptimizer, BroadcastsOptimizerState) {
  for (const int with_state : {-1, 0, 2}) {
    SCOPED_TRACE(with_state);
    check_state_broadcast<optim::Adam>(optim::AdamOptions(0.1).amsgrad(true), with_state);
    check_state_broadcast<optim::AdamW>(optim::AdamWOptions(0.1), with_state);
    check_state_broadcast<optim::SGD>(optim::SGDOptions(0.1).momentum(0.9), with_state);
    check_state_broadcast<optim::RMSprop>(optim::RMSpropOptions(0.1).momentum(0.5).centered(true),
                                          with_state);
    check_state_broadcast<optim::Adagrad>(optim::AdagradOptions(0.1), with_state);
  }
}

TEST(MultiNodeOptimizer, ResumedStateOfRankZeroIsUsedByAll) {
  testing::with_communicator({2}, "flat", {}, [](const CommPtr& comm) {
    nn::Linear model(2, 1);
    testing::fill(*model, 0);
    auto adam = std::make_unique<optim::Adam>(model->parameters(), comm->rank() == 0 ? 0.5 : 0.001);
    const auto optimizer = create_multi_node_optimizer(std::move(adam), comm, {.model = &model});
    EXPECT_EQ(optimizer->actual_optimizer().param_groups()[0].options().get_lr(), 0.5);
  });
}

TEST(MultiNodeOptimizer, AveragesWithoutLosingTheFirstGradient) {
  for (const std::string& name : kOfSeveralNodes) {
    testing::with_communicator({2, 2}, name, {}, [](const CommPtr& comm) {
      nn::Linear model(3, 2);
      testing::fill(*model, 0);
      const auto before = copies(model->parameters());
      auto optimizer = create_multi_node_optimizer(
          std::make_unique<optim::SGD>(model->parameters(), 1.0), comm, {.model = &model});
      for (int step = 1; step <= 3; ++step) {
        optimizer->zero_grad(step != 2);  // dropped, or set to zero in place
        (model->forward(torch::ones({1, 3})).sum() * comm->rank()).backward();
        optimizer->step();
        for (std::size_t i = 0; i < before.size(); ++i) {
          EXPECT_TRUE(torch::allclose(model->parameters()[i], before[i] - 1.5 * step)) << step;
        }
      }
    });
  }
}

TEST(MultiNodeOptimizer, NonContiguousAndChannelsLastGradients) {
  for (const std::string& name : kOfSeveralNodes) {
    testing::with_communicator({3}, name, {}, [](const CommPtr& comm) {
      const auto transposed = torch::zeros({2, 3}, torch::requires_grad());
      const auto channels =
          torch::zeros({2, 3, 2, 2}).contiguous(at::MemoryFormat::ChannelsLast).requires_grad_();
      auto optimizer = create_multi_node_optimizer(
          std::make_unique<optim::SGD>(std::vector<torch::Tensor>{transposed, channels}, 1.0),
          comm);
      const auto values = torch::arange(6, torch::kFloat).view({3, 2});
      transposed.mutable_grad() = (values * comm->rank()).t();
      channels.mutable_grad() = torch::full({2, 3, 2, 2}, comm->rank(), torch::kFloat);
      ASSERT_FALSE(transposed.grad().is_contiguous());
      optimizer->step();
      EXPECT_TRUE(torch::allclose(transposed, -values.t()));
      EXPECT_TRUE(channels.eq(-1).all().item<bool>());
      EXPECT_TRUE(channels.grad().is_contiguous(at::MemoryFormat::ChannelsLast) ||
                  comm->name() == "naive");
    });
  }
}

TEST(MultiNodeOptimizer, SparseGradientsBecomeDense) {
  for (const std::string& name : kOfSeveralNodes) {
    testing::with_communicator({2}, name, {}, [](const CommPtr& comm) {
      nn::Embedding model(nn::EmbeddingOptions(4, 2).sparse(true));
      testing::fill(*model, 0);
      const auto before = copies(model->parameters());
      auto optimizer = create_multi_node_optimizer(
          std::make_unique<optim::SGD>(model->parameters(), 1.0), comm, {.model = &model});
      model->forward(torch::full({1}, comm->rank(), torch::kLong)).sum().backward();
      EXPECT_FALSE(model->weight.grad().is_sparse());
      optimizer->step();
      auto expected = torch::zeros({4, 2});
      expected.narrow(0, 0, 2).fill_(0.5);
      EXPECT_TRUE(torch::allclose(before[0] - model->weight, expected));
    });
  }
}

TEST(MultiNodeOptimizer, UnusedParametersAreZeroFilledOrStayUndefined) {
  for (const std::string& name : kOfSeveralNodes) {
    testing::with_communicator({4}, name, {}, [](const CommPtr& comm) {
      Net model;
      testing::fill(*model, 0);
      auto optimizer = create_multi_node_optimizer(
          std::make_unique<optim::SGD>(model->parameters(), 1.0), comm, {.model = &model});
      // `b` has no gradient on odd ranks, `spare` nowhere.
      const bool is_even = comm->rank() % 2 == 0;
      for (auto& item : model->named_parameters()) {
        if (item.key().rfind("spare", 0) != 0 && (is_even || item.key().rfind("b.", 0) != 0)) {
          item.value().mutable_grad() = torch::full_like(item.value(), comm->rank() + 2);
        }
      }
      optimizer->allreduce_grad();
      EXPECT_FALSE(model->spare->weight.grad().defined());
      EXPECT_TRUE(model->a->weight.grad().eq((2 + 3 + 4 + 5) / 4.0).all().item<bool>());
      ASSERT_TRUE(model->b->weight.grad().defined());
      EXPECT_TRUE(model->b->weight.grad().eq((2 + 4) / 4.0).all().item<bool>());
    });
  }
}

TEST(MultiNodeOptimizer, AGradientOfAnotherDtypeIsConverted) {
  for (const std::string& name : kOfSeveralNodes) {
    testing::with_communicator({2, 1}, name, {}, [](const CommPtr& comm) {
      nn::Linear model(3, 4);
      auto optimizer = create_multi_node_optimizer(
          std::make_unique<optim::SGD>(model->parameters(), 1.0), comm, {.model = &model});
      const auto dtype = comm->rank() == 1 ? torch::kDouble : torch::kFloat;
      model->weight.mutable_grad() = torch::full({4, 3}, comm->rank() + 1.0, dtype);
      model->bias.mutable_grad() = torch::full({4}, comm->rank() + 4.0, torch::kHalf);
      optimizer->allreduce_grad();
      EXPECT_EQ(model->weight.grad().scalar_type(), torch::kFloat);
      EXPECT_TRUE(model->weight.grad().eq(2).all().item<bool>());
      EXPECT_EQ(model->bias.grad().scalar_type(), torch::kFloat);
      EXPECT_TRUE(model->bias.grad().eq(5).all().item<bool>());
    });
  }
}

TEST(MultiNodeOptimizer, AGradientOfAnotherShapeIsRefused) {
  for (const std::string& name : kOfSeveralNodes) {
    const auto errors = testing::errors_with_communicator({2, 1}, name, [](const CommPtr& comm) {
      nn::Linear model(3, 4);
      auto optimizer = create_multi_node_optimizer(
          std::make_unique<optim::SGD>(model->parameters(), 1.0), comm, {.model = &model});
      model->bias.mutable_grad() = torch::ones({1});
      optimizer->allreduce_grad();
    });
    for (const std::string& error : errors) {
      EXPECT_THAT(error, HasSubstr("'bias' has the shape [1], the parameter [4]")) << name;
    }
  }
}

TEST(MultiNodeOptimizer, WithoutZeroFillADifferenceIsAMismatchOnAllRanks) {
  for (const std::string& name : kOfSeveralNodes) {
    const auto errors = testing::errors_with_communicator({2, 1}, name, [](const CommPtr& comm) {
      Net model;
      auto optimizer =
          create_multi_node_optimizer(std::make_unique<optim::SGD>(model->parameters(), 1.0), comm,
                                      {.model = &model, .zero_fill = false});
      for (auto& item : model->named_parameters()) {
        if (item.key() == "a.weight" || (comm->rank() != 1 && item.key() == "b.bias")) {
          item.value().mutable_grad() = torch::ones_like(item.value());
        }
      }
      optimizer->step();
    });
    for (const std::string& error : errors) {
      EXPECT_THAT(error, HasSubstr("'b.bias' has a gradient on ranks 0, 2 and none on rank 1"))
          << name;
    }
  }
}

TEST(MultiNodeOptimizer, WithoutZeroFillUnusedEverywhereIsFine) {
  for (const std::string& name : kOfSeveralNodes) {
    testing::with_communicator({2}, name, {}, [](const CommPtr& comm) {
      Net model;
      auto optimizer =
          create_multi_node_optimizer(std::make_unique<optim::Adam>(model->parameters(), 1.0), comm,
                                      {.model = &model, .zero_fill = false});
      model->forward(torch::rand({5, 3})).sum().backward();
      optimizer->step();
      EXPECT_FALSE(model->spare->weight.grad().defined());
      EXPECT_NO_THROW(verify_equal(*comm, model->parameters()));
    });
  }
}

TEST(MultiNodeOptimizer, DifferentModelsAreAMismatchOnAllRanks) {
  struct Case {
    std::function<std::vector<nn::Linear>(int)> layers;
    std::string expected;
  };
  const std::vector<Case> cases = {
      {[](int rank) { return std::vector<nn::Linear>{nn::Linear(3, rank == 2 ? 5 : 4)}; },
       "rank 0 on host0 has 'parameter 0.weight [4, 3] Float', rank 2 on host1 has 'parameter "
       "0.weight [5, 3] Float'"},
      {[](int rank) {
         std::vector<nn::Linear> layers{nn::Linear(3, 4)};
         if (rank == 1) layers.emplace_back(4, 4);
         return layers;
       },
       "rank 1 on host0 has 'parameter 1.weight [4, 4] Float'"},
      {[](int rank) {
         nn::Linear layer(3, 4);
         layer->to(rank == 1 ? torch::kDouble : torch::kFloat);
         return std::vector<nn::Linear>{layer};
       },
       "[4, 3] Double"}};
  for (const Case& test_case : cases) {
    const auto errors = testing::errors_with_communicator({2, 1}, "flat", [&](const CommPtr& comm) {
      nn::Sequential model;
      for (const nn::Linear& layer : test_case.layers(comm->rank())) model->push_back(layer);
      (void)create_multi_node_optimizer(std::make_unique<optim::SGD>(model->parameters(), 0.1),
                                        comm, {.model = &model});
    });
    for (const std::string& error : errors) EXPECT_THAT(error, HasSubstr(test_case.expected));
  }
}

TEST(MultiNodeOptimizer, DifferentOptimizersAreAMismatch) {
  const auto errors = testing::errors_with_communicator({2}, "flat", [](const CommPtr& comm) {
    nn::Linear model(2, 2);
    std::unique_ptr<optim::Optimizer> actual = std::make_unique<optim::Adam>(model->parameters());
    if (comm->rank() == 1) actual = std::make_unique<optim::SGD>(model->parameters(), 0.1);
    (void)create_multi_node_optimizer(std::move(actual), comm, {.model = &model});
  });
  for (const std::string& error : errors) {
    EXPECT_THAT(error, HasSubstr("SGD"));
    EXPECT_THAT(error, HasSubstr("Adam"));
  }
}

TEST(MultiNodeOptimizer, AMismatchKillsTheCommunicator) {
  const auto errors = testing::errors_with_communicator({2}, "flat", [](const CommPtr& comm) {
    nn::Linear model(2, comm->rank() + 1);
    EXPECT_THROW((void)create_multi_node_optimizer(
                     std::make_unique<optim::SGD>(model->parameters(), 0.1), comm),
                 MismatchError);
    comm->barrier();
  });
  for (const std::string& error : errors) {
    EXPECT_THAT(error, HasSubstr("ranks do not train the same model"));
  }
}

TEST(MultiNodeOptimizer, FreezingOnOneRankNamesTheParameterOnAllRanks) {
  for (const bool double_buffering : {false, true}) {
    const auto errors = testing::errors_with_communicator({2, 1}, "flat", [&](const CommPtr& comm) {
      nn::Linear model(3, 2);
      auto optimizer =
          create_multi_node_optimizer(std::make_unique<optim::SGD>(model->parameters(), 0.1), comm,
                                      {.model = &model, .double_buffering = double_buffering});
      for (int step = 0; step < 3; ++step) {
        optimizer->zero_grad();
        if (step > 0) model->weight.set_requires_grad(comm->rank() != 2);
        model->forward(torch::ones({1, 3})).sum().backward();
        optimizer->step();
      }
    });
    for (const std::string& error : errors) {
      EXPECT_THAT(error, HasSubstr("(the training state, now with 'parameter weight [2, 3] Float "
                                   "frozen')"));
    }
  }
}

TEST(MultiNodeOptimizer, AddedAndUnfrozenLayersAreAdopted) {
  for (const std::string& name : kOfSeveralNodes) {
    testing::with_communicator({3}, name, {}, [](const CommPtr& comm) {
      nn::Sequential model(nn::Linear(3, 3));
      testing::fill(*model, comm->rank());
      model->parameters()[1].requires_grad_(false);
      auto optimizer = create_multi_node_optimizer(
          std::make_unique<optim::Adam>(model->parameters(), 0.1), comm, {.model = &model});
      const auto step = [&] {
        optimizer->zero_grad();
        (model->forward(torch::ones({1, 3})).sum() * (comm->rank() + 1)).backward();
        optimizer->step();
        EXPECT_NO_THROW(verify_equal(*comm, model->parameters()));
      };
      step();
      const auto frozen = model->parameters()[1].detach().clone();
      model->parameters()[1].requires_grad_(true);
      step();
      EXPECT_FALSE(torch::equal(frozen, model->parameters()[1]));

      nn::Linear added(3, 2);
      testing::fill(*added, comm->rank() + 10);
      model->push_back(added);
      optimizer->actual_optimizer().add_param_group(optim::OptimizerParamGroup(
          added->parameters(), std::make_unique<optim::AdamOptions>(0.1)));
      const auto before = model->parameters()[0].detach().clone();
      step();
      step();
      EXPECT_FALSE(torch::equal(before, model->parameters()[0]));  // no gradient is dropped
    });
  }
}

// Registered without contents, made when the first input tells its width.
struct LazyNet : nn::Module {
  torch::Tensor forward(const torch::Tensor& x) {
    if (!weight.defined()) {
      weight = parameters_["weight"] = torch::full({x.size(1), 2}, 0.5, torch::requires_grad());
    }
    return x.mm(weight) + bias;
  }
  torch::Tensor bias = register_parameter("bias", torch::zeros({2}));
  torch::Tensor weight = register_parameter("weight", torch::Tensor());
};

TEST(MultiNodeOptimizer, ALazyParameterLosesNoGradient) {
  testing::with_communicator({2, 1}, "hierarchical", {}, [](const CommPtr& comm) {
    const auto model = std::make_shared<LazyNet>();
    auto optimizer = create_multi_node_optimizer(
        std::make_unique<optim::SGD>(std::vector<torch::Tensor>{model->bias}, 1.0), comm,
        {.model = model});
    (void)model->forward(torch::ones({1, 3}));
    optimizer->actual_optimizer().add_param_group(optim::OptimizerParamGroup({model->weight}));
    for (int step = 0; step < 2; ++step) {
      optimizer->zero_grad();
      (model->forward(torch::ones({1, 3})).sum() * (comm->rank() + 1)).backward();
      optimizer->step();
    }
    // Two steps by the mean gradient of ranks 1, 2 and 3, none of them dropped.
    EXPECT_TRUE(torch::allclose(model->weight, torch::full({3, 2}, 0.5 - 2 * 2.0)));
    EXPECT_TRUE(torch::allclose(model->bias, torch::full({2}, -2 * 2.0)));
  });
}

TEST(MultiNodeOptimizer, SynchronizeTakesWhatRankZeroHas) {
  testing::with_communicator({2}, "flat", {}, [](const CommPtr& comm) {
    Net model;
    auto optimizer = create_multi_node_optimizer(
        std::make_unique<optim::SGD>(model->parameters(), 0.1), comm, {.model = &model});
    testing::fill(*model, comm->rank() + 3);
    optimizer->synchronize();
    Net expected;
    testing::fill(*expected, 3);
    EXPECT_TRUE(torch::equal(model->a->weight, expected->a->weight));
  });
}

TEST(MultiNodeOptimizer, ParametersOutsideTheModelAreAveragedToo) {
  testing::with_communicator({2}, "flat", {}, [](const CommPtr& comm) {
    nn::Linear model(2, 2);
    testing::fill(*model, 0);
    const auto extra = torch::zeros({2}, torch::requires_grad());
    std::vector<torch::Tensor> parameters = model->parameters();
    parameters.push_back(extra);
    auto optimizer = create_multi_node_optimizer(std::make_unique<optim::SGD>(parameters, 1.0),
                                                 comm, {.model = &model});
    extra.mutable_grad() = torch::full({2}, comm->rank(), torch::kFloat);
    optimizer->step();
    EXPECT_TRUE(extra.eq(-0.5).all().item<bool>());
  });
}

TEST(MultiNodeOptimizer, MixedDtypes) {
  for (const std::string& name : kOfSeveralNodes) {
    testing::with_communicator({2}, name, {}, [](const CommPtr& comm) {
      const auto half = torch::zeros({3}, torch::dtype(torch::kBFloat16).requires_grad(true));
      const auto single = torch::zeros({5}, torch::requires_grad());
      const auto fine = torch::zeros({2}, torch::dtype(torch::kDouble).requires_grad(true));
      auto optimizer = create_multi_node_optimizer(
          std::make_unique<optim::SGD>(std::vector<torch::Tensor>{half, single, fine}, 1.0), comm);
      for (const auto& parameter : {half, single, fine}) {
        parameter.mutable_grad() = torch::full_like(parameter, comm->rank() + 1);
      }
      fine.mutable_grad() = torch::full_like(fine, 1 + 1e-13 * comm->rank());
      optimizer->step();
      EXPECT_TRUE(half.eq(-1.5).all().item<bool>());
      EXPECT_TRUE(single.eq(-1.5).all().item<bool>());
      EXPECT_NEAR(fine[0].item<double>(), -1 - 0.5e-13, 1e-15);
    });
  }
}

TEST(MultiNodeOptimizer, AGradientBeyondTheModelsDoesNotChangeWhatStepsSee) {
  testing::with_communicator({2}, "flat", {}, [](const CommPtr& comm) {
    nn::Linear model(2, 2);
    testing::fill(*model, 0);
    auto optimizer = create_multi_node_optimizer(
        std::make_unique<optim::SGD>(model->parameters(), 0.0), comm, {.model = &model});
    for (int step = 0; step < 4; ++step) {
      optimizer->actual_optimizer().zero_grad();  // torch's own way works on the bucket's views
      (model->forward(torch::ones({1, 2})).sum() * (comm->rank() + step)).backward();
      optimizer->allreduce_grad();
      EXPECT_TRUE(model->weight.grad().eq(0.5 + step).all().item<bool>()) << step;
      torch::nn::utils::clip_grad_norm_(model->parameters(), 0.1);
    }
  });
}

}  // namespace
}  // namespace chainmail
