// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What a checkpoint has to know of a multi-node optimizer with local steps.

#pragma once

#include <chainmail/optimizer.h>

#include "plugin/train/local_steps/local_stepping.h"
#include "plugin/train/optimizer/model_exchange.h"

namespace chainmail::internal {

struct LocalAccess {
  /// Null without local steps.
  static LocalStepping* stepping(const MultiNodeOptimizer& optimizer) {
    return optimizer.local_stepping();
  }
  static ModelExchange& model(const MultiNodeOptimizer& optimizer) { return optimizer.exchange(); }
};

}  // namespace chainmail::internal
