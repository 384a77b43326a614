// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// CUDA for programs that link libtorch_cpu only, which start three times as fast: its libraries are
// opened when they are asked for.

#pragma once

#include <string>

#include <chainmail/error.h>
#include <chainmail/export.h>

namespace chainmail {

/// Opens libtorch_cuda and libchainmail_cuda.so, once. To be called before LibTorch is first asked
/// about CUDA, since it remembers the answer. Thread-safe.
///
/// @param who  begins the message: "--device cuda needs CUDA: there is no NVIDIA driver here ..."
/// @throws InvalidArgument  says in one sentence what is missing: a LibTorch for CUDA, the driver,
/// a
///                          GPU, NCCL or libchainmail_cuda.so
CHAINMAIL_API void load_cuda(const std::string& who = "this program");

}  // namespace chainmail
