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

// That all ranks of a node are given at once.
constexpr std::size_t kSpreadElements = std::size_t{1} << 20;

std::int64_t signed_size(std::size_t size) { return static_cast<std::int64_t>(size); }

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
                             std::size_t own, ops::WireFormat wire) {
  const at::NoGradGuard no_grad;
  for (FragmentRow& layout : rows) {
    Row& row = rows_.emplace_back();
    row.dtype = layout.dtype;
    if (layout.is_rounded || !ops::is_in_blocks(wire)) row.wire = wire;
    row.places = layout.places();
    row.bounds = near_equal_bounds(layout.elements(), slices);
    row.begin = row.bounds[std::min(own, slices)];
    row.end = row.bounds[std::min(own + 1, slices)];
    row.parts = std::move(layout.parts);
    for (const SlicePart& part : row.parts) {
      row.parameters.push_back(parameters.at(part.parameter));
      row.strides.push_back(row.parameters.back().tensor.strides().vec());
    }
    row.common = row.read();
    row.velocity = at::zeros_like(row.common);
    if (ops::is_in_blocks(row.wire) && row.owns_any()) {
      row.residuals = std::make_shared<WireResiduals>(row.end - row.begin);
    }
  }
}

void OuterFragment::Row::check_order() const {
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    if (parameters[p].tensor.strides() == strides[p]) continue;
    throw InvalidArgument("local_steps: the elements of parameter '" + parameters[p].name +
                          "' lie in another order than when it was cut: change its memory format "
                          "before the optimizer is made, or call synchronize() after it");
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
        .copy_(row_of(parameters[part.parameter].tensor, first + part.begin, first + part.end));
    next += length;
  }
  return own;
}

ops::Collective OuterFragment::Row::mean_over_nodes(const at::Tensor& changes,
                                                    const FragmentNumber& number) const {
  ops::Collective collective;
  collective.kind = ops::OpKind::kAllReduce;
  collective.dtype = engine_type(changes.scalar_type(), "an exchange of local steps");
  collective.reduce_op = ops::ReduceOp::kAvg;
  collective.count = static_cast<std::size_t>(changes.numel());
  collective.output = static_cast<std::byte*>(changes.data_ptr());
  collective.wire = wire;
  if (residuals) {
    collective.feedback = residuals->next();
    collective.keep = residuals;
  }
  collective.shape_hash = number.hash();
  collective.describe_shapes = [changes, number] {
    return "[" + std::to_string(changes.numel()) + "] of " + number.describe();
  };
  return collective;
}

void OuterFragment::Row::spread(const at::Tensor& own, ops::Group& node) const {
  if (node.size() == 1) return write(own, begin, end);
  for (std::size_t from = 0; from < elements(); from += kSpreadElements) {
    const std::size_t to = std::min(from + kSpreadElements, elements());
    const at::Tensor values = at::empty({signed_size(to - from)}, at::TensorOptions(dtype));
    const std::size_t first = std::max(begin, from);
    const std::size_t last = std::min(end, to);
    if (first < last) {
      values.narrow(0, signed_size(first - from), signed_size(last - first))
          .copy_(own.narrow(0, signed_size(first - begin), signed_size(last - first)));
    }
    auto cut = std::make_shared<ops::NodeCut>();
    cut->bounds.clear();
    for (const std::size_t bound : bounds) {
      cut->bounds.push_back(std::clamp(bound, from, to) - from);
    }
    // Local ranks beyond those of the smallest node own nothing.
    cut->bounds.resize(static_cast<std::size_t>(node.size()) + 1, to - from);
    gather_now(node, values, std::move(cut), "parameters");
    write(values, from, to);
  }
}

void OuterFragment::Row::write(const at::Tensor& values, std::size_t from, std::size_t to) const {
  std::int64_t next = 0;
  for (const SlicePart& part : parts_of_slice(places, from, to)) {
    const std::size_t first = parts[part.parameter].begin;
    const std::int64_t length = signed_size(part.end - part.begin);
    row_of(parameters[part.parameter].tensor, first + part.begin, first + part.end)
        .copy_(values.narrow(0, next, length));
    next += length;
  }
}

void OuterFragment::send(ops::Group& cross, const FragmentNumber& number) {
  const at::NoGradGuard no_grad;
  for (const Row& row : rows_) row.check_order();
  is_on_its_way_ = true;
  for (Row& row : rows_) {
    if (!row.owns_any()) continue;
    row.sent = row.read();
    row.mean = outer_difference(row.common, row.sent);
    if (row.owed.defined()) row.mean.add_(std::exchange(row.owed, {}), cross.size());
    row.operation = cross.submit(row.mean_over_nodes(row.mean, number));
  }
}

void OuterFragment::complete(const OuterRule& rule, ops::Group& node) {
  const at::NoGradGuard no_grad;
  for (const Row& row : rows_) row.check_order();
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
                        row.common.narrow(0, next, length), row.velocity.narrow(0, next, length),
                        at::Tensor(), at::Tensor(), at::Tensor()});
      if (row.residuals) {
        pieces.back().contributions = row.residuals->contributions().narrow(0, next, length);
        pieces.back().results = row.residuals->results().narrow(0, next, length);
      }
      if (row.owed.defined()) pieces.back().owed = row.owed.narrow(0, next, length);
      next += length;
    }
  }
  return pieces;
}

void OuterFragment::owe(std::size_t parameter, std::size_t begin, const at::Tensor& values) {
  const at::NoGradGuard no_grad;
  const std::size_t end = begin + static_cast<std::size_t>(values.numel());
  for (Row& row : rows_) {
    std::int64_t next = 0;
    for (const SlicePart& part : parts_of_slice(row.places, row.begin, row.end)) {
      const SlicePart& whole = row.parts[part.parameter];
      const std::size_t first = whole.begin + part.begin;
      const std::size_t from = std::max(first, begin);
      const std::size_t to = std::min(whole.begin + part.end, end);
      if (whole.parameter == parameter && from < to) {
        if (!row.owed.defined()) row.owed = at::zeros_like(row.common);
        row.owed.narrow(0, next + signed_size(from - first), signed_size(to - from))
            .add_(values.narrow(0, signed_size(from - begin), signed_size(to - from)));
      }
      next += signed_size(part.end - part.begin);
    }
  }
}

void OuterFragment::clear_residuals() {
  for (Row& row : rows_) {
    if (row.residuals) *row.residuals = WireResiduals(row.end - row.begin);
    row.owed.reset();
  }
}

std::vector<WireResiduals*> OuterFragment::residuals() const {
  std::vector<WireResiduals*> all;
  for (const Row& row : rows_) {
    if (row.residuals) all.push_back(row.residuals.get());
  }
  return all;
}

}  // namespace chainmail::internal
