// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include <chainmail/train/mean_grad.h>

#include <vector>

#include "plugin/train/gradients/plain_exchange.h"
#include "plugin/train/optimizer/parameter_list.h"

namespace chainmail {

namespace {

void require(const ModuleRef& model, const char* operation) {
  if (!model) throw InvalidArgument(std::string(operation) + " needs a model");
}

}  // namespace

void bcast_data(Communicator& communicator, const ModuleRef& model) {
  require(model, "bcast_data");
  std::vector<at::Tensor> tensors;
  for (const auto& part : {model.parameters(), model.buffers()}) {
    for (const at::Tensor& tensor : part) {
      if (tensor.defined()) tensors.push_back(tensor.detach());
    }
  }
  communicator.bcast(tensors);
}

void multi_node_mean_grad(Communicator& communicator, const ModuleRef& model, bool zero_fill) {
  require(model, "multi_node_mean_grad");
  std::vector<internal::NamedTensor> parameters;
  for (const auto& item : model.named_parameters()) {
    if (item.value().requires_grad()) {
      parameters.push_back({item.key(), item.value()});
    }
  }
  internal::exchange_one_by_one(communicator, parameters, zero_fill);
}

}  // namespace chainmail
