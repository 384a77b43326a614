// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/train/wire/bucket_feedback.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

#include <ATen/ATen.h>

#include <chainmail/error.h>

namespace chainmail::internal {

namespace {

constexpr std::int64_t kLeastRounded = 1024;
/// Of so many exchanges the first is measured, which costs a pass over what it rounds.
constexpr std::uint64_t kMeasuredEvery = 16;
/// It is told of so many exchanges later: with double buffering the next one begins while it runs.
constexpr std::uint64_t kToldAfter = 2;

}  // namespace

bool is_rounded_to_integers(const at::Tensor& parameter) {
  return parameter.dim() > 1 && parameter.numel() >= kLeastRounded;
}

void check_on_host(const NamedTensor& parameter, ops::WireFormat wire) {
  const at::Tensor& tensor = parameter.tensor;
  if (tensor.is_cpu() || tensor.scalar_type() != c10::kFloat) return;
  throw InvalidArgument("parameter '" + parameter.name + "' is on " + tensor.device().str() +
                        ": the wire " + ops::to_string(wire) +
                        " is for CPUs; use float16 or bfloat16");
}

BucketFeedback::BucketFeedback(std::vector<ParameterPlace> places, std::size_t elements)
    : places_(std::move(places)), residuals_(elements) {}

at::Tensor BucketFeedback::part(const at::Tensor& row, std::size_t index) const {
  return row.narrow(0, static_cast<std::int64_t>(places_[index].begin),
                    static_cast<std::int64_t>(places_[index].count));
}

void BucketFeedback::add_to(ops::Collective& collective,
                            const std::shared_ptr<BucketFeedback>& feedback, double scale) {
  const bool is_measured = feedback->residuals_.exchanges() % kMeasuredEvery == 0;
  collective.feedback = feedback->residuals_.next();
  if (is_measured) {
    feedback->measured_ = {};
    collective.feedback->error = &feedback->measured_;
  }
  collective.prepare = [feedback, scale](ops::Collective& /*same*/) { feedback->fit_to(scale); };
  collective.keep = feedback;
}

std::array<float, 2> BucketFeedback::error_to_tell() const noexcept {
  const std::uint64_t exchanges = residuals_.exchanges();
  if (exchanges < kToldAfter || (exchanges - kToldAfter) % kMeasuredEvery != 0) return {};
  return {static_cast<float>(measured_.given), static_cast<float>(measured_.lost)};
}

// Gradients beyond 1e19 have squares that are infinite; what is known stays then.
void BucketFeedback::learn_error(float given, float lost) noexcept {
  if (given > 0 && std::isfinite(given) && std::isfinite(lost)) error_ = {given, lost};
}

// By powers of two, as loss scales go, this is exact. Zeros are left alone: most belong to other
// ranks, and have no memory.
void BucketFeedback::fit_to(double scale) noexcept {
  if (scale == scale_) return;
  const auto factor = static_cast<float>(scale / scale_);
  scale_ = scale;
  for (const at::Tensor& residual : residuals_.both()) {
    auto* const values = static_cast<float*>(residual.mutable_data_ptr());
    for (std::int64_t i = 0; i < residual.numel(); ++i) {
      if (values[i] != 0) values[i] *= factor;
    }
  }
}

void BucketFeedback::give_to(GradientDebts& debts, int ranks) const {
  for (std::size_t i = 0; i < places_.size(); ++i) {
    for (const at::Tensor& residual : residuals_.both()) {
      debts.owe(i, 0, part(residual, i), ranks, scale_);
    }
  }
}

BucketFeedback::Kept BucketFeedback::kept(std::size_t index) const {
  return {part(residuals_.contributions(), index), part(residuals_.results(), index), 1 / scale_};
}

void BucketFeedback::clear() {
  residuals_ = WireResiduals(static_cast<std::size_t>(residuals_.contributions().numel()));
  measured_ = {};
  error_ = {};
  scale_ = 1;
}

}  // namespace chainmail::internal
