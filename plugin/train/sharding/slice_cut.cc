// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/train/sharding/slice_cut.h"

#include <algorithm>
#include <numeric>

namespace chainmail::internal {

std::vector<std::size_t> cut_into_slices(std::span<const ParameterPlace> places, std::size_t end,
                                         std::size_t slices, std::size_t unit) {
  std::vector<std::size_t> bounds{0};
  auto place = places.begin();
  for (std::size_t slice = 1; slice < slices; ++slice) {
    const std::size_t wanted = end / slices * slice + end % slices * slice / slices;
    while (place != places.end() && place->begin + place->count <= wanted) ++place;
    if (place == places.end()) {
      bounds.push_back(end);
    } else if (wanted <= place->begin) {
      bounds.push_back(place->begin);
    } else {
      bounds.push_back(place->begin + (wanted - place->begin) / unit * unit);
    }
  }
  bounds.push_back(end);
  return bounds;
}

std::vector<std::size_t> share_whole(std::span<const std::size_t> counts, std::size_t owners) {
  std::vector<std::size_t> by_size(counts.size());
  std::iota(by_size.begin(), by_size.end(), std::size_t{0});
  std::stable_sort(by_size.begin(), by_size.end(),
                   [&](std::size_t a, std::size_t b) { return counts[a] > counts[b]; });
  std::vector<std::size_t> owner_of(counts.size());
  std::vector<std::size_t> held(owners);
  for (const std::size_t parameter : by_size) {
    const auto least = std::min_element(held.begin(), held.end());
    owner_of[parameter] = static_cast<std::size_t>(least - held.begin());
    *least += counts[parameter];
  }
  return owner_of;
}

std::vector<SlicePart> parts_of_slice(std::span<const ParameterPlace> places, std::size_t begin,
                                      std::size_t end) {
  std::vector<SlicePart> parts;
  for (std::size_t i = 0; i < places.size(); ++i) {
    const ParameterPlace& place = places[i];
    const std::size_t from = std::max(begin, place.begin);
    const std::size_t to = std::min(end, place.begin + place.count);
    if (from < to) parts.push_back({i, from - place.begin, to - place.begin});
  }
  return parts;
}

}  // namespace chainmail::internal
