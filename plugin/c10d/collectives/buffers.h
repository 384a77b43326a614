// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The buffers of a collective: the caller's tensors themselves where each is flat, so that nothing
// is copied, otherwise one flat tensor of ours.

#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <vector>

#include "ops/engine/group.h"
#include "plugin/c10d/work/work.h"

namespace chainmail::internal {

/// Makes `collective` read from `flat`, or write to it; `payload` keeps the tensor alive.
void set_input(const at::Tensor& flat, ops::Collective& collective, Payload& payload);
void set_output(const at::Tensor& flat, ops::Collective& collective, Payload& payload);

/// Makes `collective` write to `flat`, and copies the results from there to `tensors` unless they
/// are the same memory.
void set_output(const at::Tensor& flat, const std::vector<at::Tensor>& tensors,
                ops::Collective& collective, Payload& payload);

/// Makes `collective` read from `parts`, one tensor for each rank.
void set_input_parts(const std::vector<at::Tensor>& parts, ops::Collective& collective,
                     Payload& payload);

/// Makes `collective` write to `parts`: one tensor or more for rank 0, then for rank 1 and so on. A
/// copy, where needed, is made before what payload.copy_out already does.
void set_output_parts(const std::vector<at::Tensor>& parts, std::size_t ranks,
                      ops::Collective& collective, Payload& payload);

/// Views of `wholes`, each of which has `ranks` equal parts: all parts of rank 0, then of rank 1.
/// Part i has the size of `parts[i]`. `whole` and `part` name them in c10::Error.
[[nodiscard]] std::vector<at::Tensor> slices_by_rank(const std::vector<at::Tensor>& wholes,
                                                     const std::vector<at::Tensor>& parts,
                                                     int ranks, const char* what, const char* whole,
                                                     const char* part);

}  // namespace chainmail::internal
