// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The mean of gradients without buckets; what the communicator "naive" does.

#pragma once

#include <vector>

#include <chainmail/communicator.h>

#include "plugin/train/optimizer/parameter_list.h"

namespace chainmail::internal {

/// Replaces every gradient by its mean over the ranks, one message each. Nothing is packed, so who
/// has which gradient travels first and by itself. Collective.
void exchange_one_by_one(Communicator& communicator, const std::vector<NamedTensor>& parameters,
                         bool zero_fill);

}  // namespace chainmail::internal
