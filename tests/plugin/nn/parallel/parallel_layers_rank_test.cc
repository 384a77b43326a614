// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Layers that are cut over the ranks, against torch's own with the same seed.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>

#include <torch/torch.h>

#include <chainmail/chainmail.h>

#include "tests/plugin/nn/rank_communicator.h"

namespace chainmail {
namespace {

using testing::comm;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// Of this rank: its part of a tensor that all have.
torch::Tensor part_of(const torch::Tensor& whole, std::int64_t dimension) {
  return torch::tensor_split(whole, comm()->size(),
                             dimension)[static_cast<std::size_t>(comm()->rank())];
}

void expect_close(const torch::Tensor& got, const torch::Tensor& expected, const char* what) {
  EXPECT_EQ(got.sizes(), expected.sizes()) << what;
  EXPECT_TRUE(torch::allclose(got, expected, 1e-5, 1e-6)) << what << got - expected;
}

// The same loss on all ranks, of which every rank has the gradient once.
torch::Tensor loss_of(const torch::Tensor& y) { return (y * y.sin()).sum(); }

struct Inputs {
  torch::Tensor parallel;
  torch::Tensor plain;
};
Inputs make_inputs(at::IntArrayRef sizes) {
  torch::manual_seed(11);
  const torch::Tensor x = torch::randn(sizes);
  return {x.clone().requires_grad_(true), x.clone().requires_grad_(true)};
}

// Every rank draws numbers of its own first, as programs without a common seed do; rank 0's count.
template <typename Layer>
Layer made_with_seed(const std::function<Layer()>& make) {
  torch::manual_seed(static_cast<std::uint64_t>(5 + comm()->rank()));
  return make();
}
void seed_as_rank_0() { torch::manual_seed(5); }

// Forward and backward of the layer and of the whole one.
template <typename Layer, typename Whole>
void expect_same_pass(Layer& layer, Whole& whole, const Inputs& x) {
  const auto y = layer->forward(x.parallel);
  const auto expected = whole->forward(x.plain);
  expect_close(y, expected, "output");
  loss_of(y).backward();
  loss_of(expected).backward();
  expect_close(x.parallel.grad(), x.plain.grad(), "gradient of the input");
}

TEST(ColumnParallelLinear, EqualsLinear) {
  for (const bool has_bias : {true, false}) {
    const auto options = torch::nn::LinearOptions(6, 7).bias(has_bias);
    auto layer =
        made_with_seed<ColumnParallelLinear>([&] { return ColumnParallelLinear(options, comm()); });
    seed_as_rank_0();
    torch::nn::Linear whole(options);
    const Inputs x = make_inputs({4, 3, 6});
    expect_same_pass(layer, whole, x);
    expect_close(layer->weight.grad(), part_of(whole->weight.grad(), 0), "of the weight");
    EXPECT_EQ(layer->parameters().size(), has_bias ? 2U : 1U);
    if (has_bias) expect_close(layer->bias.grad(), part_of(whole->bias.grad(), 0), "of the bias");
  }
}

TEST(RowParallelLinear, EqualsLinear) {
  for (const bool has_bias : {true, false}) {
    const auto options = torch::nn::LinearOptions(7, 5).bias(has_bias);
    auto layer =
        made_with_seed<RowParallelLinear>([&] { return RowParallelLinear(options, comm()); });
    seed_as_rank_0();
    torch::nn::Linear whole(options);
    const Inputs x = make_inputs({4, 7});
    expect_same_pass(layer, whole, x);
    expect_close(layer->weight.grad(), part_of(whole->weight.grad(), 1), "of the weight");
    EXPECT_EQ(layer->parameters().size(), has_bias ? 2U : 1U);
    if (has_bias) expect_close(layer->bias.grad(), whole->bias.grad(), "of the bias");
  }
}

TEST(ParallelConv2d, OfOutputsEqualsConv2d) {
  const auto options = torch::nn::Conv2dOptions(3, 5, {3, 2})
                           .stride(2)
                           .padding({1, 2})
                           .padding_mode(torch::kReflect);
  auto layer = made_with_seed<ParallelConv2d>([&] { return ParallelConv2d(options, comm()); });
  seed_as_rank_0();
  torch::nn::Conv2d whole(options);
  for (const auto& sizes : {std::vector<std::int64_t>{2, 3, 6, 7}, {3, 6, 7}}) {
    layer->zero_grad();
    whole->zero_grad();
    const Inputs x = make_inputs(sizes);
    expect_same_pass(layer, whole, x);
    expect_close(layer->conv->weight.grad(), part_of(whole->weight.grad(), 0), "of the weight");
    expect_close(layer->conv->bias.grad(), part_of(whole->bias.grad(), 0), "of the bias");
  }
}

TEST(ParallelConv2d, GroupedEqualsConv2dWithAGroupPerRank) {
  const std::int64_t ranks = comm()->size();
  const auto options = torch::nn::Conv2dOptions(2 * ranks, 3 * ranks, 3);
  auto layer = made_with_seed<ParallelConv2d>(
      [&] { return ParallelConv2d(options, comm(), ConvSplit::kGrouped); });
  seed_as_rank_0();
  auto with_groups = options;
  torch::nn::Conv2d whole(with_groups.groups(ranks));
  const Inputs x = make_inputs({2, 2 * ranks, 5, 5});
  expect_same_pass(layer, whole, x);
  expect_close(layer->conv->weight.grad(), part_of(whole->weight.grad(), 0), "of the weight");
}

TEST(ParallelLayers, RefuseWhatCannotBeCut) {
  if (comm()->size() == 1) return;
  const auto message = [](const std::string& text) {
    return ThrowsMessage<InvalidArgument>(HasSubstr(text));
  };
  EXPECT_THAT([&] { ColumnParallelLinear(torch::nn::LinearOptions(4, 1), comm()); },
              message("1 output features for"));
  EXPECT_THAT([&] { RowParallelLinear(torch::nn::LinearOptions(1, 4), comm()); },
              message("1 input features for"));
  EXPECT_THAT([&] { ParallelConv2d(torch::nn::Conv2dOptions(1, 1, 3), comm()); },
              message("1 output channels for"));
  EXPECT_THAT(
      [&] { ParallelConv2d(torch::nn::Conv2dOptions(25, 24, 3), comm(), ConvSplit::kGrouped); },
      message("25 input channels"));
  EXPECT_THAT([&] { ParallelConv2d(torch::nn::Conv2dOptions(24, 24, 3).groups(2), comm()); },
              message("no groups"));
  EXPECT_THAT([&] { ColumnParallelLinear(torch::nn::LinearOptions(4, 4), nullptr); },
              message("communicator"));
}

// On all ranks alike, also where some ranks' parts would have the right size.
TEST(ParallelLayers, RefuseInputsOfAnotherSize) {
  const auto refused = [](auto layer, at::IntArrayRef sizes, const std::string& text) {
    EXPECT_THAT([&] { layer->forward(torch::zeros(sizes)); },
                ThrowsMessage<InvalidArgument>(HasSubstr(text)));
  };
  const auto linear = torch::nn::LinearOptions(7, 5);
  refused(ColumnParallelLinear(linear, comm()), {2, 8}, "is [2, 8], with 7 features wanted");
  refused(RowParallelLinear(linear, comm()), {2, 8}, "is [2, 8], with 7 features wanted");
  refused(RowParallelLinear(linear, comm()), {}, "with 7 features wanted");
  ParallelConv2d convolution(torch::nn::Conv2dOptions(3, 5, 3), comm());
  refused(convolution, {2, 4, 6, 6}, "is [2, 4, 6, 6], with 3 channels wanted");
  refused(convolution, {6, 6}, "with 3 channels wanted");
}

// A block of Megatron's between layers that all ranks have.
TEST(ParallelLayers, LeaveReplicatedLayersEqualOnAllRanks) {
  const auto first = torch::nn::LinearOptions(4, 6);
  const auto wide = torch::nn::LinearOptions(6, 9);
  const auto narrow = torch::nn::LinearOptions(9, 6);
  const auto last = torch::nn::LinearOptions(6, 1);
  torch::manual_seed(3);
  torch::nn::Linear in(first);
  ColumnParallelLinear column(wide, comm(), ColumnParallelOptions{.gather_output = false});
  RowParallelLinear row(narrow, comm(), RowParallelOptions{.is_input_parallel = true});
  torch::nn::Linear out(last);
  torch::nn::Sequential together(in, column, torch::nn::ReLU(), row, out);
  torch::manual_seed(3);
  torch::nn::Sequential alone;
  alone->push_back(torch::nn::Linear(first));
  alone->push_back(torch::nn::Linear(wide));
  alone->push_back(torch::nn::ReLU());
  alone->push_back(torch::nn::Linear(narrow));
  alone->push_back(torch::nn::Linear(last));

  torch::manual_seed(8);
  const auto samples = torch::randn({16, 4});
  const auto train = [&](torch::nn::Sequential& model) {
    torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.01).momentum(0.9));
    double loss = 0;
    for (int step = 0; step < 100; ++step) {
      optimizer.zero_grad();
      const auto error = (model->forward(samples).squeeze(1) - samples.sum(1).sin()).pow(2).mean();
      error.backward();
      optimizer.step();
      loss = error.item<double>();
    }
    return loss;
  };
  const double expected = train(alone);
  EXPECT_NEAR(train(together), expected, 1e-4 * expected);
  for (const torch::nn::Linear& layer : {in, out}) {
    for (const torch::Tensor& parameter : layer->parameters()) {
      for (const torch::Tensor& other : comm()->allgather(parameter.detach())) {
        EXPECT_TRUE(torch::equal(other, parameter));
      }
    }
  }
  for (const torch::Tensor& other : comm()->allgather(row->bias.detach())) {
    EXPECT_TRUE(torch::equal(other, row->bias));
  }
}

}  // namespace
}  // namespace chainmail
