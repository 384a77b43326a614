// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Which ranks have a gradient of a parameter, and what follows from it.

#pragma once

#include <vector>

#include <chainmail/communicator.h>

#include "plugin/train/optimizer/parameter_list.h"

namespace chainmail::internal {

/// Who has a gradient of one parameter.
struct Presence {
  bool somewhere = false;  ///< on at least one rank
  bool everywhere = false;
};

/// Throws MismatchError on all ranks, naming the parameter and the ranks, when some have a gradient
/// of one of `parameters` and others have none. `presence` is equal on all ranks; `own` says for
/// which parameters this rank has one. Collective where it throws, local where it does not.
void require_equal_presence(Communicator& communicator, const std::vector<NamedTensor>& parameters,
                            const std::vector<Presence>& presence, const std::vector<char>& own);

}  // namespace chainmail::internal
