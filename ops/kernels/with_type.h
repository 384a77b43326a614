// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// From a DataType to the C++ type of its elements: both call `body` with a value of that type, or
// else return what `other` does. On the host; also compiled by nvcc.
//
// Pure functions.

#pragma once

#include <cstdint>

#include "ops/kernels/element.h"
#include "ops/types.h"

namespace chainmail::ops {

/// `other` for integers and bool.
template <class Body, class Other>
auto with_floating(DataType type, const Body& body, const Other& other) {
  switch (type) {
    case DataType::kFloat16:
      return body(Float16Bits{});
    case DataType::kBFloat16:
      return body(BFloat16Bits{});
    case DataType::kFloat32:
      return body(float{});
    case DataType::kFloat64:
      return body(double{});
    case DataType::kUInt8:
    case DataType::kInt8:
    case DataType::kInt16:
    case DataType::kInt32:
    case DataType::kInt64:
    case DataType::kBool:
    case DataType::kUInt16:
    case DataType::kUInt32:
    case DataType::kUInt64:
      break;
  }
  return other();
}

/// `other` for floating-point types and bool.
template <class Body, class Other>
auto with_integer(DataType type, const Body& body, const Other& other) {
  switch (type) {
    case DataType::kUInt8:
      return body(std::uint8_t{});
    case DataType::kInt8:
      return body(std::int8_t{});
    case DataType::kInt16:
      return body(std::int16_t{});
    case DataType::kInt32:
      return body(std::int32_t{});
    case DataType::kInt64:
      return body(std::int64_t{});
    case DataType::kUInt16:
      return body(std::uint16_t{});
    case DataType::kUInt32:
      return body(std::uint32_t{});
    case DataType::kUInt64:
      return body(std::uint64_t{});
    case DataType::kBool:
    case DataType::kFloat16:
    case DataType::kBFloat16:
    case DataType::kFloat32:
    case DataType::kFloat64:
      break;
  }
  return other();
}

}  // namespace chainmail::ops
