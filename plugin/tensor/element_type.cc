// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/tensor/element_type.h"

namespace chainmail::internal {

std::optional<ops::DataType> data_type_of(c10::ScalarType type) noexcept {
  switch (type) {
    case c10::ScalarType::Byte:
      return ops::DataType::kUInt8;
    case c10::ScalarType::Char:
      return ops::DataType::kInt8;
    case c10::ScalarType::Short:
      return ops::DataType::kInt16;
    case c10::ScalarType::Int:
      return ops::DataType::kInt32;
    case c10::ScalarType::Long:
      return ops::DataType::kInt64;
    case c10::ScalarType::Bool:
      return ops::DataType::kBool;
    case c10::ScalarType::Half:
      return ops::DataType::kFloat16;
    case c10::ScalarType::BFloat16:
      return ops::DataType::kBFloat16;
    case c10::ScalarType::Float:
      return ops::DataType::kFloat32;
    case c10::ScalarType::Double:
      return ops::DataType::kFloat64;
    case c10::ScalarType::UInt16:
      return ops::DataType::kUInt16;
    case c10::ScalarType::UInt32:
      return ops::DataType::kUInt32;
    case c10::ScalarType::UInt64:
      return ops::DataType::kUInt64;
    default:  // torch's list is long and grows
      return std::nullopt;
  }
}

c10::ScalarType scalar_type_of(ops::DataType type) noexcept {
  switch (type) {
    case ops::DataType::kUInt8:
      return c10::ScalarType::Byte;
    case ops::DataType::kInt8:
      return c10::ScalarType::Char;
    case ops::DataType::kInt16:
      return c10::ScalarType::Short;
    case ops::DataType::kInt32:
      return c10::ScalarType::Int;
    case ops::DataType::kInt64:
      return c10::ScalarType::Long;
    case ops::DataType::kBool:
      return c10::ScalarType::Bool;
    case ops::DataType::kFloat16:
      return c10::ScalarType::Half;
    case ops::DataType::kBFloat16:
      return c10::ScalarType::BFloat16;
    case ops::DataType::kFloat32:
      return c10::ScalarType::Float;
    case ops::DataType::kFloat64:
      return c10::ScalarType::Double;
    case ops::DataType::kUInt16:
      return c10::ScalarType::UInt16;
    case ops::DataType::kUInt32:
      return c10::ScalarType::UInt32;
    case ops::DataType::kUInt64:
      return c10::ScalarType::UInt64;
  }
  return c10::ScalarType::Undefined;
}

}  // namespace chainmail::internal
