// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// NcclApi over NCCL itself.
//
// As NcclApi; `symbols` lives as long as this.

#pragma once

#include <memory>

#include "ops/comm/nccl/nccl_api.h"
#include "ops/comm/nccl/nccl_symbols.h"

namespace chainmail::ops {

[[nodiscard]] std::unique_ptr<NcclApi> make_nccl(const NcclSymbols& symbols);

}  // namespace chainmail::ops
