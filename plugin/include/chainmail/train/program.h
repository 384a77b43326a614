// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What training programs do at their start, from the words of a command line.

#pragma once

#include <optional>
#include <string_view>

#include <c10/core/ScalarType.h>

#include <chainmail/communicator.h>
#include <chainmail/export.h>

namespace chainmail {

/// The value of CommunicatorOptions::allreduce_grad_dtype for float16 (fp16), bfloat16 (bf16) or
/// float32 (fp32); unset for an empty name.
/// @throws InvalidArgument  another name
[[nodiscard]] CHAINMAIL_API std::optional<c10::ScalarType> parse_wire_dtype(std::string_view name);

/// Gives torch this rank's share of the node's cores, unless OMP_NUM_THREADS is set. Our launcher
/// sets it; other starters leave every rank with threads for all cores, and spinning threads on
/// shared cores make a step many times slower. Local; before the first operation of torch.
CHAINMAIL_API void choose_threads(const Communicator& communicator);

}  // namespace chainmail
