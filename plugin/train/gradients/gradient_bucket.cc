// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/train/gradients/gradient_bucket.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <ATen/ATen.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/StringUtil.h>

#include <chainmail/error.h>

#include "base/bytes.h"
#include "ops/kernels/block_wire.h"
#include "ops/kernels/cpu/kernels.h"
#include "plugin/c10d/device/device_tensor.h"
#include "plugin/tensor/tensor_bytes.h"
#include "plugin/train/tensor_checks.h"

namespace chainmail::internal {

namespace {

// What an integer wire has been given and has lost, before the marks.
constexpr std::int64_t kErrorElements = 2;
// Gradients start on cache lines, which vector kernels like.
constexpr std::int64_t kAlignmentBytes = 64;

// With shards and on a wire that rounds on whole blocks of that wire, so that which elements are
// rounded together depends neither on which gradients travel together nor on whose slice they are
// in.
std::int64_t alignment(std::int64_t element_size, bool has_blocks) {
  return has_blocks ? std::int64_t{ops::kWireBlock} : kAlignmentBytes / element_size;
}

bool lies_in(const at::Tensor& gradient, const at::Tensor& view) {
  return gradient.device() == view.device() && gradient.const_data_ptr() == view.const_data_ptr() &&
         gradient.scalar_type() == view.scalar_type() && gradient.sizes() == view.sizes() &&
         gradient.strides() == view.strides();
}

// Whether the bytes of one are those of the other, in the same order.
bool has_layout_of(const at::Tensor& view, const at::Tensor& gradient) {
  return gradient.strides() == view.strides() && !gradient.is_neg() && !gradient.is_conj();
}

ops::Collective mean_of(std::byte* data, std::int64_t elements, c10::ScalarType dtype,
                        ops::WireFormat wire) {
  ops::Collective collective;
  collective.kind = ops::OpKind::kAllReduce;
  collective.dtype = engine_type(dtype, "a gradient exchange");
  collective.reduce_op = ops::ReduceOp::kAvg;
  collective.count = static_cast<std::size_t>(elements);
  collective.output = data;
  collective.wire = wire;
  return collective;
}

}  // namespace

at::Tensor dense_gradient(const NamedTensor& parameter) {
  const at::Tensor& gradient = parameter.tensor.grad();
  if (gradient.device() != parameter.tensor.device()) {
    throw InvalidArgument("the gradient of '" + parameter.name + "' is on " +
                          gradient.device().str() + ", the parameter on " +
                          parameter.tensor.device().str());
  }
  // mutable_grad(), unlike autograd, takes a tensor of any shape and dtype.
  if (gradient.sizes() != parameter.tensor.sizes()) {
    throw InvalidArgument("the gradient of '" + parameter.name + "' has the shape " +
                          c10::str(gradient.sizes()) + ", the parameter " +
                          c10::str(parameter.tensor.sizes()));
  }
  const at::Tensor dense = gradient.layout() == c10::kStrided ? gradient : gradient.to_dense();
  return dense.to(parameter.tensor.scalar_type());
}

GradientBucket::GradientBucket(std::vector<NamedTensor> parameters, ops::Group& group,
                               ops::WireFormat wire, std::shared_ptr<const DeviceContext> context,
                               std::shared_ptr<const ops::ShardCut> cut,
                               const std::optional<SliceRule>& slices)
    : parameters_(std::move(parameters)),
      is_present_(parameters_.size()),
      is_somewhere_(parameters_.size()),
      wire_(parameters_.front().tensor.scalar_type() == c10::kFloat ? wire
                                                                    : ops::WireFormat::kNative),
      context_(std::move(context)),
      cut_(std::move(cut)) {
  const at::NoGradGuard no_grad;
  if (cut_ && context_) {
    throw InvalidArgument("parameter '" + parameters_.front().name + "' is on " +
                          context_->device().str() + ": shards are summed on CPUs; move the model");
  }
  if (slices && context_) {
    throw InvalidArgument("parameter '" + parameters_.front().name + "' is on " +
                          context_->device().str() +
                          ": sharded optimizers are for CPUs; use Sharding::kNone");
  }
  const c10::ScalarType dtype = parameters_.front().tensor.scalar_type();
  const auto element_size = static_cast<std::int64_t>(c10::elementSize(dtype));
  const auto count = static_cast<std::int64_t>(parameters_.size());
  const bool is_to_integers = ops::is_in_blocks(wire_);
  if (is_to_integers) check_on_host(parameters_.front(), wire_);
  std::int64_t total = 0;
  std::vector<at::Tensor> tensors;
  for (const NamedTensor& parameter : parameters_) {
    // So that autograd accumulates in place without complaint.
    layouts_.push_back(layout_of(parameter.tensor));
    places_.push_back(
        {static_cast<std::size_t>(total), static_cast<std::size_t>(parameter.tensor.numel())});
    const bool is_rounded = is_to_integers ? is_rounded_to_integers(parameter.tensor)
                                           : wire_ != ops::WireFormat::kNative && !context_;
    total += round_up(parameter.tensor.numel(), alignment(element_size, cut_ || is_rounded));
    if (is_to_integers && is_rounded) rounded_ = static_cast<std::size_t>(total);
    tensors.push_back(parameter.tensor);
  }
  // The marks get blocks of a 16-bit wire of their own: beside gradients of 2^40 and more, as
  // diverging models have them, they would be rounded to "nobody has one".
  if (wire != ops::WireFormat::kNative) total = round_up(total, std::int64_t{ops::kWireBlock});
  elements_ = total + (rounded_ != 0 ? kErrorElements : 0) + 2 * count;
  dtype_ = dtype;
  if (slices) this->cut(*slices, static_cast<std::size_t>(total), group);
  make_debts(group);
  if (rounded_ != 0) make_feedback();
  if (!pool_) allocate(elements_, dtype, group);
  if (cut_) stack_.emplace(cut_, group.rank(), flat_, wire);
  if (context_) {
    std::fill(is_present_.begin(), is_present_.end(), char{1});
    write_marks();
    all_present_ = marks_.clone();
  }
  shape_hash_ = hash_shapes(tensors);
  shapes_ = std::make_shared<const std::string>(describe_shapes(tensors));
}

// The marks go to whoever owns the end, and from there to all.
void GradientBucket::cut(const SliceRule& rule, std::size_t end, const ops::Group& group) {
  const ops::Topology& topology = group.topology();
  const std::size_t owners = ops::slice_count(topology, rule.is_over_nodes);
  auto cut = std::make_shared<ops::NodeCut>();
  cut->is_over_nodes = rule.is_over_nodes;
  if (rule.owners.empty()) {
    cut->bounds = cut_into_slices(places_, end, owners, kSliceUnit);
  } else {
    cut->bounds.clear();
    for (std::size_t owner = 0; owner <= owners; ++owner) {
      const auto first = std::ranges::lower_bound(rule.owners, owner) - rule.owners.begin();
      const auto index = static_cast<std::size_t>(first);
      cut->bounds.push_back(index == 0 ? 0 : index < places_.size() ? places_[index].begin : end);
    }
  }
  cut->bounds.back() = static_cast<std::size_t>(elements_);
  cut->common_from = end;
  pool_ = rule.pool;
  if (pool_) {
    const std::size_t own = ops::slice_of_rank(topology, group.rank(), rule.is_over_nodes);
    own_begin_ = cut->bounds[own];
    const std::size_t own_end = std::min(cut->bounds[std::min(own + 1, owners)], end);
    own_ = at::zeros({static_cast<std::int64_t>(std::max(own_end, own_begin_) - own_begin_)},
                     c10::TensorOptions(dtype_));
  }
  slices_ = std::move(cut);
}

void GradientBucket::make_debts(const ops::Group& group) {
  const ops::Topology& topology = group.topology();
  GradientDebts::Share share;
  share.owners = topology.size();
  if (slices_) {
    const std::size_t own = ops::slice_of_rank(topology, group.rank(), slices_->is_over_nodes);
    share.begin = slices_->bounds[std::min(own, slices_->owners())];
    share.end = slices_->bounds[std::min(own + 1, slices_->owners())];
    share.owners = slices_->is_over_nodes ? 1 : topology.node_count();
  }
  std::vector<at::Tensor> tensors;
  for (const NamedTensor& parameter : parameters_) tensors.push_back(parameter.tensor);
  debts_ = std::make_shared<GradientDebts>(std::move(tensors), layouts_, places_, topology.size(),
                                           share);
}

void GradientBucket::make_feedback() {
  std::vector<ParameterPlace> places;
  for (std::size_t i = 0; i < places_.size() && places_[i].begin < rounded_; ++i) {
    places.push_back(places_[i]);
  }
  feedback_ =
      std::make_shared<BucketFeedback>(std::move(places), static_cast<std::size_t>(elements_));
}

void GradientBucket::set_flat(at::Tensor flat) {
  flat_ = std::move(flat);
  views_.clear();
  // Detached: Optimizer::zero_grad() calls detach_() on gradients, which throws for views.
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const auto begin = static_cast<std::int64_t>(places_[i].begin);
    views_.push_back(flat_.as_strided(layouts_[i].sizes, layouts_[i].strides, begin).detach());
  }
  const auto count = static_cast<std::int64_t>(parameters_.size());
  marks_ = flat_.narrow(0, elements_ - 2 * count, 2 * count).view({2, count});
}

void GradientBucket::take_memory() {
  set_flat(pool_->take(elements_, dtype_));
  clear_gaps();
}

// What lies between gradients travels, too, and is rounded together with them.
void GradientBucket::clear_gaps() {
  for (std::size_t i = 0; i < places_.size(); ++i) {
    const auto end = static_cast<std::int64_t>(places_[i].begin + places_[i].count);
    const std::int64_t next = i + 1 < places_.size()
                                  ? static_cast<std::int64_t>(places_[i + 1].begin)
                                  : elements_ - 2 * static_cast<std::int64_t>(places_.size());
    if (next != end) flat_.narrow(0, end, next - end).zero_();
  }
}

// Keeps what is this rank's, and lets go of the rest.
void GradientBucket::retire() {
  const at::NoGradGuard no_grad;
  presence_ = presence(true);
  learn_error();
  own_.copy_(flat_.narrow(0, static_cast<std::int64_t>(own_begin_), own_.numel()));
  pool_->give_back(flat_);
  views_.clear();
  marks_ = at::Tensor();
  flat_ = at::Tensor();
}

at::Tensor GradientBucket::borrow() const { return pool_ ? pool_->take(elements_, dtype_) : flat_; }

void GradientBucket::give_back(const at::Tensor& borrowed) const {
  if (pool_) pool_->give_back(borrowed);
}

std::size_t GradientBucket::wire_bytes() const noexcept {
  const auto elements = static_cast<std::size_t>(elements_);
  const std::size_t element_bytes = c10::elementSize(dtype_);
  if (wire_ == ops::WireFormat::kNative) return elements * element_bytes;
  const std::size_t rounded = ops::is_in_blocks(wire_) ? rounded_ : elements;
  return ops::message_size(rounded, wire_) + (elements - rounded) * element_bytes;
}

std::size_t GradientBucket::bytes() const noexcept {
  return static_cast<std::size_t>((pool_ ? own_ : flat_).nbytes());
}

void GradientBucket::allocate(std::int64_t elements, c10::ScalarType dtype, ops::Group& group) {
  if (!context_) {
    const auto memory =
        group.allocate(static_cast<std::size_t>(elements) * c10::elementSize(dtype));
    set_flat(at::from_blob(
        memory.get(), {elements}, [memory](void* /*data*/) {}, c10::TensorOptions(dtype)));
    return;
  }
  // Memory is registered with the communicators that are there: they are made now. Only sizes
  // matter for that.
  std::byte unused{};
  context_->group().prepare(mean_of(&unused, elements, dtype, wire_));
  set_flat(registered_tensor(*context_, elements, dtype));
  flat_.zero_();  // the gaps between gradients travel, too
}

void GradientBucket::adopt(std::size_t index) {
  if (pool_ && !flat_.defined()) return;  // start() does it, when there is memory
  const at::NoGradGuard no_grad;
  const NamedTensor& parameter = parameters_[index];
  const at::Tensor& view = views_[index];
  at::Tensor& held = parameter.tensor.mutable_grad();
  is_present_[index] = held.defined() ? 1 : 0;
  if (!held.defined()) {
    view.zero_();
    return;
  }
  // Sparse tensors have no memory of their own to compare.
  if (held.layout() == c10::kStrided && lies_in(held, view)) return;
  const at::Tensor gradient = dense_gradient(parameter);
  if (view.is_cpu() && has_layout_of(view, gradient)) {
    if (view.numel() != 0) std::memcpy(view.data_ptr(), gradient.const_data_ptr(), view.nbytes());
  } else {
    view.copy_(gradient);
  }
  held = pool_ ? at::Tensor() : view;
}

bool GradientBucket::has_all() const noexcept {
  return std::find(is_present_.begin(), is_present_.end(), char{0}) == is_present_.end();
}

void GradientBucket::write_marks() {
  if (all_present_.defined() && has_all()) {
    marks_.copy_(all_present_);  // on the device: nothing comes from the host
    return;
  }
  const auto count = static_cast<std::int64_t>(parameters_.size());
  const at::Tensor marks = at::empty({2, count}, c10::TensorOptions(c10::kFloat));
  float* const mark = marks.mutable_data_ptr<float>();
  for (std::int64_t i = 0; i < count; ++i) {
    const bool is_present = is_present_[static_cast<std::size_t>(i)] != 0;
    mark[i] = is_present ? 1 : 0;
    mark[count + i] = is_present ? 0 : 1;
  }
  marks_.copy_(marks);
}

void GradientBucket::tell_error() {
  if (!feedback_) return;
  float* const sums = flat_.mutable_data_ptr<float>() + elements_ - kErrorElements -
                      2 * static_cast<std::int64_t>(parameters_.size());
  std::ranges::copy(feedback_->error_to_tell(), sums);
}

void GradientBucket::learn_error() {
  if (!feedback_) return;
  const float* const sums = flat_.const_data_ptr<float>() + elements_ - kErrorElements -
                            2 * static_cast<std::int64_t>(parameters_.size());
  feedback_->learn_error(sums[0], sums[1]);
}

void GradientBucket::adopt_all() {
  for (std::size_t i = 0; i < parameters_.size(); ++i) adopt(i);
  write_marks();
}

// Multiplied on the way, while the gradient is in the caches.
void GradientBucket::adopt_of_shard(std::size_t index, double weight) {
  const at::NoGradGuard no_grad;
  const ops::DataType dtype = engine_type(flat_.scalar_type(), "a sum of shards");
  const NamedTensor& parameter = parameters_[index];
  const at::Tensor& view = views_[index];
  at::Tensor& held = parameter.tensor.mutable_grad();
  if (!held.defined()) return;
  const at::Tensor gradient = dense_gradient(parameter);
  if (is_present_[index] != 0) {
    view.add_(gradient.mul(weight));  // one backward inside another hands a parameter's in twice
  } else if (has_layout_of(view, gradient)) {
    const auto* const source = static_cast<const std::byte*>(gradient.const_data_ptr());
    ops::reduce(static_cast<std::byte*>(view.data_ptr()), {&source, 1},
                static_cast<std::size_t>(view.numel()), dtype, ops::ReduceOp::kSum, weight);
  } else {
    view.copy_(gradient);
    ops::scale_in_place(static_cast<std::byte*>(view.data_ptr()),
                        static_cast<std::size_t>(view.numel()), dtype, weight);
  }
  is_present_[index] = 1;
  held.reset();
}

void GradientBucket::add_shard(double weight) {
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    adopt_of_shard(i, weight);
    if (is_present_[i] == 0) views_[i].zero_();
  }
  write_marks();
  stack_->add(1);
  std::fill(is_present_.begin(), is_present_.end(), char{0});
}

void GradientBucket::add_empty_shard() {
  const at::NoGradGuard no_grad;
  flat_.zero_();
  stack_->add(1);
}

void GradientBucket::drop_shards() noexcept {
  stack_->clear();
  std::fill(is_present_.begin(), is_present_.end(), char{0});
}

void GradientBucket::start(ops::Group& group, const ExchangeNumber& number, bool is_async,
                           double loss_scale) {
  const at::NoGradGuard no_grad;
  if (pool_ && !flat_.defined()) take_memory();
  if (feedback_) clear_gaps();  // a block with a NaN has become NaN as a whole
  if (!stack_) adopt_all();
  ops::Collective collective =
      mean_of(static_cast<std::byte*>(flat_.data_ptr()), flat_.numel(), flat_.scalar_type(), wire_);
  if (stack_) {
    collective.reduce_op = ops::ReduceOp::kSum;
    collective.shards = cut_;
    collective.pieces = stack_->pieces();
    collective.keep = stack_->memory();
  }
  collective.cut = slices_;
  loss_scale_ = loss_scale;
  if (ops::is_in_blocks(wire_)) collective.compressed_count = rounded_;
  tell_error();
  if (pays_debts()) debts_->pay(flat_, loss_scale);
  if (feedback_) BucketFeedback::add_to(collective, feedback_, loss_scale);
  // Ranks at different exchanges would average gradients of different steps without a word.
  collective.shape_hash =
      NumberHash().add(shape_hash_).add(number.step).add(number.in_step).value();
  // The flat tensor is kept so that its memory outlives an operation that is no longer waited for.
  collective.describe_shapes = [flat = flat_, shapes = shapes_, number] {
    return "gradients " + *shapes + " of step " + std::to_string(number.step) + ", exchange " +
           std::to_string(number.in_step);
  };
  collective.is_async = is_async;
  is_started_ = true;
  if (context_) {
    start_on_device(collective);
  } else if (is_async) {
    operation_ = group.submit(std::move(collective));
  } else {
    group.run(collective);
  }
}

void GradientBucket::start_on_device(const ops::Collective& collective) {
  const c10::Stream stream = context_->begin(collective.is_async);
  const c10::StreamGuard on(stream);
  queued_ = context_->issue({&collective, 1}, stream);
  if (collective.is_async) {
    end_.emplace(stream.device_type());
    end_->record(stream);
  }
}

void GradientBucket::wait() {
  if (queued_) {
    if (const auto error = queued_->error()) std::rethrow_exception(error);
    queued_.reset();
    if (end_) {
      const c10::Device device = context_->device();
      end_->block(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
      end_.reset();
    }
  }
  if (operation_) {
    operation_->wait();
    operation_.reset();
  }
  if (holds_memory()) retire();
}

void GradientBucket::drop() {
  wait();
  is_started_ = false;
}

std::vector<Presence> GradientBucket::presence(bool everywhere_matters) const {
  if (pool_ && !flat_.defined()) return presence_;
  if (context_ && !everywhere_matters && has_all()) {
    return std::vector<Presence>(parameters_.size(), {.somewhere = true, .everywhere = false});
  }
  const auto count = static_cast<std::int64_t>(parameters_.size());
  const at::Tensor marks = marks_.to(c10::kCPU).to(c10::kFloat);
  const float* const mark = marks.const_data_ptr<float>();
  std::vector<Presence> result(parameters_.size());
  for (std::int64_t i = 0; i < count; ++i) {
    result[static_cast<std::size_t>(i)] = {mark[i] != 0, mark[count + i] == 0};
  }
  return result;
}

void GradientBucket::finish(const std::vector<Presence>& presence) {
  const at::NoGradGuard no_grad;
  if (!pool_) learn_error();
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    at::Tensor& gradient = parameters_[i].tensor.mutable_grad();
    is_somewhere_[i] = presence[i].somewhere ? 1 : 0;
    // All owners of a slice do, or none. Looking at what is on a GPU waits for it.
    if (!presence[i].somewhere && pays_debts() && (!context_ || debts_->are_expected())) {
      debts_->take_back(i, own_means(), own_begin(), loss_scale_);
    }
    if (!presence[i].somewhere || slices_) {
      gradient.reset();
      continue;
    }
    if (!gradient.defined() || gradient.layout() != c10::kStrided ||
        !lies_in(gradient, views_[i])) {
      gradient = views_[i];
    }
    mark_written(gradient);
  }
  is_started_ = false;
  if (stack_) stack_->clear();
}

}  // namespace chainmail::internal
