// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include <chainmail/optimizer.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/lbfgs.h>

#include "plugin/job/torch_group.h"
#include "plugin/train/communicator/communicator_impl.h"
#include "plugin/train/gradients/gradient_exchange.h"
#include "plugin/train/local_steps/local_stepping.h"
#include "plugin/train/optimizer/fused_step.h"
#include "plugin/train/optimizer/grad_norm.h"
#include "plugin/train/optimizer/model_exchange.h"
#include "plugin/train/optimizer/optimizer_state.h"
#include "plugin/train/sharding/optimizer_slices.h"

namespace chainmail {

using internal::NamedTensor;

struct MultiNodeOptimizer::Impl {
  Impl(std::unique_ptr<torch::optim::Optimizer> wrapped, std::shared_ptr<Communicator> communicator,
       MultiNodeOptimizerOptions options)
      : optimizer(std::move(wrapped)),
        model(std::move(communicator), std::move(options), optimizer.get()) {
    if (this->options().shard != Sharding::kNone) use_slices();
    if (this->options().local_steps) use_local_steps();
  }

  std::unique_ptr<torch::optim::Optimizer> optimizer;
  internal::ModelExchange model;
  std::unique_ptr<internal::OptimizerSlices> slices;  ///< null with Sharding::kNone
  std::unique_ptr<internal::LocalStepping> local;     ///< null without local_steps
  double scale_in_flight = 1;  ///< that the last exchanged gradients were made with

  const MultiNodeOptimizerOptions& options() const noexcept { return model.options(); }
  double scale() const { return options().loss_scaler ? options().loss_scaler->get_scale() : 1; }
  void use_slices();
  void use_local_steps();
  void use_wire(ops::WireFormat wire);
  void begin_local_steps();
  StepResult apply(double made_with);
  std::vector<at::Tensor> means() const;
  double clip(const std::vector<at::Tensor>& means);
  bool follow_model();
  void update_scale(const StepResult& result, double made_with);
};

void MultiNodeOptimizer::Impl::use_slices() {
  Communicator& communicator = model.communicator();
  if (!communicator.impl().packs()) {
    throw InvalidArgument(
        "communicator 'naive' exchanges gradients one by one, and a sharded optimizer needs them "
        "in buckets; use 'hierarchical' or another");
  }
  if (internal::parse_torch_backend(communicator.name())) {
    throw InvalidArgument(
        "communicator '" + communicator.name() +
        "' is torch's own, which gives no rank a slice, and a sharded optimizer needs slices; use "
        "'hierarchical' or another");
  }
  if (communicator.impl().shards) {
    throw InvalidArgument(
        "a sharded optimizer in a job of shards, which it does not work in; use Sharding::kNone");
  }
  slices = std::make_unique<internal::OptimizerSlices>(
      *optimizer, communicator, options().is_elementwise, options().share_parameters,
      options().shard == Sharding::kAll);
  // State that moves is on every rank for a moment, which is not what gradients are freed for.
  const bool keeps_order = !slices->can_move_state() || options().free_gradients;
  model.use_slices(slices->kind(), keeps_order,
                   {.check = {},
                    .before_change =
                        [this] {
                          slices->gather_state(model.gradients());
                          slices->forget_slices();
                        },
                    .before_broadcast = [this] { slices->unshare_parameters(); },
                    .after_broadcast =
                        [this](const std::vector<NamedTensor>& trainable) {
                          slices->share_parameters(trainable);
                        }});
}

void MultiNodeOptimizer::Impl::use_local_steps() {
  std::optional<ops::WireFormat> wire;
  if (options().wire) wire = ops::parse_wire_format(*options().wire);
  local = std::make_unique<internal::LocalStepping>(model.communicator(), *options().local_steps,
                                                    wire, options().model);
  model.use_slices(
      internal::SliceKind::kNone, /*keeps_order=*/false,
      {.check = [this](const std::vector<NamedTensor>& trainable) { local->check(trainable); },
       .before_change = {},
       .before_broadcast = [this] { local->flush(); },
       .after_broadcast =
           [this](const std::vector<NamedTensor>& trainable) {
             local->begin(trainable);
             if (local->is_local()) model.average_over(local->node(), local->cross());
           }});
}

// A mean on its way travels in the buckets of before.
void MultiNodeOptimizer::Impl::use_wire(ops::WireFormat wire) {
  if (model.gradients().take_last()) {
    update_scale(apply(scale_in_flight), scale_in_flight);
    for (const NamedTensor& parameter : model.gradients().parameters()) {
      parameter.tensor.mutable_grad().reset();
    }
  }
  model.use_wire(wire);
}

// Once all ranks have averaged gradients for the last time. Nodes with other processors may have
// come to other bits meanwhile.
void MultiNodeOptimizer::Impl::begin_local_steps() {
  std::vector<at::Tensor> parameters;
  for (const NamedTensor& parameter : model.gradients().parameters()) {
    parameters.push_back(parameter.tensor.detach());
  }
  model.communicator().bcast(parameters);
  local->begin(model.gradients().parameters());
  model.average_over(local->node(), local->cross());
  model.renew_exchange();
}

// That this rank has: with slices, those in its own.
std::vector<at::Tensor> MultiNodeOptimizer::Impl::means() const {
  if (slices) return slices->gradients();
  std::vector<at::Tensor> gradients;
  for (const NamedTensor& parameter : model.gradients().parameters()) {
    if (parameter.tensor.grad().defined()) gradients.push_back(parameter.tensor.grad());
  }
  return gradients;
}

// Returns the norm of all means, as it was before.
double MultiNodeOptimizer::Impl::clip(const std::vector<at::Tensor>& means) {
  const double bound = options().max_grad_norm;
  if (slices || std::ranges::all_of(means, &at::Tensor::is_cpu)) {
    const double norm = slices ? slices->norm(model.gradients()) : internal::norm_of(means);
    internal::clip_to_norm(means, norm, bound);
    return norm;
  }
  // On a GPU with its own sums. A bound of infinity scales by one.
  std::vector<at::Tensor> parameters;
  for (const NamedTensor& parameter : model.gradients().parameters()) {
    parameters.push_back(parameter.tensor);
  }
  return torch::nn::utils::clip_grad_norm_(
      parameters, bound > 0 ? bound : std::numeric_limits<double>::infinity());
}

// Steps with the means that the gradients are now.
StepResult MultiNodeOptimizer::Impl::apply(double made_with) {
  StepResult result{.is_applied = true, .grad_norm = std::numeric_limits<double>::quiet_NaN()};
  const bool skips = options().skip_nonfinite || options().loss_scaler;
  if (slices) slices->begin_step(model.gradients());
  if (options().max_grad_norm > 0 || skips) {
    const std::vector<at::Tensor> gradients = means();
    if (made_with != 1 && !gradients.empty()) {
      const at::NoGradGuard no_grad;
      at::_foreach_mul_(gradients, 1 / made_with);
    }
    result.grad_norm = clip(gradients);
    result.is_applied = !skips || std::isfinite(result.grad_norm);
  }
  if (slices) {
    if (result.is_applied) {
      slices->step(model.gradients(), options().use_fused_step);
    } else {
      slices->drop_gradients();
    }
  } else if (result.is_applied && !(options().use_fused_step && internal::fused_step(*optimizer))) {
    optimizer->step();
  }
  return result;
}

// A mean on its way belongs to the old parameters and is applied to them. The scale stays: this
// rank's own gradients were made with it.
bool MultiNodeOptimizer::Impl::follow_model() {
  return model.follow_model([this] { apply(scale_in_flight); });
}

void MultiNodeOptimizer::Impl::update_scale(const StepResult& result, double made_with) {
  if (options().loss_scaler) options().loss_scaler->update(result.is_applied, made_with);
}

MultiNodeOptimizer::MultiNodeOptimizer(std::unique_ptr<torch::optim::Optimizer> optimizer,
                                       std::shared_ptr<Communicator> communicator,
                                       MultiNodeOptimizerOptions options) {
  if (!optimizer || !communicator) {
    throw InvalidArgument("a multi-node optimizer needs an optimizer and a communicator");
  }
  if (dynamic_cast<const torch::optim::LBFGS*>(optimizer.get()) != nullptr) {
    throw InvalidArgument(
        "a multi-node optimizer cannot wrap torch::optim::LBFGS, which takes a closure and decides "
        "by this rank's own loss; give the model to a DistributedModel, and LBFGS a closure that "
        "returns the loss averaged over the ranks");
  }
  internal::check_options(options);
  impl_ = std::make_unique<Impl>(std::move(optimizer), std::move(communicator), std::move(options));
  synchronize();
}

MultiNodeOptimizer::~MultiNodeOptimizer() = default;

void MultiNodeOptimizer::synchronize() {
  impl_->model.adopt_all([this] {
    if (impl_->local) impl_->local->drop();
  });
  Communicator& communicator = impl_->model.communicator();
  const bool is_root = communicator.rank() == 0;
  const std::string state = communicator.bcast_obj(
      is_root && communicator.size() > 1 ? internal::save_optimizer(*impl_->optimizer) : "");
  if (!is_root) internal::load_optimizer(state, *impl_->optimizer);
  if (LossScaler* const scaler = impl_->options().loss_scaler.get()) {
    scaler->load_state(communicator.bcast_obj(scaler->state()));
  }
}

void MultiNodeOptimizer::zero_grad(bool set_to_none) {
  impl_->model.check_turn("zero_grad()", /*or_between=*/true);
  if (impl_->slices && !set_to_none) {
    throw InvalidArgument(
        "zero_grad(false): in a sharded optimizer means are in slices, and step() drops them; call "
        "zero_grad()");
  }
  impl_->model.gradients().begin_step();
  impl_->optimizer->zero_grad(set_to_none);
  if (impl_->options().model) impl_->options().model.zero_grad(set_to_none);
}

void MultiNodeOptimizer::allreduce_grad() {
  impl_->model.check_turn("allreduce_grad()");
  if (impl_->slices) {
    throw InvalidArgument(
        "allreduce_grad(): with a sharded optimizer no rank has all means; step() exchanges "
        "gradients that were set by hand");
  }
  impl_->follow_model();
  impl_->model.gradients().require_again();
}

StepResult MultiNodeOptimizer::step() {
  Impl& impl = *impl_;
  impl.model.check_turn("step()");
  if (impl.local) impl.local->check_begun();
  const double scale = impl.scale();
  const bool has_applied_last = impl.follow_model();
  impl.model.gradients().require();
  StepResult result{.is_applied = has_applied_last,
                    .grad_norm = std::numeric_limits<double>::quiet_NaN()};
  if (impl.model.gradients().has_mean()) {
    const double made_with = impl.options().double_buffering ? impl.scale_in_flight : scale;
    result = impl.apply(made_with);
    impl.update_scale(result, made_with);
  }
  result.wire_error = impl.model.gradients().wire_error();
  result.wire_bytes = static_cast<std::int64_t>(impl.model.gradients().wire_bytes());
  impl.scale_in_flight = scale;
  impl.model.gradients().begin_step();
  impl.model.count_step();
  impl.model.take_observed_order();
  if (const auto wire = impl.model.choose_wire()) impl.use_wire(*wire);
  if (impl.local && impl.local->count_step()) impl.begin_local_steps();
  impl.model.communicator().impl().world->report_step(impl.model.steps());
  return result;
}

bool MultiNodeOptimizer::flush() {
  if (impl_->local) {
    impl_->local->check_begun();
    const bool has_changed = impl_->local->flush();
    if (has_changed) zero_grad();
    return has_changed;
  }
  impl_->model.check_adopted();
  const bool has_last = impl_->model.gradients().take_last();
  if (has_last) {
    impl_->update_scale(impl_->apply(impl_->scale_in_flight), impl_->scale_in_flight);
    zero_grad();
  }
  return has_last;
}

void MultiNodeOptimizer::gather_state() {
  if (impl_->slices) impl_->slices->gather_state(impl_->model.gradients());
}

std::vector<GradientShard> MultiNodeOptimizer::gradient_shards() {
  if (!impl_->slices) {
    throw InvalidArgument(
        "gradient_shards(): without .shard every rank has all means, as gradients of parameters");
  }
  const internal::GradientExchange& gradients = impl_->model.gradients();
  if (!gradients.is_done() || !gradients.has_mean()) return {};
  impl_->slices->begin_step(gradients);
  return impl_->slices->shards(gradients);
}

NoSync MultiNodeOptimizer::no_sync() { return NoSync(impl_->model); }

NoSync::NoSync(internal::ModelExchange& model) noexcept : model_(&model) {
  model_->add_syncs_off(1);
}

NoSync::~NoSync() { model_->add_syncs_off(-1); }

torch::optim::Optimizer& MultiNodeOptimizer::actual_optimizer() noexcept {
  return *impl_->optimizer;
}

bool MultiNodeOptimizer::is_on(const Communicator& communicator) const noexcept {
  return &impl_->model.communicator() == &communicator;
}

internal::OptimizerSlices* MultiNodeOptimizer::slices() const noexcept {
  return impl_->slices.get();
}

internal::LocalStepping* MultiNodeOptimizer::local_stepping() const noexcept {
  return impl_->local.get();
}

internal::ModelExchange& MultiNodeOptimizer::exchange() const noexcept { return impl_->model; }

MultiNodeOptimizerState MultiNodeOptimizer::state() const {
  MultiNodeOptimizerState state;
  if (const LossScaler* const scaler = impl_->options().loss_scaler.get()) {
    state.loss_scaler = scaler->state();
  }
  const std::vector<std::size_t>& order = impl_->model.learned_order();
  state.bucket_order.assign(order.begin(), order.end());
  if (const auto wire = impl_->model.chosen_wire()) state.wire = ops::to_string(*wire);
  return state;
}

void MultiNodeOptimizer::load_state(const MultiNodeOptimizerState& state) {
  if (LossScaler* const scaler = impl_->options().loss_scaler.get();
      scaler != nullptr && state.loss_scaler) {
    scaler->load_state(*state.loss_scaler);
  }
  zero_grad();
  impl_->model.use_order({state.bucket_order.begin(), state.bucket_order.end()});
  if (const auto wire = impl_->model.chosen_wire(); wire && state.wire) {
    impl_->model.use_wire(ops::parse_wire_format(*state.wire));
  }
}

std::size_t MultiNodeOptimizer::gradient_bytes() const noexcept {
  return impl_->model.gradients().bytes();
}

std::unique_ptr<MultiNodeOptimizer> create_multi_node_optimizer(
    std::unique_ptr<torch::optim::Optimizer> optimizer,
    const std::shared_ptr<Communicator>& communicator, MultiNodeOptimizerOptions options) {
  return std::make_unique<MultiNodeOptimizer>(std::move(optimizer), communicator,
                                              std::move(options));
}

}  // namespace chainmail
