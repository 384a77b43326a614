// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/train/gradients/plain_exchange.h"

#include <chainmail/train/mean_grad.h>

#include <cstddef>
#include <cstdint>

#include <ATen/ATen.h>

#include "plugin/train/gradients/gradient_bucket.h"
#include "plugin/train/gradients/presence.h"
#include "plugin/train/sharding/slice_memory.h"

namespace chainmail::internal {

void exchange_one_by_one(Communicator& communicator, const std::vector<NamedTensor>& parameters,
                         bool zero_fill) {
  const at::NoGradGuard no_grad;
  if (parameters.empty()) return;
  const std::size_t count = parameters.size();
  const at::Tensor present =
      at::zeros({static_cast<std::int64_t>(count)}, c10::TensorOptions(c10::kLong));
  auto* const holders = present.mutable_data_ptr<std::int64_t>();
  std::vector<char> own(count);
  for (std::size_t i = 0; i < count; ++i) {
    own[i] = parameters[i].tensor.grad().defined() ? 1 : 0;
    holders[i] = own[i];
  }
  communicator.allreduce(present);
  std::vector<Presence> presence;
  for (std::size_t i = 0; i < count; ++i) {
    presence.push_back({holders[i] != 0, holders[i] == communicator.size()});
  }
  if (!zero_fill) require_equal_presence(communicator, parameters, presence, own);
  std::vector<at::Tensor> gradients;
  for (std::size_t i = 0; i < count; ++i) {
    if (!presence[i].somewhere) continue;
    at::Tensor& gradient = parameters[i].tensor.mutable_grad();
    gradient =
        gradient.defined() ? dense_gradient(parameters[i]) : at::zeros_like(parameters[i].tensor);
    gradients.push_back(gradient);
  }
  communicator.allreduce_mean(gradients);
}

}  // namespace chainmail::internal

namespace chainmail {

namespace {

void require(const ModuleRef& model, const char* operation) {
  if (!model) throw InvalidArgument(std::string(operation) + " needs a model");
}

}  // namespace

void bcast_data(Communicator& communicator, const ModuleRef& model) {
  require(model, "bcast_data");
  std::vector<at::Tensor> tensors;
  for (const auto& part : {model.named_parameters(), model.named_buffers()}) {
    for (const auto& item : part) {
      if (!item.value().defined()) continue;
      internal::refuse_slice(item.key(), item.value(), "bcast_data",
                             "all ranks have rank 0's from the beginning");
      tensors.push_back(item.value().detach());
    }
  }
  communicator.bcast(tensors);
}

void multi_node_mean_grad(Communicator& communicator, const ModuleRef& model, bool zero_fill) {
  require(model, "multi_node_mean_grad");
  std::vector<internal::NamedTensor> parameters;
  for (const auto& item : model.named_parameters()) {
    if (item.value().requires_grad()) {
      internal::refuse_slice(item.key(), item.value(), "multi_node_mean_grad",
                             "backward() has averaged its gradient");
      parameters.push_back({item.key(), item.value()});
    }
  }
  internal::exchange_one_by_one(communicator, parameters, zero_fill);
}

}  // namespace chainmail
