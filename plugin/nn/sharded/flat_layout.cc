// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/nn/sharded/flat_layout.h"

#include <algorithm>

#include "base/bytes.h"

namespace chainmail::internal {

namespace {

// A slice ends so many elements after the first one of the parameter that it cuts: whole vectors
// of every instruction set, for every dtype.
constexpr std::size_t kCutElements = 64;
// Gradients of a rank start on a cache line, whatever their dtype.
constexpr std::size_t kGradientUnit = 64;

bool has_equal_nodes(const ops::Topology& topology) {
  return topology.min_local_size() * topology.node_count() == topology.size();
}

}  // namespace

std::size_t FlatLayout::begin_of(int rank) const {
  return bounds[position_of_rank[static_cast<std::size_t>(rank)]];
}

std::size_t FlatLayout::length_of(int rank) const {
  const std::size_t position = position_of_rank[static_cast<std::size_t>(rank)];
  return bounds[position + 1] - bounds[position];
}

std::vector<SlicePart> FlatLayout::parts_of(int rank) const {
  return parts_of_slice(places, begin_of(rank), begin_of(rank) + length_of(rank));
}

FlatLayout lay_out(std::span<const std::size_t> counts, const ops::Topology& topology) {
  FlatLayout layout;
  std::size_t end = 0;
  for (const std::size_t count : counts) {
    layout.places.push_back({end, count});
    end += round_up(count, kCutElements);
  }
  const auto ranks = static_cast<std::size_t>(topology.size());
  layout.bounds = cut_into_slices(layout.places, end, ranks, kCutElements);
  const bool is_by_local_rank = has_equal_nodes(topology);
  for (int rank = 0; rank < topology.size(); ++rank) {
    layout.position_of_rank.push_back(static_cast<std::size_t>(
        is_by_local_rank
            ? topology.local_rank_of(rank) * topology.node_count() + topology.node_of(rank)
            : rank));
  }
  return layout;
}

GradientLayout gradients_of(const FlatLayout& layout, const std::vector<char>& is_present, int rank,
                            const ops::Topology& topology) {
  GradientLayout gradients;
  gradients.is_present = is_present;
  std::vector<std::size_t> begins;
  const std::size_t own = layout.position_of_rank[static_cast<std::size_t>(rank)];
  for (std::size_t s = 0; s + 1 < layout.bounds.size(); ++s) {
    begins.push_back(gradients.count);
    for (const SlicePart& part :
         parts_of_slice(layout.places, layout.bounds[s], layout.bounds[s + 1])) {
      if (is_present[part.parameter] == 0) continue;
      gradients.pieces.push_back({part, gradients.count});
      if (s == own) gradients.own.push_back(gradients.pieces.back());
      gradients.count += part.end - part.begin;
    }
    gradients.count = round_up(gradients.count, kGradientUnit);
  }
  begins.push_back(gradients.count);
  if (has_equal_nodes(topology)) {
    const auto nodes = static_cast<std::size_t>(topology.node_count());
    ops::NodeCut cut{.bounds = {}, .common_from = gradients.count};
    for (std::size_t s = 0; s < begins.size(); s += nodes) cut.bounds.push_back(begins[s]);
    gradients.cut = std::make_shared<const ops::NodeCut>(std::move(cut));
  }
  return gradients;
}

std::size_t most_elements(const FlatLayout& layout) {
  return layout.bounds.back() + layout.position_of_rank.size() * kGradientUnit;
}

}  // namespace chainmail::internal
