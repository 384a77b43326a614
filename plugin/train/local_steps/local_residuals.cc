// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/train/local_steps/local_residuals.h"

#include <algorithm>

#include <ATen/ATen.h>

#include "plugin/train/communicator/communicator_impl.h"

namespace chainmail::internal {

namespace {

constexpr const char* kChanges = "changes";
constexpr const char* kMeansOfChanges = "means of changes";
constexpr const char* kDebtsOfChanges = "debts of changes";

bool is_of_fragments(const std::string& kind) {
  return kind == kChanges || kind == kMeansOfChanges || kind == kDebtsOfChanges;
}

}  // namespace

const std::string& LocalResiduals::name_of(const OuterFragment::Piece& piece) const {
  return model_->gradients().parameters().at(piece.parameter).name;
}

// The same on all ranks, as the options and the parameters are. Once nodes step by themselves
// nothing depends on which gradients travel together.
std::string LocalResiduals::layout() const {
  if (!stepping_->is_local()) return gradients_.layout() + ", " + stepping_->describe_exchanges();
  LayoutHash hash(*model_->communicator().impl().group);
  for (const NamedTensor& parameter : model_->gradients().parameters()) {
    hash.add(parameter.name);
    hash.add(layout_of(parameter.tensor));
  }
  return hash.describe(stepping_->describe_exchanges() + ", ");
}

std::vector<std::int64_t> LocalResiduals::exchanges() const {
  if (!stepping_->is_local()) return gradients_.exchanges();
  std::vector<std::int64_t> exchanges;
  for (const WireResiduals* const residuals : stepping_->residuals()) {
    exchanges.push_back(static_cast<std::int64_t>(residuals->exchanges()));
  }
  return exchanges;
}

std::vector<KeptRow> LocalResiduals::rows() const {
  std::vector<KeptRow> rows = gradients_.rows();
  for (const OuterFragment::Piece& piece : stepping_->pieces()) {
    const auto begin = static_cast<std::int64_t>(piece.begin);
    if (piece.contributions.defined()) {
      rows.push_back({kChanges, name_of(piece), begin, piece.contributions});
      rows.push_back({kMeansOfChanges, name_of(piece), begin, piece.results});
    }
    if (piece.owed.defined()) {
      rows.push_back({kDebtsOfChanges, name_of(piece), begin, piece.owed.to(c10::kFloat)});
    }
  }
  return rows;
}

void LocalResiduals::clear() {
  gradients_.clear();
  stepping_->clear_residuals();
}

void LocalResiduals::set_exchanges(std::span<const std::int64_t> exchanges) {
  if (!stepping_->is_local()) return gradients_.set_exchanges(exchanges);
  const std::vector<WireResiduals*> all = stepping_->residuals();
  for (std::size_t i = 0; i < std::min(all.size(), exchanges.size()); ++i) {
    all[i]->set_exchanges(static_cast<std::uint64_t>(exchanges[i]));
  }
}

void LocalResiduals::put(const KeptRow& row) {
  if (!is_of_fragments(row.kind)) return gradients_.put(row);
  if (row.kind == kDebtsOfChanges) return owe(row, 0);
  for (const OuterFragment::Piece& piece : stepping_->pieces()) {
    if (!covers(piece, {row.kind, row.parameter, {row.begin, row.begin + row.values.numel()}})) {
      continue;
    }
    const at::Tensor& into = row.kind == kMeansOfChanges ? piece.results : piece.contributions;
    into.narrow(0, row.begin - static_cast<std::int64_t>(piece.begin), row.values.numel())
        .copy_(row.values);
  }
}

// What is owed of a mean may be part of any contribution to it.
void LocalResiduals::owe(const KeptRow& row, int old_ranks) {
  if (!is_of_fragments(row.kind)) return gradients_.owe(row, old_ranks);
  if (const auto parameter = position_of(row.parameter)) {
    stepping_->owe(*parameter, static_cast<std::size_t>(row.begin), row.values);
  }
}

std::optional<std::size_t> LocalResiduals::position_of(const std::string& parameter) const {
  const std::vector<NamedTensor>& all = model_->gradients().parameters();
  const auto found = std::ranges::find(all, parameter, &NamedTensor::name);
  if (found == all.end()) return std::nullopt;
  return static_cast<std::size_t>(found - all.begin());
}

bool LocalResiduals::covers(const OuterFragment::Piece& piece, const Place& place) const {
  return (piece.contributions.defined() || place.kind == kDebtsOfChanges) &&
         name_of(piece) == place.parameter &&
         static_cast<std::int64_t>(piece.begin) <= place.elements.first &&
         place.elements.second <= static_cast<std::int64_t>(piece.end);
}

bool LocalResiduals::has(const Place& place) const {
  if (!is_of_fragments(place.kind)) return gradients_.has(place);
  return std::ranges::any_of(
      stepping_->pieces(), [&](const OuterFragment::Piece& piece) { return covers(piece, place); });
}

bool LocalResiduals::takes(const Place& place) const {
  if (!is_of_fragments(place.kind)) return gradients_.takes(place);
  const auto parameter = position_of(place.parameter);
  return parameter && stepping_->is_local() &&
         place.elements.second <= model_->gradients().parameters()[*parameter].tensor.numel();
}

std::vector<KeptResiduals::Range> LocalResiduals::wants(int old_rank, const Place& place) const {
  if (!is_of_fragments(place.kind)) return gradients_.wants(old_rank, place);
  std::vector<Range> wanted;
  if (model_->communicator().inter_rank() != 0) return wanted;
  if (place.is_reordered) return {place.elements};
  for (const OuterFragment::Piece& piece : stepping_->pieces()) {
    if (name_of(piece) != place.parameter) continue;
    const std::int64_t from =
        std::max(static_cast<std::int64_t>(piece.begin), place.elements.first);
    const std::int64_t to = std::min(static_cast<std::int64_t>(piece.end), place.elements.second);
    if (from < to) wanted.emplace_back(from, to);
  }
  return wanted;
}

}  // namespace chainmail::internal
