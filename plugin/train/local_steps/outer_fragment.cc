// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/train/local_steps/outer_fragment.h"

#include <algorithm>
#include <utility>

#include <ATen/ATen.h>

#include "base/bytes.h"
#include "plugin/train/sharding/slice_gather.h"
#include "plugin/train/tensor_checks.h"

namespace chainmail::internal {

namespace {

std::int64_t signed_size(std::size_t size) { return static_cast<std::int64_t>(size); }

// Replaces `changes`, which it keeps alive, by their mean over the nodes. What else a wire has to
// know of the elements, such as what it has rounded away so far, belongs here.
ops::Collective mean_over_nodes(const at::Tensor& changes, const ops::Group& cross,
                                const FragmentNumber& number) {
  ops::Collective collective;
  collective.kind = ops::OpKind::kAllReduce;
  collective.dtype = engine_type(changes.scalar_type(), "an exchange of local steps");
  collective.reduce_op = ops::ReduceOp::kAvg;
  collective.count = static_cast<std::size_t>(changes.numel());
  collective.output = static_cast<std::byte*>(changes.data_ptr());
  collective.wire = cross.options().wire;
  collective.shape_hash = number.hash();
  collective.describe_shapes = [changes, number] {
    return "[" + std::to_string(changes.numel()) + "] of " + number.describe();
  };
  return collective;
}

}  // namespace

std::uint32_t FragmentNumber::hash() const noexcept {
  NumberHash hash;
  for (const std::uint64_t part : {fragment, fragments, round, step, every}) hash.add(part);
  return hash.value();
}

std::string FragmentNumber::describe() const {
  return "fragment " + std::to_string(fragment) + " of " + std::to_string(fragments) +
         ", exchange " + std::to_string(round) + " after local step " + std::to_string(step) +
         ", every " + std::to_string(every) + " steps";
}

OuterFragment::OuterFragment(std::vector<FragmentRow> rows,
                             const std::vector<NamedTensor>& parameters, std::size_t slices,
                             std::size_t own) {
  const at::NoGradGuard no_grad;
  for (FragmentRow& layout : rows) {
    Row& row = rows_.emplace_back();
    row.dtype = layout.dtype;
    row.places = layout.places();
    row.bounds = near_equal_bounds(layout.elements(), slices);
    row.begin = row.bounds[std::min(own, slices)];
    row.end = row.bounds[std::min(own + 1, slices)];
    row.parts = std::move(layout.parts);
    for (const SlicePart& part : row.parts) {
      row.parameters.push_back(parameters.at(part.parameter).tensor);
    }
    row.common = row.read();
    row.velocity = at::zeros_like(row.common);
  }
}

at::Tensor OuterFragment::Row::read() const {
  const at::Tensor own =
      at::empty({signed_size(end - begin)}, at::TensorOptions(outer_type(dtype)));
  std::int64_t next = 0;
  for (const SlicePart& part : parts_of_slice(places, begin, end)) {
    const std::size_t first = parts[part.parameter].begin;
    const std::int64_t length = signed_size(part.end - part.begin);
    own.narrow(0, next, length)
        .copy_(row_of(parameters[part.parameter], first + part.begin, first + part.end));
    next += length;
  }
  return own;
}

void OuterFragment::Row::spread(const at::Tensor& own, ops::Group& node) const {
  const at::Tensor whole = at::empty({signed_size(elements())}, at::TensorOptions(dtype));
  if (owns_any()) whole.narrow(0, signed_size(begin), own.numel()).copy_(own);
  if (node.size() > 1) {
    auto cut = std::make_shared<ops::NodeCut>();
    cut->bounds = bounds;
    // Local ranks beyond those of the smallest node own nothing.
    cut->bounds.resize(static_cast<std::size_t>(node.size()) + 1, elements());
    gather_now(node, whole, std::move(cut), "parameters");
  }
  for (std::size_t p = 0; p < parts.size(); ++p) {
    row_of(parameters[p], parts[p].begin, parts[p].end)
        .copy_(whole.narrow(0, signed_size(places[p].begin), signed_size(places[p].count)));
  }
}

void OuterFragment::send(ops::Group& cross, const FragmentNumber& number) {
  const at::NoGradGuard no_grad;
  is_on_its_way_ = true;
  for (Row& row : rows_) {
    if (!row.owns_any()) continue;
    row.sent = row.read();
    row.mean = outer_difference(row.common, row.sent);
    row.operation = cross.submit(mean_over_nodes(row.mean, cross, number));
  }
}

void OuterFragment::complete(const OuterRule& rule, ops::Group& node) {
  const at::NoGradGuard no_grad;
  for (Row& row : rows_) {
    at::Tensor own;
    if (row.owns_any()) {
      row.operation->wait();
      row.operation.reset();
      outer_step(row.common, row.velocity, std::exchange(row.mean, {}), rule);
      own = row.read();
      merge_own(own, std::exchange(row.sent, {}), row.common, rule);
    }
    row.spread(own, node);
  }
  is_on_its_way_ = false;
}

void OuterFragment::drop() {
  for (Row& row : rows_) {
    if (row.operation) row.operation->wait();
    row.operation.reset();
    row.mean.reset();
    row.sent.reset();
  }
  is_on_its_way_ = false;
}

void OuterFragment::settle() {
  const at::NoGradGuard no_grad;
  for (const Row& row : rows_) {
    if (row.dtype != row.common.scalar_type()) row.common.copy_(row.read());
  }
}

std::vector<OuterFragment::Piece> OuterFragment::pieces() const {
  std::vector<Piece> pieces;
  for (const Row& row : rows_) {
    std::int64_t next = 0;
    for (const SlicePart& part : parts_of_slice(row.places, row.begin, row.end)) {
      const SlicePart& whole = row.parts[part.parameter];
      const std::int64_t length = signed_size(part.end - part.begin);
      pieces.push_back({whole.parameter, whole.begin + part.begin, whole.begin + part.end,
                        row.common.narrow(0, next, length), row.velocity.narrow(0, next, length)});
      next += length;
    }
  }
  return pieces;
}

}  // namespace chainmail::internal
