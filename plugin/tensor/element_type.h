// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// LibTorch's element types in the engine's words.
//
// Pure functions.

#pragma once

#include <c10/core/ScalarType.h>

#include <optional>

#include "ops/types.h"

namespace chainmail::internal {

/// The types that data_type_of() knows, for messages.
inline constexpr char kKnownTypes[] =
    "uint8, uint16, uint32, uint64, int8, int16, int32, int64, bool, float16, bfloat16, float32 "
    "and "
    "float64";

/// Nothing for what the engine cannot add up: complex, quantized, eight-bit floats ...
[[nodiscard]] std::optional<ops::DataType> data_type_of(c10::ScalarType type) noexcept;

[[nodiscard]] c10::ScalarType scalar_type_of(ops::DataType type) noexcept;

}  // namespace chainmail::internal
