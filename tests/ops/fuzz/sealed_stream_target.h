// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What comes to a rank over a sealed connection: bytes of somebody without the keys, and records of
// a peer that has them and means harm. Bytes choose which, in what pieces they come, and every
// field of the heads.

#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace chainmail::ops {

/// Throws std::logic_error when anything is told, or more is asked for, after bytes that were not
/// sealed.
void run_sealed_stream(std::string_view bytes);

[[nodiscard]] std::vector<std::string> sealed_stream_seeds();

}  // namespace chainmail::ops
