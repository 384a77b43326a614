// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/train/local_steps/fragment_cut.h"

#include <algorithm>
#include <array>
#include <utility>

namespace chainmail::internal {

namespace {

// The parameters of one type that travel in one way, one after the other.
struct TypedRow {
  c10::ScalarType dtype;
  bool is_rounded;
  std::vector<std::size_t> parameters;
  std::vector<ParameterPlace> places;
  std::size_t end = 0;
};

std::vector<TypedRow> rows_by_type(std::span<const FragmentItem> parameters) {
  std::vector<TypedRow> rows;
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    const FragmentItem& item = parameters[p];
    auto row = std::ranges::find_if(rows, [&](const TypedRow& known) {
      return known.dtype == item.dtype && known.is_rounded == item.is_rounded;
    });
    if (row == rows.end()) {
      row = rows.insert(rows.end(), TypedRow{item.dtype, item.is_rounded, {}, {}, 0});
    }
    row->parameters.push_back(p);
    row->places.push_back({row->end, item.elements});
    row->end += item.elements;
  }
  return rows;
}

}  // namespace

std::size_t FragmentRow::elements() const noexcept {
  std::size_t sum = 0;
  for (const SlicePart& part : parts) sum += part.end - part.begin;
  return sum;
}

std::vector<ParameterPlace> FragmentRow::places() const {
  std::vector<ParameterPlace> places;
  std::size_t begin = 0;
  for (const SlicePart& part : parts) {
    places.push_back({begin, part.end - part.begin});
    begin += part.end - part.begin;
  }
  return places;
}

std::vector<std::vector<FragmentRow>> cut_into_fragments(std::span<const FragmentItem> parameters,
                                                         std::size_t fragments) {
  std::vector<std::vector<FragmentRow>> result(fragments);
  for (const TypedRow& typed : rows_by_type(parameters)) {
    const std::vector<std::size_t> bounds = near_equal_bounds(typed.end, fragments);
    for (std::size_t f = 0; f < fragments; ++f) {
      FragmentRow row{typed.dtype, typed.is_rounded,
                      parts_of_slice(typed.places, bounds[f], bounds[f + 1])};
      for (SlicePart& part : row.parts) part.parameter = typed.parameters[part.parameter];
      if (!row.parts.empty()) result[f].push_back(std::move(row));
    }
  }
  return result;
}

std::vector<std::size_t> near_equal_bounds(std::size_t elements, std::size_t slices) {
  const std::array<ParameterPlace, 1> all{{{0, elements}}};
  return cut_into_slices(all, elements, slices, /*unit=*/1);
}

}  // namespace chainmail::internal
