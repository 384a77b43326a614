// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/c10d/torch_backends/nccl/nccl_library.h"

#include <chainmail/export.h>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

extern "C" CHAINMAIL_API void chainmail_make_torch_nccl(
    const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
    std::chrono::milliseconds timeout, c10::intrusive_ptr<c10d::Backend>& made) {
  auto options = c10d::ProcessGroupNCCL::Options::create();
  options->timeout = timeout;
  made = c10::make_intrusive<c10d::ProcessGroupNCCL>(store, rank, size, std::move(options));
}

namespace {
// The two sides must agree, though the loader only knows a name.
[[maybe_unused]] constexpr chainmail::internal::MakeTorchNccl kMade = &chainmail_make_torch_nccl;
}  // namespace
