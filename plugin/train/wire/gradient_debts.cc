// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/train/wire/gradient_debts.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include <ATen/ATen.h>

namespace chainmail::internal {

GradientDebts::GradientDebts(std::vector<at::Tensor> parameters, std::vector<MemoryLayout> layouts,
                             std::vector<ParameterPlace> places, int ranks, Share share)
    : parameters_(std::move(parameters)),
      layouts_(std::move(layouts)),
      places_(std::move(places)),
      ranks_(ranks),
      share_(share),
      owed_(places_.size()) {}

void GradientDebts::pay(const at::Tensor& row, double scale) {
  for (std::size_t i = 0; i < owed_.size(); ++i) {
    const Owed owed = std::exchange(owed_[i], {});
    if (!owed.values.defined()) continue;
    row.narrow(0, static_cast<std::int64_t>(places_[i].begin),
               static_cast<std::int64_t>(places_[i].count))
        .add_(owed.values.to(row.options()), scale / owed.scale);
  }
}

void GradientDebts::take_back(std::size_t index, const at::Tensor& means, std::size_t first,
                              double scale) {
  const ParameterPlace& place = places_.at(index);
  const std::size_t begin = std::max(place.begin, share_.begin);
  const std::size_t end = std::min(place.begin + place.count, share_.end);
  if (begin >= end) return;
  const at::Tensor paid = means.narrow(0, static_cast<std::int64_t>(begin - first),
                                       static_cast<std::int64_t>(end - begin));
  owe(index, begin - place.begin, paid, static_cast<double>(ranks_) / share_.owners, scale);
}

void GradientDebts::owe(const Debt& debt) {
  for (std::size_t i = 0; i < places_.size(); ++i) {
    if (!parameters_[i].is_same(debt.parameter)) continue;
    if (places_[i].count != static_cast<std::size_t>(debt.owed.numel())) continue;
    const bool has_same_shape = layouts_[i].sizes == debt.layout.sizes;
    owe(i, 0, has_same_shape ? reordered(debt.owed, debt.layout, layouts_[i]) : debt.owed, 1);
  }
}

void GradientDebts::owe(std::size_t index, std::size_t begin, const at::Tensor& values,
                        double weight, double scale) {
  if (!values.any().item<bool>()) return;
  Owed& owed = owed_.at(index);
  if (!owed.values.defined()) {
    owed.values = at::zeros({static_cast<std::int64_t>(places_[index].count)}, values.options());
    owed.scale = scale;
  }
  owed.values.narrow(0, static_cast<std::int64_t>(begin), values.numel())
      .add_(values.to(owed.values.options()), weight * owed.scale / scale);
}

std::vector<Debt> GradientDebts::take() {
  std::vector<Debt> debts;
  for (std::size_t i = 0; i < places_.size(); ++i) {
    Owed owed = std::exchange(owed_[i], {});
    if (!owed.values.defined()) continue;
    debts.push_back({parameters_[i], owed.values.div_(owed.scale), layouts_[i]});
  }
  return debts;
}

at::Tensor GradientDebts::of(std::size_t index) const {
  const Owed& owed = owed_.at(index);
  if (!owed.values.defined()) return {};
  return owed.values.to(at::TensorOptions(at::kCPU).dtype(at::kFloat)) / owed.scale;
}

void GradientDebts::clear() { std::ranges::fill(owed_, Owed()); }

}  // namespace chainmail::internal
