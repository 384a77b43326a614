// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// wire = "auto": as what gradients travel, from what steps have taken (wire_choice.h). After the
// first sixteen steps of an exchange, half of them measured, and every thousand from then on.
//
// One thread per rank. Local but where it says collective.

#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <chainmail/communicator.h>

#include "ops/types.h"
#include "plugin/train/gradients/gradient_exchange.h"
#include "plugin/train/optimizer/parameter_list.h"

namespace chainmail::internal {

class AutoWire {
 public:
  /// Buckets of less travel as they are.
  static constexpr std::int64_t kLeastRoundedBytes = std::int64_t{256} << 10;

  /// Throws InvalidArgument for a communicator over which nothing can be chosen.
  explicit AutoWire(Communicator& communicator);

  /// Throws InvalidArgument, naming it, for a parameter on a GPU, whose exchanges take no time of
  /// the host's.
  static void check(const std::vector<NamedTensor>& parameters);

  /// What has been chosen last; native at first.
  ops::WireFormat wire() const noexcept { return wire_; }
  /// Other parameters are exchanged from `step` on: chooses soon.
  void begin(std::uint64_t step) noexcept { next_choice_ = step + kStepsBeforeChoice; }
  /// After `step` steps, over the ranks of `communicator`: as what `gradients`, `bytes` in a step,
  /// travel from now on; nothing when that stays. Collective where a choice is due, which all ranks
  /// know.
  [[nodiscard]] std::optional<ops::WireFormat> choose(Communicator& communicator,
                                                      const GradientExchange& gradients,
                                                      std::size_t bytes, std::uint64_t step);
  /// From `step` on; the next choice is a thousand steps away.
  void use(ops::WireFormat wire, std::uint64_t step) noexcept;

 private:
  static constexpr std::uint64_t kStepsBeforeChoice = 16;
  static constexpr std::uint64_t kStepsBetweenChoices = 1000;
  static constexpr std::uint64_t kMeasuredSteps = 8;

  ops::WireFormat wire_ = ops::WireFormat::kNative;
  std::uint64_t next_choice_ = kStepsBeforeChoice;
  std::chrono::steady_clock::time_point measured_since_;  ///< with what was known then
  GradientExchange::Times known_times_;
};

}  // namespace chainmail::internal
