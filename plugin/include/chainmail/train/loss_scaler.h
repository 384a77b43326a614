// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Dynamic loss scaling for models that compute in float16, whose small gradients would be zero
// otherwise (Micikevicius et al., 2018); the rules are those of torch.amp.GradScaler.
//
// Give it to create_multi_node_optimizer as {.loss_scaler = scaler}, and call
// scaler->scale(loss).backward(). step() then divides the means by the scale that their losses were
// multiplied with, before it clips them; when a mean is not finite it changes nothing, on all ranks
// alike, and the scale shrinks. The state is the same on all ranks. One thread per rank.
//
// Gradients are divided where they lie: those of float16 parameters become zero below 6e-8. Keep
// parameters in float32, and let autocast compute in float16, where that matters.

#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include <chainmail/export.h>

namespace chainmail {

/// The rules by which the scale changes.
struct LossScalerOptions {
  double initial_scale = 65536;  ///< of the first losses
  double growth_factor = 2;      ///< after growth_interval steps in a row with finite gradients
  double backoff_factor = 0.5;   ///< after a step without
  std::int64_t growth_interval = 2000;  ///< in steps
};

/// The scale of losses, the same on all ranks. Local; shared with the optimizer that updates it.
class CHAINMAIL_API LossScaler {
 public:
  /// Plain values, for checkpoints.
  struct State {
    double scale = 0;               ///< of the next losses
    std::int64_t finite_steps = 0;  ///< since the scale changed last
  };

  /// @throws InvalidArgument  a factor on the wrong side of 1, a scale or interval that is not
  ///                          positive
  explicit LossScaler(const LossScalerOptions& options = {});

  /// `loss` times the scale, in float32 at least. Local. The scale changes in step() and flush()
  /// only, so all backwards of an accumulated step have the same.
  [[nodiscard]] at::Tensor scale(const at::Tensor& loss) const;
  /// The factor of the next losses.
  double get_scale() const noexcept { return state_.scale; }

  /// What the optimizer calls after each step: whether the gradients were finite, and the scale
  /// they were made with. One that is not the current one any more (double buffering) does not
  /// shrink the scale a second time for one mistake.
  void update(bool is_finite, double made_with) noexcept;

  /// What it was made with.
  const LossScalerOptions& options() const noexcept { return options_; }
  /// What load_state() takes.
  State state() const noexcept { return state_; }
  /// Ranks must agree; after loading on rank 0 alone, synchronize() of the optimizer tells the
  /// rest.
  /// @throws InvalidArgument  no positive scale
  void load_state(const State& state);

 private:
  LossScalerOptions options_;
  State state_;
};

}  // namespace chainmail
