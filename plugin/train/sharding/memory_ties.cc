// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/train/sharding/memory_ties.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include <chainmail/error.h>

namespace chainmail::internal {

namespace {

// Bytes without a gap between them that a tensor has.
struct Stretch {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
  std::size_t owner = 0;
};

bool occupies_memory(const at::Tensor& tensor) {
  return tensor.defined() && tensor.layout() == c10::kStrided && tensor.has_storage() &&
         tensor.numel() != 0 && tensor.storage().data() != nullptr;
}

std::uintptr_t begin_of(const at::Tensor& tensor) {
  return reinterpret_cast<std::uintptr_t>(tensor.const_data_ptr());
}

// From the first byte to the last one, with what lies between.
Stretch extent_of(const at::Tensor& tensor, std::size_t owner) {
  std::int64_t last = 0;
  for (std::int64_t d = 0; d < tensor.dim(); ++d) last += (tensor.size(d) - 1) * tensor.stride(d);
  const std::uintptr_t begin = begin_of(tensor);
  return {begin, begin + static_cast<std::uintptr_t>((last + 1) * tensor.element_size()), owner};
}

void add_elements(const at::Tensor& tensor, std::size_t owner, std::vector<Stretch>& stretches) {
  if (tensor.is_non_overlapping_and_dense()) {
    stretches.push_back(extent_of(tensor, owner));
    return;
  }
  const auto element = static_cast<std::uintptr_t>(tensor.element_size());
  std::vector<std::int64_t> index(static_cast<std::size_t>(tensor.dim()));
  const std::uintptr_t first = begin_of(tensor);
  for (std::int64_t left = tensor.numel(); left > 0; --left) {
    std::int64_t offset = 0;
    for (std::size_t d = 0; d < index.size(); ++d) offset += index[d] * tensor.strides()[d];
    const std::uintptr_t begin = first + static_cast<std::uintptr_t>(offset) * element;
    if (!stretches.empty() && stretches.back().owner == owner && stretches.back().end == begin) {
      stretches.back().end += element;
    } else {
      stretches.push_back({begin, begin + element, owner});
    }
    for (std::size_t d = index.size(); d-- > 0;) {
      if (++index[d] < tensor.sizes()[d]) break;
      index[d] = 0;
    }
  }
}

// Two that overlap both reach behind the begin of the later one, and so does the one that reaches
// furthest of those before it.
std::optional<MemoryTie> lowest_overlap(std::vector<Stretch> stretches,
                                        std::span<const NamedTensor> tensors,
                                        bool of_trained_only) {
  std::ranges::sort(stretches, [](const Stretch& a, const Stretch& b) {
    return std::pair(a.begin, a.owner) < std::pair(b.begin, b.owner);
  });
  const auto counts = [&](std::size_t a, std::size_t b) {
    return a != b && (!of_trained_only || tensors[a].tensor.requires_grad() ||
                      tensors[b].tensor.requires_grad());
  };
  std::optional<MemoryTie> lowest;
  Stretch furthest;
  for (const Stretch& stretch : stretches) {
    if (stretch.begin < furthest.end && counts(furthest.owner, stretch.owner)) {
      const MemoryTie tie{std::min(furthest.owner, stretch.owner),
                          std::max(furthest.owner, stretch.owner)};
      lowest = lowest ? std::min(*lowest, tie) : tie;
    }
    if (stretch.end > furthest.end) furthest = stretch;
  }
  return lowest;
}

}  // namespace

std::optional<MemoryTie> find_memory_tie(std::span<const NamedTensor> tensors,
                                         bool of_trained_only) {
  std::vector<Stretch> extents;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (occupies_memory(tensors[i].tensor)) extents.push_back(extent_of(tensors[i].tensor, i));
  }
  if (!lowest_overlap(extents, tensors, of_trained_only)) return std::nullopt;
  std::vector<Stretch> elements;
  for (const Stretch& extent : extents) {
    add_elements(tensors[extent.owner].tensor, extent.owner, elements);
  }
  return lowest_overlap(std::move(elements), tensors, of_trained_only);
}

std::string describe_memory_tie(const std::string& first, const std::string& second) {
  return "parameters '" + first + "' and '" + second + "' have memory in common";
}

void refuse_memory_tie(const std::string& who, const std::string& tie, const std::string& instead) {
  throw InvalidArgument(
      who + ": " + tie +
      " without being the same tensor (set_data(), or views that overlap), and ranks that have "
      "parts of each would give them different values; register one module, or one tensor, in both "
      "places" +
      instead);
}

std::vector<const void*> addresses_of(std::span<const NamedTensor> tensors) {
  std::vector<const void*> addresses;
  addresses.reserve(tensors.size());
  for (const NamedTensor& named : tensors) {
    addresses.push_back(occupies_memory(named.tensor) ? named.tensor.const_data_ptr() : nullptr);
  }
  return addresses;
}

}  // namespace chainmail::internal
