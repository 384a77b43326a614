// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Torch's own ProcessGroupNCCL in this process: opening of the library that makes it.
//
// Any thread.

#pragma once

#include <string>

namespace chainmail::internal {

/// Opens CUDA and the library. Throws InvalidArgument that begins with `who` and says in one
/// sentence what is missing.
void require_torch_nccl(const std::string& who);

}  // namespace chainmail::internal
