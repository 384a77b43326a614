// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/train/wire/gradient_residuals.h"

#include <ATen/ATen.h>

#include "plugin/train/communicator/communicator_impl.h"
#include "plugin/train/wire/bucket_feedback.h"

namespace chainmail::internal {

namespace {

constexpr const char* kContributions = "contributions";
constexpr const char* kResults = "results";
/// What a rank is to add to its own next gradient.
constexpr const char* kDebts = "debts";

}  // namespace

LayoutHash::LayoutHash(const ops::Group& group) : group_(&group) {
  for (int rank = 0; rank < group.size(); ++rank) {
    add(static_cast<std::uint64_t>(group.topology().node_of(rank)));
  }
  add(static_cast<std::uint64_t>(group.options().algorithm));
  add(group.options().chunk_bytes);
}

void LayoutHash::add(const MemoryLayout& layout) {
  for (const auto& numbers : {layout.sizes, layout.strides}) {
    add(numbers.size());
    for (const std::int64_t number : numbers) add(static_cast<std::uint64_t>(number));
  }
}

std::string LayoutHash::describe(const std::string& rest) const {
  return group_->topology().describe() + ", " + rest + to_hex(hash_.value());
}

std::string GradientResiduals::layout() const {
  const ops::Group& group = *model_->communicator().impl().group;
  LayoutHash hash(group);
  for (const ops::TuningRow& row : group.options().tuning) {
    hash.add(row.from_bytes);
    hash.add(static_cast<std::uint64_t>(row.algorithm));
  }
  for (const GradientBucket& bucket : model_->gradients().buckets()) {
    const BucketFeedback* const feedback = bucket.feedback().get();
    if (feedback == nullptr) continue;
    hash.add(static_cast<std::uint64_t>(bucket.wire()));
    hash.add(static_cast<std::uint64_t>(bucket.slices() != nullptr));
    for (std::size_t i = 0; i < feedback->size(); ++i) {
      hash.add(bucket.parameters()[i].name);
      hash.add(feedback->place(i).begin);
      hash.add(feedback->place(i).count);
      hash.add(bucket.layout(i));
    }
  }
  return hash.describe();
}

std::vector<std::int64_t> GradientResiduals::exchanges() const {
  std::vector<std::int64_t> exchanges;
  for (const GradientBucket& bucket : model_->gradients().buckets()) {
    if (!bucket.feedback()) continue;
    exchanges.push_back(static_cast<std::int64_t>(bucket.feedback()->exchanges()));
  }
  return exchanges;
}

const MemoryLayout* GradientResiduals::lies(const std::string& parameter) const {
  const Found found = find(parameter);
  return found.bucket == nullptr ? nullptr : &found.bucket->layout(found.index);
}

std::vector<KeptRow> GradientResiduals::rows() const {
  std::vector<KeptRow> rows;
  for (const GradientBucket& bucket : model_->gradients().buckets()) {
    const BucketFeedback* const feedback = bucket.feedback().get();
    for (std::size_t i = 0; i < bucket.parameters().size(); ++i) {
      const std::string& name = bucket.parameters()[i].name;
      if (feedback != nullptr && i < feedback->size()) {
        const BucketFeedback::Kept kept = feedback->kept(i);
        rows.push_back({kContributions, name, 0, kept.contributions, kept.factor});
        rows.push_back({kResults, name, 0, kept.results, kept.factor});
      }
      const at::Tensor debt = bucket.debts().of(i);
      if (debt.defined()) rows.push_back({kDebts, name, 0, debt, 1});
    }
  }
  return rows;
}

void GradientResiduals::clear() {
  for (const GradientBucket& bucket : model_->gradients().buckets()) {
    if (bucket.feedback()) bucket.feedback()->clear();
    bucket.debts().clear();
  }
}

void GradientResiduals::set_exchanges(std::span<const std::int64_t> exchanges) {
  std::size_t next = 0;
  for (const GradientBucket& bucket : model_->gradients().buckets()) {
    if (!bucket.feedback() || next >= exchanges.size()) continue;
    bucket.feedback()->set_exchanges(static_cast<std::uint64_t>(exchanges[next++]));
  }
}

GradientResiduals::Found GradientResiduals::find(const std::string& parameter) const {
  for (const GradientBucket& bucket : model_->gradients().buckets()) {
    for (std::size_t i = 0; i < bucket.parameters().size(); ++i) {
      if (bucket.parameters()[i].name == parameter) return {&bucket, i};
    }
  }
  return {};
}

void GradientResiduals::put(const KeptRow& row) {
  const Found found = find(row.parameter);
  if (found.bucket == nullptr) return;
  if (row.kind == kDebts) {
    found.bucket->debts().owe(found.index, static_cast<std::size_t>(row.begin), row.values, 1);
    return;
  }
  const BucketFeedback::Kept kept = found.bucket->feedback()->kept(found.index);
  const at::Tensor& into = row.kind == kResults ? kept.results : kept.contributions;
  into.narrow(0, row.begin, row.values.numel()).copy_(row.values);
}

bool GradientResiduals::takes(const Place& place) const {
  const Found found = find(place.parameter);
  return found.bucket != nullptr && found.bucket->pays_debts() &&
         place.elements.second <=
             static_cast<std::int64_t>(found.bucket->debts().elements(found.index));
}

bool GradientResiduals::has(const Place& place) const {
  if (!takes(place)) return false;
  if (place.kind == kDebts) return true;
  const Found found = find(place.parameter);
  return found.bucket->feedback() && found.index < found.bucket->feedback()->size();
}

std::vector<KeptResiduals::Range> GradientResiduals::wants(int old_rank, const Place& place) const {
  const Communicator& communicator = model_->communicator();
  if (!takes(place) || old_rank % communicator.size() != communicator.rank()) return {};
  return {place.elements};
}

void GradientResiduals::owe(const KeptRow& row, int old_ranks) {
  const Found found = find(row.parameter);
  if (found.bucket == nullptr) return;
  // Of a mean; a rank's gradient is a part of one.
  const double parts = model_->parts_of_mean();
  const double weight = row.kind == kDebts ? parts / old_ranks : parts;
  found.bucket->debts().owe(found.index, static_cast<std::size_t>(row.begin), row.values, weight);
}

}  // namespace chainmail::internal
