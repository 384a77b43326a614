// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include <chainmail/train/distributed_model.h>

#include <utility>
#include <vector>

#include <ATen/core/grad_mode.h>

#include "plugin/train/communicator/communicator_impl.h"
#include "plugin/train/optimizer/model_exchange.h"

namespace chainmail::internal {

struct DistributedModelBase::Impl {
  Impl(std::shared_ptr<Communicator> communicator, MultiNodeOptimizerOptions options)
      : model(std::move(communicator), std::move(options), /*optimizer=*/nullptr) {}
  ModelExchange model;
};

namespace {

MultiNodeOptimizerOptions to_common(const ModuleRef& model,
                                    const DistributedModelOptions& options) {
  MultiNodeOptimizerOptions common;
  common.model = model;
  common.zero_fill = options.zero_fill;
  common.overlap = options.overlap;
  common.bucket_bytes = options.bucket_bytes;
  common.first_bucket_bytes = options.first_bucket_bytes;
  check_options(common);
  return common;
}

// After a backward that ended with an exception, while the other ranks are in its exchange: takes
// part in it and drops the result; the gradients stay as the program has left them.
void end_open_exchange(GradientExchange& gradients) {
  if (!gradients.is_open()) return;
  std::vector<at::Tensor> own;
  for (const NamedTensor& parameter : gradients.parameters()) {
    own.push_back(parameter.tensor.grad());
  }
  gradients.begin_step();
  for (std::size_t i = 0; i < own.size(); ++i) {
    gradients.parameters()[i].tensor.mutable_grad() = own[i];
  }
}

}  // namespace

DistributedModelBase::DistributedModelBase(ModuleRef model,
                                           std::shared_ptr<Communicator> communicator,
                                           const DistributedModelOptions& options) {
  if (!model || !communicator) {
    throw InvalidArgument("DistributedModel needs a module and a communicator");
  }
  if (communicator->impl().shards) {
    throw InvalidArgument(
        "DistributedModel exchanges gradients in backward(): in a job of shards use "
        "create_multi_node_optimizer() and Step::commit()");
  }
  impl_ = std::make_unique<Impl>(std::move(communicator), to_common(model, options));
  impl_->model.adopt_all();
}

DistributedModelBase::~DistributedModelBase() = default;

void DistributedModelBase::begin_forward() {
  ModelExchange& model = impl_->model;
  if (!at::GradMode::is_enabled() || !model.options().model.is_training() || !model.is_enabled()) {
    return;
  }
  end_open_exchange(model.gradients());
  model.follow_model([] {});
  if (!model.gradients().observed_order().empty()) model.take_observed_order();
  model.count_step();
}

NoSync DistributedModelBase::no_sync() { return NoSync(impl_->model); }

void DistributedModelBase::synchronize() { impl_->model.adopt_all(); }

std::vector<at::Tensor> DistributedModelBase::parameters() const {
  return impl_->model.options().model.parameters();
}

std::size_t DistributedModelBase::gradient_bytes() const noexcept {
  return impl_->model.gradients().bytes();
}

}  // namespace chainmail::internal
