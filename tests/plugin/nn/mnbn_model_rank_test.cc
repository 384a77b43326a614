// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Replacing the layers of a model, and the mean of ordinary ones' statistics.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <torch/torch.h>

#include <chainmail/chainmail.h>

#include "tests/plugin/nn/rank_communicator.h"

namespace chainmail {
namespace {

namespace nn = torch::nn;
using testing::comm;
using ::testing::HasSubstr;

struct BlockImpl : nn::Cloneable<BlockImpl> {
  BlockImpl() { reset(); }  // NOLINT: as Cloneable wants it
  void reset() override {
    layers = register_module("layers", nn::Sequential(nn::Linear(4, 4), nn::BatchNorm1d(4)));
  }
  torch::Tensor forward(const torch::Tensor& x) { return layers->forward(x); }
  nn::Sequential layers{nullptr};
};
TORCH_MODULE(Block);

struct ByMemberImpl : nn::Cloneable<ByMemberImpl> {
  ByMemberImpl() { reset(); }  // NOLINT: as Cloneable wants it
  void reset() override { norm = register_module("norm", nn::BatchNorm1d(4)); }
  torch::Tensor forward(const torch::Tensor& x) { return norm->forward(x); }
  nn::BatchNorm1d norm{nullptr};
};
TORCH_MODULE(ByMember);

// Equal on all ranks.
torch::Tensor whole_batch() {
  torch::manual_seed(1);
  return torch::randn({3 * comm()->size(), 4}) +
         torch::linspace(0, 4, 3 * comm()->size()).view({-1, 1});
}

torch::Tensor own_batch() { return whole_batch().narrow(0, 3 * comm()->rank(), 3); }

TEST(CreateMnbnModel, ReplacesInSequentialsAtAnyDepth) {
  torch::manual_seed(2);
  nn::BatchNorm1d last(nn::BatchNormOptions(4).momentum(0.25).eps(1e-3));
  torch::nn::init::normal_(last->weight);
  last->weight.requires_grad_(false);
  last->running_var.fill_(3);
  nn::Sequential model(Block(), Block(), last);
  nn::Sequential copy = create_mnbn_model(model, comm());

  std::vector<std::string> replaced;
  for (const auto& item : copy->named_modules()) {
    EXPECT_EQ(dynamic_cast<nn::BatchNorm1dImpl*>(item.value().get()), nullptr) << item.key();
    if (dynamic_cast<MultiNodeBatchNormalization1dImpl*>(item.value().get()) != nullptr) {
      replaced.push_back(item.key());
    }
  }
  EXPECT_THAT(replaced, ::testing::ElementsAre("0.layers.1", "1.layers.1", "2"));
  ASSERT_EQ(copy->named_parameters().keys(), model->named_parameters().keys());
  for (const auto& item : model->named_parameters()) {
    EXPECT_TRUE(torch::equal(item.value(), copy->named_parameters()[item.key()])) << item.key();
    EXPECT_FALSE(item.value().is_same(copy->named_parameters()[item.key()])) << item.key();
    EXPECT_EQ(item.value().requires_grad(), copy->named_parameters()[item.key()].requires_grad())
        << item.key();
  }
  for (const auto& item : model->named_buffers()) {
    EXPECT_TRUE(torch::equal(item.value(), copy->named_buffers()[item.key()])) << item.key();
  }
  const auto& options = copy->children().back()->as<MultiNodeBatchNormalization1d>()->options;
  EXPECT_EQ(options.momentum(), 0.25);
  EXPECT_EQ(options.eps(), 1e-3);

  // forward() goes through the new layers, and the old model is as it was.
  const auto y = copy->forward(own_batch());
  const auto expected = model->forward(whole_batch()).narrow(0, 3 * comm()->rank(), 3);
  EXPECT_TRUE(torch::allclose(y, expected, 1e-3, 1e-4));
  EXPECT_NE(dynamic_cast<nn::BatchNorm1dImpl*>(model->children().back().get()), nullptr);
}

TEST(CreateMnbnModel, ReplacesInListsAndDictionaries) {
  nn::ModuleList list(nn::Linear(4, 4), nn::BatchNorm1d(4), nn::BatchNorm2d(3));
  list->to(torch::kDouble);
  nn::ModuleList copy = create_mnbn_model(list, comm());
  EXPECT_NE(copy[1]->as<MultiNodeBatchNormalization1d>(), nullptr);
  EXPECT_NE(copy[2]->as<MultiNodeBatchNormalization2d>(), nullptr);
  EXPECT_EQ(copy->children()[1], copy[1]);
  EXPECT_EQ(copy[1]->parameters()[0].scalar_type(), torch::kDouble);

  nn::ModuleDict dict(std::vector<std::pair<std::string, std::shared_ptr<nn::Module>>>{
      {"a", nn::Linear(4, 4).ptr()}, {"b", nn::BatchNorm3d(4).ptr()}});
  dict->eval();
  nn::ModuleDict dict_copy = create_mnbn_model(dict, comm());
  EXPECT_NE(dict_copy["b"]->as<MultiNodeBatchNormalization3d>(), nullptr);
  EXPECT_FALSE(dict_copy["b"]->is_training());
}

TEST(CreateMnbnModel, WhatItCannotReplaceIsNamed) {
  nn::Sequential model(nn::Linear(4, 4), ByMember());
  try {
    (void)create_mnbn_model(model, comm());
    FAIL() << "no error";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("'1.norm'"));
    EXPECT_THAT(error.what(), HasSubstr("ByMember"));
  }
  EXPECT_THROW((void)create_mnbn_model(nn::BatchNorm1d(4), comm()), InvalidArgument);
}

TEST(AllreducePersistentTest, AveragesStatisticsAndLeavesCounters) {
  nn::Sequential model(nn::BatchNorm1d(4), nn::Linear(4, 2), nn::BatchNorm1d(2));
  int k = 0;
  for (torch::Tensor& buffer : model->buffers()) {
    if (buffer.is_floating_point()) {
      buffer.fill_(++k * comm()->rank());
    } else {
      buffer.fill_(comm()->rank());
    }
  }
  AllreducePersistent allreduce(&model, comm());
  allreduce();
  k = 0;
  for (const torch::Tensor& buffer : model->buffers()) {
    const double expected =
        buffer.is_floating_point() ? ++k * (comm()->size() - 1) / 2.0 : comm()->rank();
    EXPECT_TRUE(buffer.eq(expected).all().item<bool>()) << buffer;
  }
  EXPECT_EQ(k, 4);
}

TEST(AllreducePersistentTest, DoesNotRoundToTheWireOfGradients) {
  CommunicatorOptions options;
  options.allreduce_grad_dtype = c10::kHalf;
  const auto narrow = create_communicator("naive", options);
  nn::BatchNorm1d norm(2);
  norm->running_var.fill_(1e6);  // infinite in float16
  AllreducePersistent(&norm, narrow)();
  EXPECT_TRUE(norm->running_var.eq(1e6).all().item<bool>());
}

}  // namespace
}  // namespace chainmail
