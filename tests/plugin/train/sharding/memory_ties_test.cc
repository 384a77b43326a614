// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Parameters that lie in the same memory: refused by name wherever ranks own parts of parameters,
// on all ranks, with nothing changed; and what looks like it and is right.

#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <chainmail/error.h>
#include <chainmail/nn/sharded.h>

#include "plugin/train/sharding/memory_ties.h"
#include "tests/plugin/train/sharding/sharded_training.h"

namespace chainmail::testing {
namespace {

namespace nn = torch::nn;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

torch::Tensor trained(const torch::Tensor& values) { return values.detach().requires_grad_(); }

std::optional<internal::MemoryTie> tie_of(const Tensors& tensors, bool of_trained_only = false) {
  std::vector<internal::NamedTensor> named;
  for (const torch::Tensor& tensor : tensors) named.push_back({"", tensor});
  return internal::find_memory_tie(named, of_trained_only);
}

TEST(MemoryTies, AreFoundByTheBytesThatTensorsHave) {
  const torch::Tensor row = torch::zeros({100});
  const torch::Tensor square = torch::zeros({8, 9});
  const torch::Tensor none;
  EXPECT_EQ(tie_of({}), std::nullopt);
  EXPECT_EQ(tie_of({row, square, none, torch::zeros({100})}), std::nullopt);
  EXPECT_EQ(tie_of({row, square, row.view({10, 10})}), (internal::MemoryTie{0, 2}));
  EXPECT_EQ(tie_of({row.narrow(0, 50, 50), row.narrow(0, 0, 50)}), std::nullopt);
  EXPECT_EQ(tie_of({row.narrow(0, 49, 51), row.narrow(0, 0, 50)}), (internal::MemoryTie{0, 1}));
  // The one in the middle lies in the first, not beside the last.
  EXPECT_EQ(tie_of({row, square, row.narrow(0, 10, 1), square.select(0, 7)}),
            (internal::MemoryTie{0, 2}));
  EXPECT_EQ(tie_of({row.narrow(0, 10, 0), row, row.narrow(0, 100, 0)}), std::nullopt);
  // Columns lie between each other.
  EXPECT_EQ(tie_of({square.narrow(1, 0, 4), square.narrow(1, 4, 5)}), std::nullopt);
  EXPECT_EQ(tie_of({square.narrow(1, 0, 5), square.narrow(1, 4, 5)}), (internal::MemoryTie{0, 1}));
  EXPECT_EQ(tie_of({square.t(), square.select(1, 3)}), (internal::MemoryTie{0, 1}));
  EXPECT_EQ(tie_of({square.select(0, 1).expand({4, 9}), square.select(0, 2)}), std::nullopt);
  EXPECT_EQ(tie_of({row, row.view(torch::kInt)}), (internal::MemoryTie{0, 1}));
}

TEST(MemoryTies, OfTensorsThatNobodyTrainsCountWhereAsked) {
  const torch::Tensor row = torch::zeros({100});
  const torch::Tensor weight = trained(row.narrow(0, 60, 10));
  EXPECT_EQ(tie_of({row, row.view({10, 10})}, true), std::nullopt);
  EXPECT_EQ(tie_of({row, row.view({10, 10}), weight}, true), (internal::MemoryTie{0, 2}));
  EXPECT_EQ(tie_of({weight, trained(row.narrow(0, 0, 60))}, true), std::nullopt);
}

// Expects InvalidArgument that names `first` and `second` on every rank, which stay usable.
void expect_tie_refused(const std::string& first, const std::string& second,
                        const std::function<void(const CommPtr&)>& body) {
  for (const auto& nodes : {std::vector<int>{2}, std::vector<int>{2, 1}}) {
    with_communicator(nodes, "two_dimensional", {}, [&](const CommPtr& comm) {
      try {
        body(comm);
        ADD_FAILURE() << "no error on rank " << comm->rank();
      } catch (const InvalidArgument& error) {
        EXPECT_THAT(error.what(), AllOf(HasSubstr("'" + first + "' and '" + second + "'"),
                                        HasSubstr("in both places")));
      }
      EXPECT_EQ(comm->allgather_obj(comm->rank()).size(), static_cast<std::size_t>(comm->size()));
    });
  }
}

TEST(MemoryTies, AreRefusedByEveryShardedOptimizer) {
  for (const MultiNodeOptimizerOptions& options : all_sharded()) {
    expect_tie_refused("0.weight", "2.weight", [&](const CommPtr& comm) {
      nn::Sequential model(nn::Linear(40, 40), nn::Tanh(), nn::Linear(40, 40));
      model->ptr<nn::LinearImpl>(2)->weight.set_data(model->ptr<nn::LinearImpl>(0)->weight);
      MultiNodeOptimizerOptions with_model = options;
      with_model.model = &model;
      (void)create_multi_node_optimizer(make_fast_adam(model->parameters()), comm, with_model);
    });
    expect_tie_refused("param_groups[0][0]", "param_groups[0][2]", [&](const CommPtr& comm) {
      const torch::Tensor all = torch::zeros({9000});
      (void)create_multi_node_optimizer(
          make_fast_adam({trained(all.narrow(0, 0, 6000)), trained(torch::ones({3})),
                          trained(all.narrow(0, 5999, 3001))}),
          comm, options);
    });
  }
}

// Nothing is exchanged, and who takes the tie back goes on.
TEST(MemoryTies, ThatComeBetweenStepsAreRefusedBeforeAnythingChanges) {
  for (const MultiNodeOptimizerOptions& options : all_sharded()) {
    with_communicator({2, 1}, "two_dimensional", {}, [&](const CommPtr& comm) {
      Trained whole(comm, {5000, 63, 5000}, make_fast_adam, {});
      Trained parts(comm, {5000, 63, 5000}, make_fast_adam, options);
      whole.step(0, comm->rank());
      parts.step(0, comm->rank());
      const torch::Tensor own = parts.parameters[2].detach();
      const torch::Tensor before = parts.parameters[0].detach().clone();
      parts.parameters[2].set_data(parts.parameters[0].detach());
      for (int attempt = 0; attempt < 2; ++attempt) {
        try {
          parts.step(1, comm->rank());
          ADD_FAILURE() << "no error on rank " << comm->rank();
        } catch (const InvalidArgument& error) {
          EXPECT_THAT(error.what(), HasSubstr("'param_groups[0][0]' and 'param_groups[0][2]'"));
        }
        EXPECT_TRUE(same_bits(before, parts.parameters[0]));
      }
      parts.parameters[2].set_data(own);
      for (std::int64_t step = 1; step < 4; ++step) {
        whole.step(step, comm->rank());
        parts.step(step, comm->rank());
      }
      expect_same(whole, parts, "after the tie was taken back");
    });
  }
}

TEST(MemoryTies, OnOneRankAreAMismatchOnAll) {
  const auto errors = errors_with_communicator({2, 1}, "two_dimensional", [](const CommPtr& comm) {
    Tensors parameters = make_parameters({100, 100});
    if (comm->rank() == 1) parameters[1].set_data(parameters[0].detach());
    (void)create_multi_node_optimizer(make_fast_adam(parameters), comm, sliced());
  });
  EXPECT_THAT(errors, Each(AllOf(HasSubstr("rank 1"), HasSubstr("memory in common"))));
}

struct TwoPlacesImpl : nn::Module {
  explicit TwoPlacesImpl(const torch::Tensor& weight)
      : a(register_parameter("a", weight)), b(register_parameter("b", weight)) {}
  torch::Tensor forward(const torch::Tensor& x) { return x.matmul(a).tanh().matmul(b); }
  torch::Tensor a, b;
};
TORCH_MODULE(TwoPlaces);

TEST(MemoryTies, OneTensorInTwoPlacesIsNone) {
  for (const MultiNodeOptimizerOptions& options : all_sharded()) {
    with_communicator({2, 2}, "two_dimensional", {}, [&](const CommPtr& comm) {
      const auto train = [&](MultiNodeOptimizerOptions how) {
        TwoPlaces model(torch::linspace(-1, 1, 6400).view({80, 80}));
        EXPECT_TRUE(model->a.is_same(model->b));
        how.model = &model;
        const auto optimizer =
            create_multi_node_optimizer(make_fast_adam({model->a}), comm, std::move(how));
        for (int step = 0; step < 4; ++step) {
          optimizer->zero_grad();
          const torch::Tensor x = torch::linspace(-1, 1 + step + comm->rank(), 160).view({2, 80});
          model->forward(x).sum().backward();
          optimizer->step();
        }
        return model->a.detach().clone();
      };
      EXPECT_TRUE(same_bits(train({}), train(options)));
    });
  }
}

TEST(MemoryTies, ViewsSideBySideAndNothingAreNone) {
  for (const MultiNodeOptimizerOptions& options : all_sharded()) {
    with_communicator({2, 1}, "two_dimensional", {}, [&](const CommPtr& comm) {
      const auto train = [&](const MultiNodeOptimizerOptions& how) {
        const torch::Tensor all = torch::linspace(-1, 1, 9000);
        Tensors parameters{trained(all.narrow(0, 5000, 4000)), trained(all.narrow(0, 5000, 0)),
                           trained(all.narrow(0, 0, 5000)), trained(torch::zeros({0, 3}))};
        const auto optimizer = create_multi_node_optimizer(make_fast_adam(parameters), comm, how);
        for (std::int64_t step = 0; step < 3; ++step) {
          optimizer->zero_grad();
          for (torch::Tensor& parameter : parameters) {
            parameter.mutable_grad() = gradient_of(parameter, step, comm->rank());
          }
          optimizer->step();
        }
        return parameters;
      };
      const Tensors whole = train({});
      const Tensors parts = train(options);
      for (std::size_t p = 0; p < whole.size(); ++p)
        EXPECT_TRUE(same_bits(whole[p], parts[p])) << p;
    });
  }
}

// Who only looks sees what is trained there, but where the memory is left for the node's.
TEST(MemoryTies, WithWhatIsFrozenAreRightUntilMemoryIsShared) {
  const auto make = [](const CommPtr& comm, const MultiNodeOptimizerOptions& options,
                       const torch::Tensor& weight, const torch::Tensor& frozen) {
    return create_multi_node_optimizer(make_fast_adam({weight, frozen}), comm, options);
  };
  for (const Sharding shard : {Sharding::kNode, Sharding::kAll}) {
    with_communicator({2, 1}, "two_dimensional", {}, [&](const CommPtr& comm) {
      const torch::Tensor weight = make_parameters({9000})[0];
      const torch::Tensor frozen = weight.detach();
      const auto optimizer = make(comm, sliced({}, shard), weight, frozen);
      for (std::int64_t step = 0; step < 3; ++step) {
        weight.mutable_grad() = gradient_of(weight, step, comm->rank());
        optimizer->step();
      }
      EXPECT_FALSE(same_bits(frozen, make_parameters({9000})[0]));
      EXPECT_TRUE(same_bits(frozen, weight));
      EXPECT_THROW(
          {
            frozen.set_requires_grad(true);
            optimizer->step();
          },
          InvalidArgument);
    });
  }
  expect_tie_refused("param_groups[0][0]", "param_groups[0][1]", [&](const CommPtr& comm) {
    const torch::Tensor weight = make_parameters({9000})[0];
    (void)make(comm, shared(), weight, weight.detach());
  });
}

nn::Linear linear_of(double first, double last) {
  nn::Linear linear(8, 8);
  linear->weight.set_data(torch::linspace(first, last, 64).view({8, 8}));
  return linear;
}

TEST(MemoryTies, AreRefusedInsideOfUnitsAndBetweenThem) {
  expect_tie_refused("0.weight", "1.weight", [](const CommPtr& comm) {
    nn::Sequential model(linear_of(0, 1), linear_of(1, 2));
    model->ptr<nn::LinearImpl>(1)->weight.set_data(model->ptr<nn::LinearImpl>(0)->weight);
    const Sharded<nn::Sequential> unit(model, comm);
  });
  expect_tie_refused("weight of unit in", "weight", [](const CommPtr& comm) {
    const nn::Linear in = linear_of(0, 1);
    const nn::Linear out = linear_of(1, 2);
    out->weight.set_data(in->weight);
    const Sharded<nn::Linear> first(in, comm, {.name = "in"});
    const Sharded<nn::Linear> second(out, comm, {.name = "out"});
  });
  // Of frozen ones too: they may be trained later.
  expect_tie_refused("weight of unit in", "weight", [](const CommPtr& comm) {
    nn::Linear in = linear_of(0, 1);
    const nn::Linear out = linear_of(1, 2);
    in->weight.set_requires_grad(false);
    out->weight.set_requires_grad(false);
    const Sharded<nn::Linear> first(in, comm, {.name = "in"});
    out->weight.set_data(first->module()->weight);
    const Sharded<nn::Linear> second(out, comm, {.name = "out"});
  });
  expect_tie_refused("weight of unit 0", "weight", [](const CommPtr& comm) {
    nn::Sequential model(linear_of(0, 1), nn::Tanh(), linear_of(1, 2));
    model->ptr<nn::LinearImpl>(2)->weight.set_data(model->ptr<nn::LinearImpl>(0)->weight.t());
    (void)create_sharded_model(model, comm);
  });
}

// Rows and columns of one buffer; what a unit had before, once nobody else has it.
TEST(MemoryTies, UnitsTakeWhatLiesSideBySide) {
  with_communicator({2, 1}, "two_dimensional", {}, [](const CommPtr& comm) {
    const torch::Tensor all = torch::linspace(-1, 1, 128).view({8, 16});
    const auto make = [&](std::int64_t begin) {
      nn::Linear linear = linear_of(0, 1);
      linear->weight.set_data(all.narrow(1, begin, 8));
      return linear;
    };
    const Sharded<nn::Linear> left(make(0), comm, {.name = "left"});
    Sharded<nn::Linear> right(make(8), comm, {.name = "right"});
    const nn::Linear again = linear_of(0, 1);
    again->weight.set_data(all.narrow(1, 8, 8).clone());
    const Sharded<nn::Linear> copy(again, comm, {.name = "copy"});
    right->forward(torch::ones({1, 8})).sum().backward();
  });
}

// A slice is as much as a parameter to an optimizer of torch's.
TEST(MemoryTies, OfSlicesAreRefusedByTheNextForward) {
  with_communicator({2}, "two_dimensional", {}, [](const CommPtr& comm) {
    Sharded<nn::Sequential> unit(nn::Sequential(linear_of(0, 1), linear_of(1, 2)), comm,
                                 {.name = "unit"});
    Tensors slices = sharded_parameters(unit);
    const std::size_t own = slices[0].numel() > 0 ? 0 : 2;
    slices[own].set_data(slices[own].detach().narrow(0, 0, 3));
    try {
      unit->forward(torch::ones({1, 8}));
      ADD_FAILURE() << "no error";
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr(own == 0 ? "'0.weight'" : "'1.weight'"),
                                      HasSubstr("the slice [3] of its 64")));
    }
  });
}

}  // namespace
}  // namespace chainmail::testing
