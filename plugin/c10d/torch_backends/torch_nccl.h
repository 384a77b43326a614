// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Torch's own ProcessGroupNCCL in this process: opening of the library that makes it.
//
// Any thread.

#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <string>

namespace chainmail::internal {

/// Opens CUDA and the library. Throws InvalidArgument that begins with `who` and says in one
/// sentence what is missing.
void require_torch_nccl(const std::string& who);

/// A group over the ranks that join through `store`. Throws as above, and what torch throws.
[[nodiscard]] c10::intrusive_ptr<c10d::Backend> make_torch_nccl(
    const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
    std::chrono::milliseconds timeout);

}  // namespace chainmail::internal
