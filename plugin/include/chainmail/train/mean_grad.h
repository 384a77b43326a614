// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What ChainerMN's communicators did with models, for training loops that do without a multi-node
// optimizer.
//
// Collective: every rank calls with the same model. One thread per rank.

#pragma once

#include <chainmail/communicator.h>
#include <chainmail/train/module_ref.h>

namespace chainmail {

/// Gives every rank the parameters and buffers of rank 0, bit for bit.
/// @throws MismatchError  on all ranks: other shapes or dtypes on some rank
CHAINMAIL_API void bcast_data(Communicator& communicator, const ModuleRef& model);

/// Replaces the gradients of all trainable parameters by their means over the ranks. A parameter
/// without a gradient on every rank keeps none.
///
/// @param zero_fill  a gradient that is missing on some ranks counts as zero there; otherwise that
///                   is an error
/// @throws MismatchError  on all ranks, with the parameter's name and the ranks
CHAINMAIL_API void multi_node_mean_grad(Communicator& communicator, const ModuleRef& model,
                                        bool zero_fill = false);

}  // namespace chainmail
