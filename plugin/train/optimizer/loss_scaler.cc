// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include <chainmail/train/loss_scaler.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include <ATen/ATen.h>

#include <chainmail/error.h>

namespace chainmail {

namespace {

// Scales multiply float32 tensors: neither they nor their inverses may leave its range.
constexpr double kLargest = 0x1p126;
constexpr double kSmallest = 0x1p-126;

void require(bool condition, const char* name, double value, const char* what) {
  if (!condition) {
    throw InvalidArgument(std::string("LossScaler: ") + name + " is " + std::to_string(value) +
                          "; it must be " + what);
  }
}

void check_scale(double scale) {
  require(scale >= kSmallest && scale <= kLargest, "the scale", scale, "positive and finite");
}

}  // namespace

LossScaler::LossScaler(const LossScalerOptions& options)
    : options_(options), state_{options.initial_scale, 0} {
  check_scale(options.initial_scale);
  require(options.growth_factor > 1 && std::isfinite(options.growth_factor), "growth_factor",
          options.growth_factor, "greater than 1");
  require(options.backoff_factor > 0 && options.backoff_factor < 1, "backoff_factor",
          options.backoff_factor, "between 0 and 1");
  require(options.growth_interval > 0, "growth_interval",
          static_cast<double>(options.growth_interval), "positive");
}

at::Tensor LossScaler::scale(const at::Tensor& loss) const {
  // 65536 itself is infinite in float16.
  const bool is_narrow = loss.is_floating_point() && loss.element_size() < 4;
  return (is_narrow ? loss.to(c10::kFloat) : loss) * state_.scale;
}

void LossScaler::update(bool is_finite, double made_with) noexcept {
  if (!is_finite) {
    if (made_with <= state_.scale) {
      state_.scale = std::max(state_.scale * options_.backoff_factor, kSmallest);
    }
    state_.finite_steps = 0;
  } else if (++state_.finite_steps == options_.growth_interval) {
    state_.scale = std::min(state_.scale * options_.growth_factor, kLargest);
    state_.finite_steps = 0;
  }
}

void LossScaler::load_state(const State& state) {
  check_scale(state.scale);
  state_ = {state.scale,
            std::clamp<std::int64_t>(state.finite_steps, 0, options_.growth_interval - 1)};
}

}  // namespace chainmail
