// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// How ranks shall be bound to processors: what --bind-to and --map-by ask for. A value.

#pragma once

#include <cstdint>

namespace chainmail::launch {

/// What one rank may run on. The numbers travel to the agents.
enum class BindTo : std::uint8_t {
  kShare = 0,     ///< neighbouring cores, as many as an even share gives; the default
  kNone = 1,      ///< whatever the agent may run on
  kHwthread = 2,  ///< one logical processor
  kCore = 3,      ///< one core with its hardware threads
  kL3 = 4,        ///< the cores that share a level-3 cache
  kNuma = 5,      ///< a NUMA node
  kSocket = 6,    ///< a processor package
};
inline constexpr std::uint8_t kBindToCount = 7;

struct Binding {
  BindTo to = BindTo::kShare;
  /// Cores (or hardware threads) of each rank with kCore (kHwthread): `--map-by slot:pe=N`.
  std::uint32_t width = 1;
  /// Neighbouring ranks go to different L3 caches, NUMA nodes or sockets instead of filling one
  /// before the next: `--map-by socket`.
  bool scatter = false;
  /// More ranks than cores share them instead of being refused.
  bool overload = false;
  static void fields(auto& archive, auto& m) { archive(m.to, m.width, m.scatter, m.overload); }
};

}  // namespace chainmail::launch
