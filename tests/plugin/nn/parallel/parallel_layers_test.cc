// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Layers that are cut over the ranks, where the ranks do not mean the same layer.

#include <functional>
#include <string>
#include <vector>

#include <chainmail/error.h>
#include <chainmail/nn/parallel/layers.h>

#include "tests/plugin/nn/parallel/graph_checks.h"

namespace chainmail::testing {
namespace {

using Maker = std::function<void(const CommPtr&)>;

Maker column(const torch::nn::LinearOptions& options, ColumnParallelOptions how = {}) {
  return [=](const CommPtr& comm) { ColumnParallelLinear(options, comm, how); };
}
Maker row(const torch::nn::LinearOptions& options, RowParallelOptions how = {}) {
  return [=](const CommPtr& comm) { RowParallelLinear(options, comm, how); };
}
Maker convolution(const torch::nn::Conv2dOptions& options, ConvSplit split = ConvSplit::kOutputs) {
  return [=](const CommPtr& comm) { ParallelConv2d(options, comm, split); };
}

// One rank makes another layer than the others. All of them get the same words, and can use the
// communicator no more.
void expect_found(const Maker& usual, const Maker& odd, const std::string& text) {
  for (const auto& nodes : {std::vector<int>{1, 1}, std::vector<int>{3}}) {
    with_communicator(nodes, "hierarchical", {}, [&](const CommPtr& comm) {
      const bool is_odd = comm->rank() == comm->size() - 1;
      const std::string rank = " on rank " + std::to_string(comm->size() - 1);
      EXPECT_THAT([&] { (is_odd ? odd : usual)(comm); },
                  ThrowsMessage<MismatchError>(HasSubstr(text + rank)));
      EXPECT_THROW(comm->barrier(), MismatchError);
    });
  }
}

torch::nn::LinearOptions linear() { return {6, 8}; }
torch::nn::Conv2dOptions conv() { return {3, 6, {3, 3}}; }

TEST(ParallelLayers, FindOtherOptionsOfLinearLayers) {
  expect_found(column(linear()), column({7, 8}),
               "ColumnParallelLinear: in_features is 6 on rank 0, 7");
  expect_found(column(linear()), column({6, 9}), "out_features is 8 on rank 0, 9");
  expect_found(column(linear()), column(linear().bias(false)), "bias is true on rank 0, false");
  expect_found(column(linear()), column(linear(), {.gather_output = false}),
               "gather_output is true on rank 0, false");
  // Fewer than ranks: not the one rank's mistake alone.
  expect_found(column(linear()), column({6, 1}), "out_features is 8 on rank 0, 1");
  expect_found(row(linear()), row({7, 8}), "RowParallelLinear: in_features is 6 on rank 0, 7");
  expect_found(row(linear()), row({6, 9}), "out_features is 8 on rank 0, 9");
  expect_found(row(linear().bias(false)), row(linear()), "bias is false on rank 0, true");
  expect_found(row(linear(), {.is_input_parallel = true}), row(linear()),
               "is_input_parallel is true on rank 0, false");
}

TEST(ParallelLayers, FindOtherOptionsOfConvolutions) {
  const Maker usual = convolution(conv());
  expect_found(usual, convolution({4, 6, 3}), "ParallelConv2d: in_channels is 3 on rank 0, 4");
  expect_found(usual, convolution({3, 7, 3}), "out_channels is 6 on rank 0, 7");
  expect_found(usual, convolution({3, 6, {3, 5}}), "kernel_size is [3, 3] on rank 0, [3, 5]");
  expect_found(usual, convolution(conv().stride(2)), "stride is [1, 1] on rank 0, [2, 2]");
  expect_found(usual, convolution(conv().dilation(2)), "dilation is [1, 1] on rank 0, [2, 2]");
  expect_found(usual, convolution(conv().groups(3)), "groups is 1 on rank 0, 3");
  expect_found(usual, convolution(conv().bias(false)), "bias is true on rank 0, false");
  expect_found(usual, convolution(conv().padding(1)), "padding is [0, 0] on rank 0, [1, 1]");
  expect_found(usual, convolution(conv().padding(torch::kSame)),
               "padding is [0, 0] on rank 0, kSame");
  expect_found(convolution(conv().padding(torch::kValid)), usual,
               "padding is kValid on rank 0, [0, 0]");
  expect_found(usual, convolution(conv().padding_mode(torch::kCircular)),
               "padding_mode is kZeros on rank 0, kCircular");
  expect_found(convolution({6, 6, 3}), convolution({6, 6, 3}, ConvSplit::kGrouped),
               "split is kOutputs on rank 0, kGrouped");
}

// Whose parts have the same shapes here.
TEST(ParallelLayers, FindOtherKinds) {
  const auto errors = errors_with_communicator({2, 1}, "hierarchical", [](const CommPtr& comm) {
    (comm->rank() == 1 ? row({6, 6}) : column({6, 6}))(comm);
  });
  for (const std::string& error : errors) {
    EXPECT_THAT(error,
                HasSubstr("rank 0 makes a ColumnParallelLinear, rank 1 a RowParallelLinear"));
  }
  for (const std::string& error :
       errors_with_communicator({2}, "hierarchical", [](const CommPtr& comm) {
         (comm->rank() == 1 ? convolution(conv()) : row(linear()))(comm);
       })) {
    EXPECT_THAT(error, HasSubstr("rank 0 makes a RowParallelLinear, rank 1 a ParallelConv2d"));
  }
}

// A mistake that all ranks make alike harms nothing.
TEST(ParallelLayers, LeaveTheCommunicatorUsableWhenAllRanksAreRefused) {
  with_communicator({2}, "hierarchical", {}, [](const CommPtr& comm) {
    EXPECT_THAT(
        [&] {
          column({4, 1})(comm);
        },
        ThrowsMessage<InvalidArgument>(HasSubstr("1 output features for 2 ranks")));
    comm->barrier();
  });
}

}  // namespace
}  // namespace chainmail::testing
