// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/tensor/element_type.h"

#include <algorithm>
#include <array>

namespace chainmail::internal {
namespace {

struct TypePair {
  c10::ScalarType torchs;
  ops::DataType ours;
};

constexpr std::array<TypePair, 13> kTypes = {{
    {c10::ScalarType::Byte, ops::DataType::kUInt8},
    {c10::ScalarType::Char, ops::DataType::kInt8},
    {c10::ScalarType::Short, ops::DataType::kInt16},
    {c10::ScalarType::Int, ops::DataType::kInt32},
    {c10::ScalarType::Long, ops::DataType::kInt64},
    {c10::ScalarType::Bool, ops::DataType::kBool},
    {c10::ScalarType::Half, ops::DataType::kFloat16},
    {c10::ScalarType::BFloat16, ops::DataType::kBFloat16},
    {c10::ScalarType::Float, ops::DataType::kFloat32},
    {c10::ScalarType::Double, ops::DataType::kFloat64},
    {c10::ScalarType::UInt16, ops::DataType::kUInt16},
    {c10::ScalarType::UInt32, ops::DataType::kUInt32},
    {c10::ScalarType::UInt64, ops::DataType::kUInt64},
}};

}  // namespace

std::optional<ops::DataType> data_type_of(c10::ScalarType type) noexcept {
  const auto* const found = std::ranges::find(kTypes, type, &TypePair::torchs);
  return found != kTypes.end() ? std::optional(found->ours) : std::nullopt;
}

c10::ScalarType scalar_type_of(ops::DataType type) noexcept {
  const auto* const found = std::ranges::find(kTypes, type, &TypePair::ours);
  return found != kTypes.end() ? found->torchs : c10::ScalarType::Undefined;
}

}  // namespace chainmail::internal
