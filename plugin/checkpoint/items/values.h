// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Numbers, texts and lists of numbers as values of a CheckpointState. Local.

#pragma once

#include <algorithm>
#include <cstdint>
#include <sstream>
#include <string>
#include <type_traits>
#include <vector>

#include <ATen/ATen.h>

#include <chainmail/checkpoint.h>
#include <chainmail/train/evaluator.h>

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

/// Names in lines, sums and counts in their order.
inline void put(CheckpointState& state, const std::string& key, const Metrics& metrics) {
  std::string names;
  std::vector<double> sums;
  std::vector<std::int64_t> counts;
  for (const auto& [name, entry] : metrics.entries()) {
    names += name + "\n";
    sums.push_back(entry.sum);
    counts.push_back(entry.count);
  }
  put(state, key + "/names", names);
  put(state, key + "/sums", sums);
  put(state, key + "/counts", counts);
}

inline void get(const CheckpointState& state, const std::string& key, Metrics& metrics) {
  std::string names;
  std::vector<double> sums;
  std::vector<std::int64_t> counts;
  get(state, key + "/names", names);
  get(state, key + "/sums", sums);
  get(state, key + "/counts", counts);
  const auto lines_in = static_cast<std::size_t>(std::ranges::count(names, '\n'));
  if (sums.size() != lines_in || counts.size() != lines_in) {
    throw CheckpointError("'" + key + "' has " + std::to_string(lines_in) + " names, " +
                          std::to_string(sums.size()) + " sums and " +
                          std::to_string(counts.size()) + " counts");
  }
  metrics.clear();
  std::istringstream lines(names);
  std::size_t i = 0;
  for (std::string name; std::getline(lines, name); ++i) metrics.add_sum(name, sums[i], counts[i]);
}

}  // namespace chainmail::internal
