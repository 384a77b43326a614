// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/train/optimizer/grad_norm.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "plugin/train/sharding/slice_cut.h"

namespace chainmail::internal {

namespace {

// Sums that the compiler may keep in vectors; their number decides the bits.
constexpr std::size_t kLanes = 8;
// Blocks that are worth a thread.
constexpr std::int64_t kGrain = 16;

template <typename Scalar>
double sum_of_squares(const Scalar* values, std::size_t count) {
  std::array<double, kLanes> lanes{};
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const auto value = static_cast<double>(values[i + lane]);
      lanes[lane] += value * value;
    }
  }
  for (std::size_t lane = 0; i < count; ++i, ++lane) {
    const auto value = static_cast<double>(values[i]);
    lanes[lane] += value * value;
  }
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

template <typename Scalar>
void add_squares_of(const Scalar* values, std::size_t count, std::span<double> sums) {
  at::parallel_for(
      0, static_cast<std::int64_t>(sums.size()), kGrain,
      [&](std::int64_t first, std::int64_t last) {
        for (auto b = static_cast<std::size_t>(first); b < static_cast<std::size_t>(last); ++b) {
          const std::size_t begin = b * kSliceUnit;
          sums[b] = sum_of_squares(values + begin, std::min(kSliceUnit, count - begin));
        }
      });
}

// As one row, in the order of memory.
at::Tensor in_memory_order(const at::Tensor& gradient) {
  if (!gradient.is_non_overlapping_and_dense()) return gradient.reshape({-1});
  return gradient.as_strided({gradient.numel()}, {1});
}

}  // namespace

std::size_t norm_blocks(std::size_t elements) noexcept {
  return (elements + kSliceUnit - 1) / kSliceUnit;
}

void add_squares(const at::Tensor& gradient, std::span<double> sums) {
  const at::NoGradGuard no_grad;
  at::Tensor flat = in_memory_order(gradient.detach());
  const bool is_double = flat.scalar_type() == c10::kDouble;
  if (!is_double) flat = flat.to(c10::kFloat);  // float16 and bfloat16 lose nothing
  const auto count = static_cast<std::size_t>(flat.numel());
  if (is_double) {
    add_squares_of(flat.const_data_ptr<double>(), count, sums);
  } else {
    add_squares_of(flat.const_data_ptr<float>(), count, sums);
  }
}

double norm_of(const std::vector<at::Tensor>& gradients) {
  double all = 0;
  std::vector<double> sums;
  for (const at::Tensor& gradient : gradients) {
    sums.assign(norm_blocks(static_cast<std::size_t>(gradient.numel())), 0);
    add_squares(gradient, sums);
    for (const double sum : sums) all += sum;
  }
  return std::sqrt(all);
}

void clip_to_norm(const std::vector<at::Tensor>& gradients, double norm, double max_norm) {
  if (max_norm <= 0 || gradients.empty()) return;
  const double factor = max_norm / (norm + 1e-6);
  if (factor >= 1) return;  // not so for NaN
  const at::NoGradGuard no_grad;
  at::_foreach_mul_(gradients, factor);
}

}  // namespace chainmail::internal
