// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Which elements of which parameters travel together. Fragments are cut by elements, not by
// parameters or buckets: one large layer would make one large message, and the link would be idle
// for the rest of the time.
//
// Pure functions.

#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <c10/core/ScalarType.h>

#include "plugin/train/sharding/slice_cut.h"

namespace chainmail::internal {

struct FragmentItem {
  c10::ScalarType dtype = c10::kFloat;
  std::size_t elements = 0;
  bool is_rounded = false;  ///< to integers, on its way between nodes
};

/// What a fragment has of one type that travels in one way, in a row: its parts follow each other
/// without gaps.
struct FragmentRow {
  c10::ScalarType dtype = c10::kFloat;
  bool is_rounded = false;
  std::vector<SlicePart> parts;  ///< `parameter` is a position in the list of all

  std::size_t elements() const noexcept;
  /// Where each part lies in the row.
  [[nodiscard]] std::vector<ParameterPlace> places() const;
};

/// `fragments` lists of rows, each element of all `parameters` in one of them. Types in the order
/// in which they appear; of each type, rounded or not, all fragments have near equal numbers of
/// elements. A fragment has no empty rows, and none at all where there are fewer elements than
/// fragments.
[[nodiscard]] std::vector<std::vector<FragmentRow>> cut_into_fragments(
    std::span<const FragmentItem> parameters, std::size_t fragments);

/// `slices` + 1 ascending bounds from 0 to `elements`, near equal.
[[nodiscard]] std::vector<std::size_t> near_equal_bounds(std::size_t elements, std::size_t slices);

}  // namespace chainmail::internal
