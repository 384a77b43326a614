// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Torch's own NCCL group, whose class only libtorch_cuda has: a small library that links it makes
// the object and is opened when somebody asks, so that CPU programs never load libtorch_cuda.

#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>

namespace chainmail::internal {

/// Puts a ProcessGroupNCCL over `store` into `made`. Throws what torch throws.
using MakeTorchNccl = void (*)(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                               std::chrono::milliseconds timeout,
                               c10::intrusive_ptr<c10d::Backend>& made);

inline constexpr char kTorchNcclFile[] = "libchainmail_torch_nccl.so";
inline constexpr char kMakeTorchNccl[] = "chainmail_make_torch_nccl";

}  // namespace chainmail::internal
