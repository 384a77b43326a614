// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Sharded modules as a model for an optimizer.

#include <cmath>
#include <unordered_set>
#include <utility>

#include <chainmail/nn/sharded.h>

#include <torch/torch.h>

#include <chainmail/error.h>

#include "plugin/nn/graph_collectives.h"
#include "plugin/train/sharding/slice_memory.h"

namespace chainmail {

namespace nn = torch::nn;

namespace {

// A layer whose type only its Sequential knows.
class ShardedLayerImpl final : public ShardedModule {
 public:
  ShardedLayerImpl(nn::AnyModule layer, std::shared_ptr<Communicator> communicator,
                   const ShardedOptions& options)
      : ShardedModule(layer.ptr(), std::move(communicator), options), layer_(std::move(layer)) {}

  at::Tensor forward(const at::Tensor& x) {
    return call_whole([this](const at::Tensor& value) { return layer_.forward(value); }, x);
  }

 private:
  nn::AnyModule layer_;
};

// In double, whatever the gradients are.
double sum_of_squares(const std::vector<at::Tensor>& gradients) {
  double sum = 0;
  for (const at::Tensor& gradient : gradients) {
    const double norm =
        at::linalg_vector_norm(gradient, 2, at::OptionalIntArrayRef(), false, c10::kDouble)
            .item<double>();
    sum += norm * norm;
  }
  return sum;
}

}  // namespace

nn::Sequential create_sharded_model(nn::Sequential model,
                                    const std::shared_ptr<Communicator>& communicator) {
  std::size_t position = 0;
  for (const auto& child : model->named_children()) {
    nn::AnyModule& layer = *(model->begin() + static_cast<std::ptrdiff_t>(position++));
    if (child.value()->parameters().empty() ||
        std::dynamic_pointer_cast<ShardedModule>(child.value())) {
      continue;
    }
    // A copy, so that the model still has a layer that cannot be one.
    const auto unit = std::make_shared<ShardedLayerImpl>(layer, communicator,
                                                         ShardedOptions{.name = child.key()});
    layer = nn::AnyModule(unit);
    model->replace_module(child.key(), unit);
  }
  return model;
}

std::vector<at::Tensor> sharded_parameters(const ModuleRef& model) {
  if (!model) throw InvalidArgument("sharded_parameters needs a model");
  std::vector<at::Tensor> slices;
  std::unordered_set<const c10::TensorImpl*> seen;
  for (const auto& item : model.named_parameters()) {
    const at::Tensor& parameter = item.value();
    if (!parameter.defined() || !seen.insert(parameter.unsafeGetTensorImpl()).second) continue;
    if (!internal::is_slice(parameter)) {
      throw InvalidArgument("parameter '" + item.key() +
                            "' is in no Sharded module, so nothing would average its gradients; "
                            "put it into one, or the whole model, whose units stay what they are");
    }
    slices.push_back(parameter);
  }
  return slices;
}

double clip_sharded_grad_norm(const std::shared_ptr<Communicator>& communicator,
                              const ModuleRef& model, double max_norm) {
  internal::require_communicator(communicator, "clip_sharded_grad_norm");
  if (!(max_norm > 0)) {
    throw InvalidArgument("clip_sharded_grad_norm: max_norm must be positive, got " +
                          std::to_string(max_norm));
  }
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& slice : sharded_parameters(model)) {
    if (slice.grad().defined()) gradients.push_back(slice.grad());
  }
  const double own = sum_of_squares(gradients);
  double sum = 0;
  for (const double of_rank : internal::gather_numbers(*communicator, {&own, 1}, "a norm")) {
    sum += of_rank;
  }
  const double norm = std::sqrt(sum);
  const double scale = max_norm / (norm + 1e-6);  // as torch does
  if (scale < 1) {
    for (const at::Tensor& gradient : gradients) gradient.mul_(scale);
  }
  return norm;
}

}  // namespace chainmail
