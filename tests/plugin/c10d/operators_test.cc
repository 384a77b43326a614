// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// torch.ops.chainmail.* as C++ programs call them: by name through the dispatcher and under
// autograd. TorchScript, opcheck and torch.compile are in tests/plugin/python.

#include <ATen/core/dispatch/Dispatcher.h>
#include <chainmail/error.h>
#include <gmock/gmock.h>
#include <torch/types.h>

#include <string>
#include <vector>

#include "tests/plugin/c10d/job_group.h"

namespace chainmail::internal {
namespace {

using ::testing::HasSubstr;

class OperatorsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    group_ = make_group();
    name_ = group_->getGroupName();
  }

  static std::vector<c10::IValue> call(const std::string& name, std::vector<c10::IValue> stack) {
    c10::Dispatcher::singleton().findSchemaOrThrow(name.c_str(), "").callBoxed(stack);
    return stack;
  }
  static at::Tensor mine() { return torch::full({2, 3}, job().rank + 1.0); }
  static at::Tensor filled(double value) { return torch::full({2, 3}, value); }
  static double sum() { return job().size * (job().size + 1) / 2.0; }

  static std::string error_of(const std::string& name, std::vector<c10::IValue> stack) {
    try {
      call(name, std::move(stack));
    } catch (const std::exception& error) {
      return error.what();
    }
    return "no error";
  }

  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  std::string name_;
};

TEST_F(OperatorsTest, AreCalledByName) {
  for (const std::string name :
       {"chainmail::all_reduce", "chainmail::hierarchical_all_reduce",
        "chainmail::two_dimensional_all_reduce", "chainmail::fp16_all_reduce"}) {
    at::Tensor tensor = mine();
    EXPECT_TRUE(at::equal(call(name, {tensor, "sum", name_}).at(0).toTensor(), filled(sum())));
    EXPECT_TRUE(at::equal(tensor, mine())) << name << " changed its input";
    EXPECT_TRUE(call(name + "_", {tensor, "avg", name_}).empty());
    EXPECT_TRUE(at::equal(tensor, filled(sum() / job().size))) << name;
  }
}

TEST_F(OperatorsTest, HaveGradients) {
  at::Tensor input = mine().requires_grad_();
  const at::Tensor output =
      call("chainmail::hierarchical_all_reduce", {input, "sum", name_}).at(0).toTensor();
  ASSERT_TRUE(output.requires_grad());
  (output * (job().rank + 1)).sum().backward();
  EXPECT_TRUE(at::equal(input.grad(), filled(sum())));

  std::vector<at::Tensor> parts = {torch::ones({3}).requires_grad_(),
                                   torch::ones({2, 2}, torch::kDouble).requires_grad_()};
  const at::Tensor flat = call("chainmail::pack", {parts, at::kFloat, 0.25}).at(0).toTensor();
  EXPECT_TRUE(at::equal(flat, torch::full({7}, 0.25)));
  flat.sum().backward();
  EXPECT_TRUE(at::equal(parts[0].grad(), torch::full({3}, 0.25)));
  EXPECT_TRUE(at::equal(parts[1].grad(), torch::full({2, 2}, 0.25, torch::kDouble)));
}

TEST_F(OperatorsTest, SayWhatIsWrong) {
  const at::Tensor tensor = mine();
  EXPECT_THAT(error_of("chainmail::all_reduce", {tensor, "sum", "nobody"}),
              HasSubstr("no process group is registered as \"nobody\""));
  EXPECT_THAT(error_of("chainmail::all_reduce_", {tensor, "plus", name_}), HasSubstr("\"plus\""));
  EXPECT_THAT(error_of("chainmail::fp16_all_reduce", {tensor, "band", name_}),
              HasSubstr("fp16_all_reduce with band needs integers"));
  EXPECT_THAT(error_of("chainmail::all_reduce_", {mine().requires_grad_(), "sum", name_}),
              HasSubstr("has no gradient"));
  // Shapes without data know errors, too.
  EXPECT_THAT(error_of("chainmail::all_reduce",
                       {torch::ones({2}, torch::device(torch::kMeta)), "plus", name_}),
              HasSubstr("\"plus\""));
  EXPECT_TRUE(at::equal(tensor, mine())) << "a refused call changed its tensor";
}

}  // namespace
}  // namespace chainmail::internal
