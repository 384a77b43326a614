// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/train/gradients/gradient_bucket.h"

#include <cstring>
#include <utility>

#include <ATen/ATen.h>
#include <c10/util/StringUtil.h>

#include <chainmail/error.h>

#include "plugin/tensor/tensor_bytes.h"
#include "plugin/train/tensor_checks.h"

namespace chainmail::internal {

namespace {

// Gradients start on cache lines, which vector kernels like.
constexpr std::int64_t kAlignmentBytes = 64;

std::int64_t aligned(std::int64_t elements, std::int64_t element_size) {
  const std::int64_t step = kAlignmentBytes / element_size;
  return (elements + step - 1) / step * step;
}

// Shaped and laid out like `parameter`, so that autograd accumulates in place without complaint.
// Detached: Optimizer::zero_grad() calls detach_() on gradients, which throws for autograd views.
at::Tensor view_like(const at::Tensor& flat, std::int64_t begin, const at::Tensor& parameter) {
  if (parameter.is_non_overlapping_and_dense()) {
    return flat.as_strided(parameter.sizes(), parameter.strides(), begin).detach();
  }
  return flat.narrow(0, begin, parameter.numel()).view(parameter.sizes()).detach();
}

bool lies_in(const at::Tensor& gradient, const at::Tensor& view) {
  return gradient.const_data_ptr() == view.const_data_ptr() &&
         gradient.scalar_type() == view.scalar_type() && gradient.sizes() == view.sizes() &&
         gradient.strides() == view.strides();
}

}  // namespace

at::Tensor dense_gradient(const NamedTensor& parameter) {
  const at::Tensor& gradient = parameter.tensor.grad();
  if (!gradient.device().is_cpu()) {
    throw InvalidArgument("the gradient of '" + parameter.name + "' is on " +
                          gradient.device().str() + "; this communicator takes CPU tensors");
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

GradientBucket::GradientBucket(std::vector<NamedTensor> parameters, ops::Group& group)
    : parameters_(std::move(parameters)), is_present_(parameters_.size()) {
  const at::NoGradGuard no_grad;
  const c10::ScalarType dtype = parameters_.front().tensor.scalar_type();
  const auto element_size = static_cast<std::int64_t>(c10::elementSize(dtype));
  const auto count = static_cast<std::int64_t>(parameters_.size());
  std::int64_t total = 0;
  std::vector<std::int64_t> begins;
  std::vector<at::Tensor> tensors;
  for (const NamedTensor& parameter : parameters_) {
    begins.push_back(total);
    total += aligned(parameter.tensor.numel(), element_size);
    tensors.push_back(parameter.tensor);
  }
  const std::int64_t elements = total + 2 * count;
  const auto memory = group.allocate(static_cast<std::size_t>(elements * element_size));
  flat_ = at::from_blob(
      memory.get(), {elements}, [memory](void* /*data*/) {}, c10::TensorOptions(dtype));
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    views_.push_back(view_like(flat_, begins[i], parameters_[i].tensor));
  }
  marks_ = flat_.narrow(0, total, 2 * count).view({2, count});
  shape_hash_ = hash_shapes(tensors);
  shapes_ = std::make_shared<const std::string>(describe_shapes(tensors));
}

void GradientBucket::adopt(std::size_t index) {
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
  if (held.layout() == c10::kStrided && held.device().is_cpu() && lies_in(held, view)) {
    return;
  }
  const at::Tensor gradient = dense_gradient(parameter);
  if (gradient.strides() == view.strides() && !gradient.is_neg() && !gradient.is_conj()) {
    if (view.numel() != 0) {
      std::memcpy(view.data_ptr(), gradient.const_data_ptr(), view.nbytes());
    }
  } else {
    view.copy_(gradient);
  }
  held = view;
}

void GradientBucket::write_marks() {
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

void GradientBucket::start(ops::Group& group, ops::WireFormat wire, const ExchangeNumber& number,
                           bool is_async) {
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    adopt(i);
  }
  write_marks();
  ops::Collective collective;
  collective.kind = ops::OpKind::kAllReduce;
  collective.dtype = engine_type(flat_.scalar_type(), "a gradient exchange");
  collective.reduce_op = ops::ReduceOp::kAvg;
  collective.count = static_cast<std::size_t>(flat_.numel());
  collective.output = static_cast<std::byte*>(flat_.data_ptr());
  collective.wire = wire;
  // Ranks at different exchanges would average gradients of different steps without a word.
  collective.shape_hash =
      shape_hash_ ^ static_cast<std::uint32_t>((number.step * 8191 + number.in_step) * 0x9E3779B1U);
  // The flat tensor is kept so that its memory outlives an operation nobody waits for any more.
  collective.describe_shapes = [flat = flat_, shapes = shapes_, number] {
    return "gradients " + *shapes + " of step " + std::to_string(number.step) + ", exchange " +
           std::to_string(number.in_step);
  };
  collective.is_async = is_async;
  is_started_ = true;
  if (is_async) {
    operation_ = group.submit(std::move(collective));
  } else {
    group.run(collective);
  }
}

void GradientBucket::wait() {
  if (operation_) {
    operation_->wait();
    operation_.reset();
  }
}

std::vector<Presence> GradientBucket::presence() const {
  const auto count = static_cast<std::int64_t>(parameters_.size());
  const at::Tensor marks = marks_.to(c10::kFloat);
  const float* const mark = marks.const_data_ptr<float>();
  std::vector<Presence> result(parameters_.size());
  for (std::int64_t i = 0; i < count; ++i) {
    result[static_cast<std::size_t>(i)] = {mark[i] != 0, mark[count + i] == 0};
  }
  return result;
}

void GradientBucket::finish(const std::vector<Presence>& presence) {
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    at::Tensor& gradient = parameters_[i].tensor.mutable_grad();
    if (!presence[i].somewhere) {
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
}

}  // namespace chainmail::internal
