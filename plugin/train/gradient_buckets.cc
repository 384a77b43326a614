// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/train/gradient_buckets.h"

#include <cstring>
#include <utility>

#include <ATen/ATen.h>
#include <c10/util/StringUtil.h>

#include <chainmail/error.h>

#include "plugin/tensor/tensor_bytes.h"

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

GradientBucket::GradientBucket(std::vector<NamedTensor> parameters)
    : parameters_(std::move(parameters)) {
  const at::NoGradGuard no_grad;
  const at::Tensor& first = parameters_.front().tensor;
  const auto element_size = static_cast<std::int64_t>(first.element_size());
  const auto count = static_cast<std::int64_t>(parameters_.size());
  std::int64_t total = 0;
  std::vector<std::int64_t> begins;
  for (const NamedTensor& parameter : parameters_) {
    begins.push_back(total);
    total += aligned(parameter.tensor.numel(), element_size);
  }
  flat_ = at::zeros({total + 2 * count}, c10::TensorOptions(first.scalar_type()));
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    views_.push_back(view_like(flat_, begins[i], parameters_[i].tensor));
  }
  marks_ = flat_.narrow(0, total, 2 * count).view({2, count});
}

void GradientBucket::gather() {
  const at::NoGradGuard no_grad;
  const auto count = static_cast<std::int64_t>(parameters_.size());
  const at::Tensor marks = at::zeros({2, count}, c10::TensorOptions(c10::kFloat));
  float* const mark = marks.mutable_data_ptr<float>();
  for (std::int64_t i = 0; i < count; ++i) {
    const NamedTensor& parameter = parameters_[static_cast<std::size_t>(i)];
    const at::Tensor& view = views_[static_cast<std::size_t>(i)];
    if (!parameter.tensor.grad().defined()) {
      mark[count + i] = 1;
      view.zero_();
      continue;
    }
    mark[i] = 1;
    const at::Tensor gradient = dense_gradient(parameter);
    if (lies_in(gradient, view)) {
      continue;
    }
    if (gradient.strides() == view.strides() && !gradient.is_neg() && !gradient.is_conj()) {
      if (view.numel() != 0) {
        std::memcpy(view.data_ptr(), gradient.const_data_ptr(), view.nbytes());
      }
    } else {
      view.copy_(gradient);
    }
  }
  marks_.copy_(marks);
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

void GradientBucket::scatter(const std::vector<Presence>& presence) {
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    at::Tensor& gradient = parameters_[i].tensor.mutable_grad();
    if (!presence[i].somewhere) {
      continue;
    }
    if (!gradient.defined() || gradient.layout() != c10::kStrided ||
        !lies_in(gradient, views_[i])) {
      gradient = views_[i];
    }
    mark_written(gradient);
  }
}

}  // namespace chainmail::internal
