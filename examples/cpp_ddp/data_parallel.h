// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What DistributedDataParallel is in Python, in as few lines as torch's own Reducer allows:
// gradients are averaged in buckets while the backward pass is still running.
//
// One thread. All ranks make the same calls in the same order.

#pragma once

#include <torch/torch.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include <cstdint>
#include <memory>
#include <vector>

struct DataParallelOptions {
  std::int64_t first_bucket_bytes = std::int64_t{1} << 20;  ///< small, so that sending begins early
  std::int64_t bucket_bytes = std::int64_t{25} << 20;
  bool find_unused_parameters = false;  ///< the loss does not depend on all parameters
};

class DataParallel {
 public:
  /// Sends rank 0's parameters and buffers to all ranks and watches the parameters' gradients.
  /// Throws on every rank when the ranks' parameters differ in number or shape.
  DataParallel(const torch::nn::Module& module, c10::intrusive_ptr<c10d::ProcessGroup> group,
               const DataParallelOptions& options = {});

  /// Before every forward pass whose gradients are to be averaged.
  void before_forward();
  /// Between forward and backward. The gradients are means over all ranks once backward returns.
  void before_backward(const torch::Tensor& loss);

 private:
  const bool find_unused_parameters_;
  std::shared_ptr<c10d::Reducer> reducer_;
};
