// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/train/feedback/bucket_feedback.h"

#include <algorithm>
#include <utility>

#include <ATen/ATen.h>

#include "plugin/train/sharding/page_memory.h"

namespace chainmail::internal {

namespace {

constexpr std::int64_t kLeastRounded = 1024;

at::Tensor lazy_zeros(std::size_t elements) {
  const auto memory = std::make_shared<c10::DataPtr>(allocate_pages(elements * sizeof(float)));
  return at::from_blob(
      memory->get(), {static_cast<std::int64_t>(elements)}, [memory](void* /*data*/) {},
      c10::TensorOptions(c10::kFloat));
}

std::byte* first_byte(const at::Tensor& tensor) {
  return static_cast<std::byte*>(tensor.mutable_data_ptr());
}

}  // namespace

bool is_rounded_to_integers(const at::Tensor& parameter) {
  return parameter.dim() > 1 && parameter.numel() >= kLeastRounded;
}

BucketFeedback::BucketFeedback(std::vector<at::Tensor> parameters,
                               std::vector<ParameterPlace> places, std::size_t elements, int ranks,
                               Share share)
    : parameters_(std::move(parameters)),
      places_(std::move(places)),
      ranks_(ranks),
      share_(share),
      contributions_(lazy_zeros(elements)),
      results_(lazy_zeros(elements)),
      owed_(places_.size()) {}

at::Tensor BucketFeedback::part(const at::Tensor& row, std::size_t index) const {
  return row.narrow(0, static_cast<std::int64_t>(places_[index].begin),
                    static_cast<std::int64_t>(places_[index].count));
}

void BucketFeedback::add_to(ops::Collective& collective,
                            const std::shared_ptr<BucketFeedback>& feedback, const at::Tensor& row,
                            double scale) {
  for (std::size_t i = 0; i < feedback->owed_.size(); ++i) {
    Owed& owed = feedback->owed_[i];
    if (!owed.values.defined()) continue;
    feedback->part(row, i).add_(owed.values, scale / owed.scale);
    owed.values.reset();
  }
  collective.feedback = ops::WireFeedback{first_byte(feedback->contributions_),
                                          first_byte(feedback->results_), feedback->exchanges_++};
  collective.prepare = [feedback, scale](ops::Collective& /*same*/) { feedback->fit_to(scale); };
  collective.keep = feedback;
}

// By powers of two, as loss scales go, this is exact. Zeros are left alone: most belong to other
// ranks, and have no memory.
void BucketFeedback::fit_to(double scale) noexcept {
  if (scale == scale_) return;
  const auto factor = static_cast<float>(scale / scale_);
  scale_ = scale;
  for (const at::Tensor& residual : {contributions_, results_}) {
    auto* const values = static_cast<float*>(residual.mutable_data_ptr());
    for (std::int64_t i = 0; i < residual.numel(); ++i) {
      if (values[i] != 0) values[i] *= factor;
    }
  }
}

void BucketFeedback::take_back(std::size_t index, const at::Tensor& means, std::size_t first,
                               double scale) {
  if (index >= places_.size()) return;
  const ParameterPlace& place = places_[index];
  const std::size_t begin = std::max(place.begin, share_.begin);
  const std::size_t end = std::min(place.begin + place.count, share_.end);
  if (begin >= end) return;
  const at::Tensor paid = means.narrow(0, static_cast<std::int64_t>(begin - first),
                                       static_cast<std::int64_t>(end - begin));
  owe(index, begin - place.begin, paid, static_cast<double>(ranks_) / share_.owners, scale);
}

// What is to be added to a gradient by all ranks weighs 1, by fewer accordingly more.
void BucketFeedback::owe(std::size_t index, std::size_t begin, const at::Tensor& values,
                         double weight, double scale) {
  if (!values.any().item<bool>()) return;
  Owed& owed = owed_[index];
  if (!owed.values.defined()) {
    owed.values = at::zeros({static_cast<std::int64_t>(places_[index].count)}, values.options());
    owed.scale = scale;
  }
  owed.values.narrow(0, static_cast<std::int64_t>(begin), values.numel())
      .add_(values, weight * owed.scale / scale);
}

std::vector<Debt> BucketFeedback::take_debts() {
  std::vector<Debt> debts;
  for (std::size_t i = 0; i < places_.size(); ++i) {
    for (const at::Tensor& residual : {contributions_, results_}) {
      owe(i, 0, part(residual, i), ranks_, scale_);
    }
    Owed owed = std::exchange(owed_[i], {});
    if (owed.values.defined()) debts.push_back({parameters_[i], owed.values.div_(owed.scale)});
  }
  return debts;
}

void BucketFeedback::owe(const Debt& debt) {
  for (std::size_t i = 0; i < places_.size(); ++i) {
    if (!parameters_[i].is_same(debt.parameter)) continue;
    if (places_[i].count == static_cast<std::size_t>(debt.owed.numel())) {
      owe(i, 0, debt.owed, 1, 1);
    }
  }
}

}  // namespace chainmail::internal
