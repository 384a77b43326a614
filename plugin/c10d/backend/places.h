// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Where the ranks' parts of an operation lie: in the tensors that the caller gave, where each is
// flat, so that nothing is copied; else in one flat tensor of ours.

#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <vector>

#include "ops/engine/group.h"
#include "plugin/c10d/work/work.h"

namespace chainmail::internal {

/// Has `collective` read `flat`, or write to it. Whatever the engine is given the address of,
/// `payload` keeps.
void read_from(const at::Tensor& flat, ops::Collective& collective, Payload& payload);
void write_to(const at::Tensor& flat, ops::Collective& collective, Payload& payload);

/// Has `collective` read one tensor for each of the ranks from `parts`.
void read_parts(const std::vector<at::Tensor>& parts, ops::Collective& collective,
                Payload& payload);

/// Has `collective` write what it gets from rank 0, rank 1 ... to `parts`, a tensor or several of
/// each of the `ranks`. A copy, where needed, is made before what copy_out does already.
void write_parts(const std::vector<at::Tensor>& parts, std::size_t ranks,
                 ops::Collective& collective, Payload& payload);

}  // namespace chainmail::internal
