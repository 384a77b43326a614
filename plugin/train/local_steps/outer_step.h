// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The arithmetic of outer steps, element by element and without fused multiply-adds: nodes with the
// same means have the same bits afterwards, whatever their processors can do.
//
// Rows are on the CPU, contiguous, and all of one call of the same type, float32 or float64.
// Pure functions.

#pragma once

#include <optional>

#include <ATen/core/Tensor.h>

namespace chainmail::internal {

/// How the common values change with the mean of what the nodes have changed.
struct OuterRule {
  double lr = 1;
  double momentum = 0;
  /// As LocalSteps::merge.
  std::optional<double> merge = std::nullopt;
  /// The common values become the mean of the nodes' and the momentum stays as it is: for exchanges
  /// between two that are due, which come at moments of the program's choice.
  bool is_mean = false;
};

/// The type in which parameters of `dtype` are kept between nodes: float64 for float64, else
/// float32.
[[nodiscard]] c10::ScalarType outer_type(c10::ScalarType dtype) noexcept;

/// common - own.
[[nodiscard]] at::Tensor outer_difference(const at::Tensor& common, const at::Tensor& own);

/// velocity = momentum * velocity + mean; common -= lr * (mean + momentum * velocity). `mean` is
/// that of outer_difference() over the nodes.
void outer_step(const at::Tensor& common, const at::Tensor& velocity, const at::Tensor& mean,
                const OuterRule& rule);

/// What a node goes on with: common + (own - sent), which keeps the steps since `sent`; or with a
/// merge own * merge + common * (1 - merge). In `own`.
void merge_own(const at::Tensor& own, const at::Tensor& sent, const at::Tensor& common,
               const OuterRule& rule);

}  // namespace chainmail::internal
