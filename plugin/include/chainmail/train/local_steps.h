// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Nodes that step by themselves and meet every few steps: for links between nodes that cannot carry
// the gradients of every step.

#pragma once

#include <cstdint>
#include <optional>

namespace chainmail {

/// Gradients are averaged inside each node only. Every `steps` steps each parameter's changes since
/// the last time are averaged over the nodes, and an outer optimizer, SGD with Nesterov's momentum,
/// steps with them: DiLoCo (Douillard et al., 2023), with `fragments` and `delay` Streaming DiLoCo
/// (2025). Every node counts alike, however many ranks it has. The same on all ranks.
///
/// `{.steps = 32, .outer_lr = 1, .outer_momentum = 0}` takes means of the parameters: local SGD
/// (Stich, 2019), with `start` post-local SGD (Lin et al., 2020).
struct LocalSteps {
  /// Of the wrapped optimizer, from one exchange of a parameter to its next.
  std::int64_t steps = 32;
  /// Parts of the parameters, with near equal numbers of elements, of which one is exchanged every
  /// steps / fragments steps. Must divide `steps`.
  std::int64_t fragments = 1;
  /// A fragment's mean is used so many steps after it was sent, and had them to travel in: less
  /// than steps / fragments. 0: the step waits for it.
  std::int64_t delay = 0;
  double outer_lr = 0.7;        ///< positive
  double outer_momentum = 0.9;  ///< from 0 up to, but not including, 1
  /// So many steps average gradients over all ranks before nodes begin to step by themselves.
  std::int64_t start = 0;
  /// What becomes of the steps made while a fragment was on its way. Unset: they are added to the
  /// new common value. From 0 to 1: this part of the node's own value and the rest of the common
  /// one, as in Streaming DiLoCo.
  std::optional<double> merge = std::nullopt;
};

}  // namespace chainmail
