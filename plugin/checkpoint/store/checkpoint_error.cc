// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include <chainmail/checkpoint_error.h>

namespace chainmail {

CheckpointError::CheckpointError(const std::string& message)
    : Error(ErrorCode::kCheckpoint, message) {}
CheckpointError::~CheckpointError() = default;

}  // namespace chainmail
