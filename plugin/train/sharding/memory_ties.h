// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Parameters that lie in the same memory without being the same tensor, by set_data() or as views:
// torch writes both at once, while ranks that own parts of each would write different values.
//
// Pure functions. Local.

#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "plugin/train/optimizer/parameter_list.h"

namespace chainmail::internal {

/// Positions of two tensors that have elements in common, the lower one first.
struct MemoryTie {
  std::size_t first = 0;
  std::size_t second = 0;
  auto operator<=>(const MemoryTie&) const = default;
};

/// Such a pair of `tensors`, each of which is another tensor, the lowest where no three have memory
/// in common; nothing where there is none. The same on ranks that have built the same, wherever it
/// lies there. With `of_trained_only` pairs
/// of two that need no gradient do not count. Tensors without elements, views side by side and rows
/// that lie between each other have nothing in common.
[[nodiscard]] std::optional<MemoryTie> find_memory_tie(std::span<const NamedTensor> tensors,
                                                       bool of_trained_only = false);

/// "parameters 'a' and 'b' have memory in common"; the same on all ranks.
[[nodiscard]] std::string describe_memory_tie(const std::string& first, const std::string& second);

/// Throws InvalidArgument that says so, `tie`, for `who` ("share_parameters"), and `instead`, what
/// to try besides.
[[noreturn]] void refuse_memory_tie(const std::string& who, const std::string& tie,
                                    const std::string& instead);

/// Where tensors lie: changes whenever one of them gets other memory. Cheap enough for every step.
[[nodiscard]] std::vector<const void*> addresses_of(std::span<const NamedTensor> tensors);

}  // namespace chainmail::internal
