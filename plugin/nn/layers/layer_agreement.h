// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Ranks that cut a layer otherwise are found before they exchange its parts: those would fit
// together all the same, or one rank would wait for what the others do not do.

#pragma once

#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include <chainmail/communicator.h>

#include "plugin/train/communicator/fields.h"

namespace chainmail::internal {

/// As a message shows it.
struct LayerOption {
  std::string name;
  std::string value;

  static constexpr char kObjectName[] = "option of a layer";
  static auto fields(auto& self) { return std::tie(self.name, self.value); }
};

/// All that must be the same on every rank.
struct LayerPlan {
  std::string kind;  ///< "ColumnParallelLinear"
  std::vector<LayerOption> options;

  static constexpr char kObjectName[] = "a layer that is cut over the ranks";
  static auto fields(auto& self) { return std::tie(self.kind, self.options); }
};

/// The first thing in which a rank differs from rank 0, empty where none does. Local.
[[nodiscard]] std::string find_difference(const std::vector<LayerPlan>& plans);

/// Throws a MismatchError on all ranks that names both sides when they do not make the same layer,
/// or InvalidArgument without a communicator. Collective.
void require_same_layer(const std::shared_ptr<Communicator>& communicator, const LayerPlan& own);

}  // namespace chainmail::internal
