// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/train/sharding/slice_gather.h"

#include <algorithm>
#include <string>
#include <utility>

#include <ATen/ATen.h>

#include "plugin/tensor/tensor_bytes.h"
#include "plugin/train/communicator/communicator_impl.h"
#include "plugin/train/optimizer/grad_norm.h"
#include "plugin/train/tensor_checks.h"

namespace chainmail::internal {

namespace {

ops::Collective gather_of(const at::Tensor& flat, std::shared_ptr<const ops::NodeCut> cut,
                          const char* what) {
  ops::Collective gather;
  gather.kind = ops::OpKind::kAllGather;
  gather.dtype = engine_type(flat.scalar_type(), what);
  gather.count = cut->bounds.back();
  gather.output = static_cast<std::byte*>(flat.data_ptr());
  gather.cut = std::move(cut);
  gather.describe_shapes = [flat, what, count = gather.count] {
    return "slices of " + std::string(what) + " [" + std::to_string(count) + "]";
  };
  return gather;
}

}  // namespace

std::shared_ptr<ops::Operation> start_gather(ops::Group& group, const at::Tensor& flat,
                                             std::shared_ptr<const ops::NodeCut> cut,
                                             const char* what) {
  return group.submit(gather_of(flat, std::move(cut), what));
}

void gather_now(ops::Group& group, const at::Tensor& flat, std::shared_ptr<const ops::NodeCut> cut,
                const char* what) {
  group.run(gather_of(flat, std::move(cut), what));
}

std::shared_ptr<const ops::NodeCut> slices_of_gradients(const GradientBucket& bucket) {
  auto cut = std::make_shared<ops::NodeCut>(*bucket.slices());
  cut->bounds.back() = cut->common_from;
  cut->common_from = 0;
  return cut;
}

at::Tensor row_of(const at::Tensor& parameter, std::size_t begin, std::size_t end) {
  const at::Tensor detached = parameter.detach();
  return detached.as_strided({static_cast<std::int64_t>(end - begin)}, {1},
                             detached.storage_offset() + static_cast<std::int64_t>(begin));
}

void take_parameters(const GradientBucket& bucket, const at::Tensor& row, std::size_t own) {
  const ops::NodeCut& cut = *bucket.slices();
  for (std::size_t owner = 0; owner < cut.owners(); ++owner) {
    if (owner == own) continue;
    for (const SlicePart& part :
         parts_of_slice(bucket.places(), cut.bounds[owner], cut.bounds[owner + 1])) {
      const at::Tensor& parameter = bucket.parameters()[part.parameter].tensor;
      const auto from =
          static_cast<std::int64_t>(bucket.places()[part.parameter].begin + part.begin);
      const auto length = static_cast<std::int64_t>(part.end - part.begin);
      row_of(parameter, part.begin, part.end).copy_(row.narrow(0, from, length));
    }
  }
}

NormLayout::NormLayout(const std::vector<GradientBucket>& buckets) {
  for (const GradientBucket& bucket : buckets) {
    const ops::NodeCut& cut = *bucket.slices();
    is_over_nodes_ = cut.is_over_nodes;
    std::vector<std::size_t>& positions = positions_.emplace_back();
    for (const ParameterPlace& place : bucket.places()) {
      positions.push_back(size_);
      size_ += norm_blocks(place.count);
    }
    owned_.resize(cut.owners());
    for (std::size_t owner = 0; owner < cut.owners(); ++owner) {
      for (const SlicePart& part :
           parts_of_slice(bucket.places(), cut.bounds[owner], cut.bounds[owner + 1])) {
        const std::size_t first = positions[part.parameter] + part.begin / kSliceUnit;
        const std::size_t blocks = norm_blocks(part.end - part.begin);
        for (std::size_t b = 0; b < blocks; ++b) owned_[owner].push_back(first + b);
      }
    }
  }
}

std::size_t NormLayout::position(std::size_t bucket, std::size_t index) const {
  return positions_.at(bucket).at(index);
}

void NormLayout::gather(ops::Group& group, std::span<double> sums) const {
  if (owned_.empty()) return;  // nothing is trained
  auto cut = std::make_shared<ops::NodeCut>();
  cut->bounds.assign(1, 0);
  cut->is_over_nodes = is_over_nodes_;
  const at::Tensor row =
      at::empty({static_cast<std::int64_t>(size_)}, c10::TensorOptions(c10::kDouble));
  auto* const values = row.mutable_data_ptr<double>();
  std::size_t next = 0;
  for (const std::vector<std::size_t>& positions : owned_) {
    for (const std::size_t position : positions) values[next++] = sums[position];
    cut->bounds.push_back(next);
  }
  gather_now(group, row, std::move(cut), "squares of gradients");
  next = 0;
  for (const std::vector<std::size_t>& positions : owned_) {
    for (const std::size_t position : positions) sums[position] = values[next++];
  }
}

void StateGather::add(const Place& place, ParameterState state) {
  own_[{place.bucket, place.index}] = {place, std::move(state)};
}

// Who has no part of a parameter learns from the others what there is.
std::map<StateGather::Key, StateGather::Record> StateGather::find_records() {
  std::vector<std::vector<std::int64_t>> own;
  for (const auto& [key, entry] : own_) {
    const ParameterState& state = entry.second;
    std::vector<std::int64_t> record{static_cast<std::int64_t>(key.first),
                                     static_cast<std::int64_t>(key.second), state.step};
    for (const at::Tensor& tensor : state.tensors) {
      record.push_back(tensor.defined() ? static_cast<std::int64_t>(tensor.scalar_type()) : -1);
    }
    own.push_back(std::move(record));
  }
  std::map<Key, Record> records;
  for (const auto& of_rank : communicator_.allgather_obj(own)) {
    for (const std::vector<std::int64_t>& record : of_rank) {
      records.try_emplace(
          {static_cast<std::size_t>(record.at(0)), static_cast<std::size_t>(record.at(1))},
          record.begin() + 2, record.end());
    }
  }
  return records;
}

at::Tensor StateGather::gather_one(const Key& key, std::size_t tensor, c10::ScalarType dtype) {
  const GradientBucket& bucket = exchange_.collected()[key.first];
  const ParameterPlace& place = bucket.places()[key.second];
  const at::Tensor& parameter = bucket.parameters()[key.second].tensor;
  const at::Tensor whole = at::empty_like(parameter.detach(), c10::TensorOptions(dtype));
  const at::Tensor row = whole.as_strided({whole.numel()}, {1});
  if (const auto found = own_.find(key); found != own_.end()) {
    const auto& [part, state] = found->second;
    row.narrow(0, static_cast<std::int64_t>(part.begin),
               static_cast<std::int64_t>(part.end - part.begin))
        .copy_(state.tensors.at(tensor));
  }
  auto cut = std::make_shared<ops::NodeCut>();
  cut->bounds.clear();
  cut->is_over_nodes = bucket.slices()->is_over_nodes;
  for (const std::size_t bound : bucket.slices()->bounds) {
    cut->bounds.push_back(std::clamp(bound, place.begin, place.begin + place.count) - place.begin);
  }
  gather_now(*communicator_.impl().group, row, std::move(cut), "an optimizer's state");
  return whole;
}

void StateGather::run(const std::function<void(const at::Tensor&, ParameterState)>& use) {
  for (const auto& [key, record] : find_records()) {
    ParameterState state;
    state.step = record.at(0);
    for (std::size_t t = 1; t < record.size(); ++t) {
      const auto dtype = static_cast<c10::ScalarType>(record[t]);
      state.tensors.push_back(record[t] < 0 ? at::Tensor() : gather_one(key, t - 1, dtype));
    }
    own_.erase(key);
    use(exchange_.collected()[key.first].parameters()[key.second].tensor, std::move(state));
  }
}

}  // namespace chainmail::internal
