// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Numbers, texts and lists of numbers as values of a CheckpointState. Local.

#pragma once

#include <cstdint>
#include <string>
#include <type_traits>

#include <ATen/ATen.h>

#include <chainmail/checkpoint.h>

namespace chainmail::internal {

template <typename T>
void put(CheckpointState& state, const std::string& key, const T& value) {
  if constexpr (std::is_integral_v<T>) {
    state.set_integer(key, static_cast<std::int64_t>(value));
  } else if constexpr (std::is_floating_point_v<T>) {
    state.set_real(key, value);
  } else if constexpr (std::is_same_v<T, std::string>) {
    state.set_text(key, value);
  } else {
    constexpr c10::ScalarType kType = c10::CppTypeToScalarType<typename T::value_type>::value;
    state.set_tensor(key, at::tensor(value, at::TensorOptions(kType)));
  }
}

/// What put() has put there; the getters of CheckpointState say what they throw.
template <typename T>
void get(const CheckpointState& state, const std::string& key, T& value) {
  if constexpr (std::is_integral_v<T>) {
    value = static_cast<T>(state.integer(key));
  } else if constexpr (std::is_floating_point_v<T>) {
    value = state.real(key);
  } else if constexpr (std::is_same_v<T, std::string>) {
    value = state.text(key);
  } else {
    using Number = typename T::value_type;
    const at::Tensor list = state.tensor(key).to(c10::CppTypeToScalarType<Number>::value);
    const auto* const begin = list.const_data_ptr<Number>();
    value.assign(begin, begin + list.numel());
  }
}

}  // namespace chainmail::internal
