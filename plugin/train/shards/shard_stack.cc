// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/train/shards/shard_stack.h"

#include <utility>

#include <ATen/ATen.h>

#include <chainmail/error.h>

#include "ops/kernels/cpu/kernels.h"
#include "plugin/train/tensor_checks.h"

namespace chainmail::internal {

ShardStack::ShardStack(std::shared_ptr<const ops::ShardCut> cut, int rank, at::Tensor flat,
                       ops::WireFormat wire)
    : flat_(std::move(flat)),
      count_(static_cast<std::size_t>(flat_.numel())),
      dtype_(engine_type(flat_.scalar_type(), "a sum of shards")),
      wire_(dtype_ == ops::DataType::kFloat32 ? wire : ops::WireFormat::kNative) {
  const auto index = static_cast<std::size_t>(rank);
  std::vector<ops::ShardRange> leaves;
  for (std::uint32_t shard = cut->bounds.at(index); shard < cut->bounds.at(index + 1); ++shard) {
    leaves.push_back({shard, shard + 1});
  }
  merges_ = ops::plan_sum(cut->tree, leaves).merges;
}

std::byte* ShardStack::place(std::size_t depth) {
  while (kept_->size() <= depth) kept_->push_back(at::empty_like(flat_));
  return static_cast<std::byte*>((*kept_)[depth].data_ptr());
}

void ShardStack::add(double weight) {
  if (is_full()) throw InvalidArgument("a rank added more shards than it has in this step");
  const std::uint8_t merges = merges_[next_++];
  depth_ -= merges;
  std::byte* const flat = flat_data();
  std::byte* const to = is_full() ? flat : place(depth_);
  const std::byte* const only = flat;
  if (merges == 0 && to != flat) {
    ops::reduce(to, {&only, 1}, count_, dtype_, ops::ReduceOp::kSum, weight);
  } else if (weight != 1.0) {
    ops::scale_in_place(flat, count_, dtype_, weight);
  }
  if (wire_ != ops::WireFormat::kNative) ops::round_as_sent(merges == 0 ? to : flat, count_, wire_);
  if (merges != 0) {
    ops::TreeSum sum;
    sum.merges.assign(merges + std::size_t{1}, 0);
    sum.merges.back() = merges;
    sum.results.resize(1);
    sum.depth = sum.merges.size();
    std::vector<const std::byte*> sources;
    for (std::size_t i = 0; i < merges; ++i) sources.push_back(place(depth_ + i));
    sources.push_back(flat);
    const std::span<std::byte* const> destination(&to, 1);
    ops::sum_along_tree({&destination, 1}, sources, sum, count_, dtype_, wire_);
  }
  if (!is_full()) ++depth_;
}

std::vector<std::byte*> ShardStack::pieces() const {
  if (merges_.empty()) return {};
  std::vector<std::byte*> pieces;
  for (std::size_t i = 0; i < depth_; ++i) {
    pieces.push_back(static_cast<std::byte*>((*kept_)[i].data_ptr()));
  }
  pieces.push_back(flat_data());
  return pieces;
}

void ShardStack::clear() noexcept {
  next_ = 0;
  depth_ = 0;
}

}  // namespace chainmail::internal
