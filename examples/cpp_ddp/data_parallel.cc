// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "data_parallel.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>

#include <torch/csrc/distributed/c10d/comm.hpp>

DataParallel::DataParallel(const torch::nn::Module& module,
                           c10::intrusive_ptr<c10d::ProcessGroup> group,
                           const DataParallelOptions& options)
    : find_unused_parameters_(options.find_unused_parameters) {
  std::vector<torch::Tensor> parameters;
  for (const torch::Tensor& parameter : module.parameters()) {
    if (parameter.requires_grad()) parameters.push_back(parameter);
  }
  c10d::verify_params_across_processes(group, parameters, std::nullopt);

  std::vector<torch::Tensor> state;
  // The broadcast writes in place, which autograd forbids for leaves; detached they share memory.
  for (const torch::Tensor& tensor : module.parameters()) state.push_back(tensor.detach());
  for (const torch::Tensor& tensor : module.buffers()) state.push_back(tensor.detach());
  c10d::broadcast_coalesced(group, state, static_cast<std::size_t>(options.bucket_bytes), 0);

  const std::vector<bool> is_sparse(parameters.size(), false);
  const std::vector<std::size_t> limits{static_cast<std::size_t>(options.first_bucket_bytes),
                                        static_cast<std::size_t>(options.bucket_bytes)};
  auto buckets =
      std::get<0>(c10d::compute_bucket_assignment_by_size(parameters, limits, is_sparse));
  // Gradients come in about the reverse order of the parameters.
  std::reverse(buckets.begin(), buckets.end());
  reducer_ = std::make_shared<c10d::Reducer>(
      std::move(parameters), std::move(buckets), std::move(group), is_sparse, options.bucket_bytes,
      options.find_unused_parameters, /*gradient_as_bucket_view=*/true,
      std::unordered_map<std::size_t, std::string>{}, options.first_bucket_bytes,
      /*skip_all_reduce_unused_params=*/false, /*use_python_reducer=*/false,
      std::vector<std::int64_t>{});
}

void DataParallel::before_forward() {
  reducer_->prepare_for_forward();
  // Once, after the first backward pass has shown the order of the gradients.
  reducer_->rebuild_buckets();
}

void DataParallel::before_backward(const torch::Tensor& loss) {
  if (find_unused_parameters_) {
    reducer_->prepare_for_backward({loss});
  } else {
    reducer_->prepare_for_backward({});
  }
}
