// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/train/local_steps/outer_step.h"

#include <cstdint>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

namespace chainmail::internal {

namespace {

// Elements that are worth a thread.
constexpr std::int64_t kOuterGrain = std::int64_t{1} << 15;

template <typename Visit>
void for_each_element(const at::Tensor& row, const Visit& visit) {
  at::parallel_for(0, row.numel(), kOuterGrain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) visit(i);
  });
}

// Calls run(Scalar()) with the type of the rows.
template <typename Run>
void with_outer_type(const at::Tensor& row, const Run& run) {
  if (row.scalar_type() == c10::kDouble) {
    run(double());
  } else {
    run(float());
  }
}

}  // namespace

c10::ScalarType outer_type(c10::ScalarType dtype) noexcept {
  return dtype == c10::kDouble ? c10::kDouble : c10::kFloat;
}

at::Tensor outer_difference(const at::Tensor& common, const at::Tensor& own) {
  at::Tensor difference = at::empty_like(common);
  with_outer_type(common, [&]<typename Scalar>(Scalar) {
    auto* const result = difference.mutable_data_ptr<Scalar>();
    const auto* const minuend = common.const_data_ptr<Scalar>();
    const auto* const subtrahend = own.const_data_ptr<Scalar>();
    for_each_element(common, [=](std::int64_t i) { result[i] = minuend[i] - subtrahend[i]; });
  });
  return difference;
}

void outer_step(const at::Tensor& common, const at::Tensor& velocity, const at::Tensor& mean,
                const OuterRule& rule) {
  with_outer_type(common, [&]<typename Scalar>(Scalar) {
    auto* const value = common.mutable_data_ptr<Scalar>();
    auto* const speed = velocity.mutable_data_ptr<Scalar>();
    const auto* const change = mean.const_data_ptr<Scalar>();
    if (rule.is_mean) {
      for_each_element(common, [=](std::int64_t i) { value[i] -= change[i]; });
      return;
    }
    const auto lr = static_cast<Scalar>(rule.lr);
    const auto momentum = static_cast<Scalar>(rule.momentum);
    for_each_element(common, [=](std::int64_t i) {
      speed[i] = momentum * speed[i] + change[i];
      value[i] -= lr * (change[i] + momentum * speed[i]);
    });
  });
}

void merge_own(const at::Tensor& own, const at::Tensor& sent, const at::Tensor& common,
               const OuterRule& rule) {
  with_outer_type(common, [&]<typename Scalar>(Scalar) {
    auto* const value = own.mutable_data_ptr<Scalar>();
    const auto* const before = sent.const_data_ptr<Scalar>();
    const auto* const shared = common.const_data_ptr<Scalar>();
    if (rule.is_mean || !rule.merge) {
      for_each_element(own, [=](std::int64_t i) { value[i] = shared[i] + (value[i] - before[i]); });
      return;
    }
    const auto part = static_cast<Scalar>(*rule.merge);
    const Scalar rest = Scalar{1} - part;
    for_each_element(own, [=](std::int64_t i) { value[i] = value[i] * part + shared[i] * rest; });
  });
}

}  // namespace chainmail::internal
