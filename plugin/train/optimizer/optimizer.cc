// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include <chainmail/optimizer.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <torch/nn/utils/clip_grad.h>

#include "base/log.h"
#include "plugin/train/communicator_impl.h"
#include "plugin/train/gradients/gradient_exchange.h"
#include "plugin/train/optimizer/fused_step.h"
#include "plugin/train/optimizer/optimizer_state.h"
#include "plugin/train/optimizer/parameter_list.h"

namespace chainmail {

using internal::GradientExchange;
using internal::NamedTensor;

struct MultiNodeOptimizer::Impl {
  std::unique_ptr<torch::optim::Optimizer> optimizer;
  std::shared_ptr<Communicator> communicator;
  MultiNodeOptimizerOptions options;
  std::vector<std::uintptr_t> signature;  ///< of what the exchange was made for
  std::vector<NamedTensor> known;         ///< parameters and buffers that have been broadcast
  std::unique_ptr<GradientExchange> exchange;
  int syncs_off = 0;  ///< NoSync objects
  bool knows_order = false;
  std::uint64_t steps = 0;

  bool is_current() const {
    return internal::parameter_signature(options.model.get(), *optimizer) == signature;
  }
  bool overlaps() const {
    return options.overlap.value_or(communicator->inter_size() > 1) && options.bucket_bytes > 0;
  }
  void adopt_parameters();
  void make_exchange(std::vector<NamedTensor> trainable, std::vector<std::size_t> order);
  bool follow_model();
  void take_observed_order();
  StepResult apply();
};

// Compares what the ranks have and broadcasts what is new since the last time.
void MultiNodeOptimizer::Impl::adopt_parameters() {
  std::vector<NamedTensor> now = internal::collect_parameters(options.model.get(), *optimizer);
  std::vector<NamedTensor> trainable;
  std::copy_if(now.begin(), now.end(), std::back_inserter(trainable),
               [](const NamedTensor& named) { return named.tensor.requires_grad(); });
  const std::vector<NamedTensor> buffers = internal::collect_buffers(options.model.get());
  internal::compare_between_ranks(*communicator,
                                  internal::describe_training_state(now, buffers, *optimizer));
  now.insert(now.end(), buffers.begin(), buffers.end());

  std::vector<at::Tensor> added;
  for (const NamedTensor& named : now) {
    if (std::none_of(known.begin(), known.end(),
                     [&](const NamedTensor& old) { return old.tensor.is_same(named.tensor); })) {
      added.push_back(named.tensor.detach());
    }
  }
  communicator->bcast(added);
  known = std::move(now);
  make_exchange(std::move(trainable), {});
  knows_order = !overlaps() || options.double_buffering;
  signature = internal::parameter_signature(options.model.get(), *optimizer);
}

void MultiNodeOptimizer::Impl::make_exchange(std::vector<NamedTensor> trainable,
                                             std::vector<std::size_t> order) {
  internal::ExchangeOptions how;
  how.zero_fill = options.zero_fill;
  how.overlaps = overlaps();
  how.double_buffering = options.double_buffering;
  how.bucket_bytes = options.bucket_bytes;
  how.first_bucket_bytes = options.first_bucket_bytes;
  how.step = steps;
  how.is_current = [this] { return is_current(); };
  exchange.reset();  // its hooks and memory first
  exchange = std::make_unique<GradientExchange>(*communicator, std::move(trainable),
                                                std::move(order), std::move(how));
  exchange->set_enabled(syncs_off == 0);
  if (communicator->rank() == 0) {
    internal::LogMessage(internal::LogLevel::kInfo)
        << "gradients of " << exchange->parameters().size() << " parameters in "
        << exchange->bucket_count() << " buckets of " << exchange->bytes() << " bytes together"
        << (overlaps() ? ", sent while backward computes" : "")
        << (options.double_buffering ? ", applied one step later" : "");
  }
}

// After the model has changed: brings the exchange up to date. A mean on its way belongs to the old
// parameters and is applied to them; this rank's gradients, which nobody has averaged yet, stay.
bool MultiNodeOptimizer::Impl::follow_model() {
  if (is_current()) {
    return false;
  }
  std::vector<at::Tensor> own;
  for (const NamedTensor& parameter : exchange->parameters()) {
    own.push_back(parameter.tensor.grad());
  }
  const bool has_last = exchange->take_last();
  if (has_last) {
    apply();
    for (std::size_t i = 0; i < own.size(); ++i) {
      exchange->parameters()[i].tensor.mutable_grad() = own[i];
    }
  }
  adopt_parameters();
  return has_last;
}

// The order in which backward really finishes gradients, as rank 0 saw it in the first step.
void MultiNodeOptimizer::Impl::take_observed_order() {
  knows_order = true;
  const std::size_t count = exchange->parameters().size();
  std::vector<std::size_t> order = exchange->observed_order();
  std::string bytes(order.size() * sizeof(std::size_t), '\0');
  std::memcpy(bytes.data(), order.data(), bytes.size());
  bytes = communicator->bcast_obj(bytes);
  order.resize(bytes.size() / sizeof(std::size_t));
  std::memcpy(order.data(), bytes.data(), bytes.size());
  std::vector<char> is_known(count);
  for (const std::size_t parameter : order) {
    is_known.at(parameter) = 1;
  }
  for (std::size_t p = count; p-- > 0;) {  // those without a gradient in that step come last
    if (is_known[p] == 0) {
      order.push_back(p);
    }
  }
  make_exchange(exchange->parameters(), std::move(order));
}

StepResult MultiNodeOptimizer::Impl::apply() {
  StepResult result{.is_applied = true, .grad_norm = std::numeric_limits<double>::quiet_NaN()};
  if (options.max_grad_norm > 0 || options.skip_nonfinite) {
    std::vector<at::Tensor> parameters;
    for (const NamedTensor& parameter : exchange->parameters()) {
      parameters.push_back(parameter.tensor);
    }
    // A bound of infinity scales by one.
    result.grad_norm = torch::nn::utils::clip_grad_norm_(
        parameters, options.max_grad_norm > 0 ? options.max_grad_norm
                                              : std::numeric_limits<double>::infinity());
    result.is_applied = !options.skip_nonfinite || std::isfinite(result.grad_norm);
  }
  if (result.is_applied && !(options.use_fused_step && internal::fused_step(*optimizer))) {
    optimizer->step();
  }
  return result;
}

MultiNodeOptimizer::MultiNodeOptimizer(std::unique_ptr<torch::optim::Optimizer> optimizer,
                                       std::shared_ptr<Communicator> communicator,
                                       MultiNodeOptimizerOptions options)
    : impl_(std::make_unique<Impl>()) {
  if (!optimizer || !communicator) {
    throw InvalidArgument("a multi-node optimizer needs an optimizer and a communicator");
  }
  if (options.bucket_bytes < 0 || options.first_bucket_bytes < 0 || options.max_grad_norm < 0) {
    throw InvalidArgument(
        "bucket_bytes, first_bucket_bytes and max_grad_norm must not be negative");
  }
  impl_->optimizer = std::move(optimizer);
  impl_->communicator = std::move(communicator);
  impl_->options = std::move(options);
  synchronize();
}

MultiNodeOptimizer::~MultiNodeOptimizer() = default;

void MultiNodeOptimizer::synchronize() {
  impl_->known.clear();  // so that all counts as new
  impl_->adopt_parameters();
  Communicator& communicator = *impl_->communicator;
  const bool is_root = communicator.rank() == 0;
  const std::string state = communicator.bcast_obj(
      is_root && communicator.size() > 1 ? internal::save_optimizer(*impl_->optimizer) : "");
  if (!is_root) {
    internal::load_optimizer(state, *impl_->optimizer);
  }
}

void MultiNodeOptimizer::zero_grad(bool set_to_none) {
  impl_->exchange->begin_step();
  impl_->optimizer->zero_grad(set_to_none);
  if (impl_->options.model) {
    impl_->options.model->zero_grad(set_to_none);
  }
}

void MultiNodeOptimizer::allreduce_grad() {
  impl_->follow_model();
  impl_->exchange->require_again();
}

StepResult MultiNodeOptimizer::step() {
  Impl& impl = *impl_;
  const bool has_applied_last = impl.follow_model();
  impl.exchange->require();
  StepResult result{.is_applied = has_applied_last,
                    .grad_norm = std::numeric_limits<double>::quiet_NaN()};
  if (impl.exchange->has_mean()) {
    result = impl.apply();
  }
  impl.exchange->begin_step();
  impl.exchange->count_step();
  ++impl.steps;
  if (!impl.knows_order) {
    impl.take_observed_order();
  }
  impl.communicator->impl().world->report_step(impl.steps);
  return result;
}

bool MultiNodeOptimizer::flush() {
  const bool has_last = impl_->exchange->take_last();
  if (has_last) {
    impl_->apply();
    zero_grad();
  }
  return has_last;
}

MultiNodeOptimizer::NoSync MultiNodeOptimizer::no_sync() { return NoSync(*impl_); }

MultiNodeOptimizer::NoSync::NoSync(Impl& impl) noexcept : impl_(&impl) {
  ++impl_->syncs_off;
  impl_->exchange->set_enabled(false);
}

MultiNodeOptimizer::NoSync::~NoSync() {
  --impl_->syncs_off;
  impl_->exchange->set_enabled(impl_->syncs_off == 0);
}

torch::optim::Optimizer& MultiNodeOptimizer::actual_optimizer() noexcept {
  return *impl_->optimizer;
}

std::size_t MultiNodeOptimizer::gradient_bytes() const noexcept { return impl_->exchange->bytes(); }

std::unique_ptr<MultiNodeOptimizer> create_multi_node_optimizer(
    std::unique_ptr<torch::optim::Optimizer> optimizer,
    const std::shared_ptr<Communicator>& communicator, MultiNodeOptimizerOptions options) {
  return std::make_unique<MultiNodeOptimizer>(std::move(optimizer), communicator,
                                              std::move(options));
}

}  // namespace chainmail
