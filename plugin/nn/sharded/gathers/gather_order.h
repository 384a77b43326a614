// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Which unit is gathered after which, learned from what was gathered so far, so that the next one
// can be on its way while this one computes.
//
// Depends on nothing but the gathers themselves, so that all ranks, whose gathers are the same,
// expect the same. One thread at a time.

#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>

namespace chainmail::internal {

enum class Pass : std::uint8_t { kForward, kBackward };

/// One gather.
struct GatherEvent {
  std::uint64_t unit = 0;  ///< its number
  Pass pass = Pass::kForward;
  bool operator==(const GatherEvent&) const = default;
};

class GatherOrder {
 public:
  /// Takes note of a gather, and says which one followed the last time that these three came one
  /// after another, unless it has not been the same every time, or belongs to another walk through
  /// the model: where the pass changes or a unit comes again, parameters may have changed.
  [[nodiscard]] std::optional<GatherEvent> next_after(const GatherEvent& event);
  /// Units have come or gone.
  void forget();

 private:
  struct Successor {
    GatherEvent event;
    bool is_sure = true;
  };
  std::uint64_t context() const noexcept;

  std::unordered_map<std::uint64_t, Successor> successors_;   ///< by what came before
  std::unordered_map<std::uint64_t, std::uint64_t> walk_of_;  ///< in which a unit came last
  std::uint64_t recent_[3] = {};
  std::optional<GatherEvent> last_;
  std::uint64_t walk_ = 1;
};

}  // namespace chainmail::internal
