// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What a call of a Sharded module does around forward(): for the sake of its templates alone.
//
// Collective, as forward() is. One thread per rank.

#pragma once

#include <memory>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include <chainmail/export.h>

namespace chainmail {

namespace internal {

class UnitSet;
struct UnitCall;

// The tensors in an argument or a result; all else has none.
template <typename T>
inline constexpr bool kHoldsTensors = std::is_same_v<T, at::Tensor>;
template <typename T>
inline constexpr bool kHoldsTensors<std::vector<T>> = kHoldsTensors<T>;
template <typename T>
inline constexpr bool kHoldsTensors<std::optional<T>> = kHoldsTensors<T>;
template <typename... T>
inline constexpr bool kHoldsTensors<std::tuple<T...>> = (kHoldsTensors<T> && ...);
template <typename T, typename U>
inline constexpr bool kHoldsTensors<std::pair<T, U>> = kHoldsTensors<T>&& kHoldsTensors<U>;

template <typename T>
void find_tensors(T& /*value*/, std::vector<at::Tensor*>& /*found*/) {}
inline void find_tensors(at::Tensor& value, std::vector<at::Tensor*>& found) {
  found.push_back(&value);
}
template <typename T>
void find_tensors(std::vector<T>& values, std::vector<at::Tensor*>& found);
template <typename T>
void find_tensors(std::optional<T>& value, std::vector<at::Tensor*>& found);
template <typename... T>
void find_tensors(std::tuple<T...>& values, std::vector<at::Tensor*>& found);
template <typename T, typename U>
void find_tensors(std::pair<T, U>& values, std::vector<at::Tensor*>& found);

template <typename T>
void find_tensors(std::vector<T>& values, std::vector<at::Tensor*>& found) {
  if constexpr (kHoldsTensors<T>) {
    for (T& value : values) find_tensors(value, found);
  }
}
template <typename T>
void find_tensors(std::optional<T>& value, std::vector<at::Tensor*>& found) {
  if (value) find_tensors(*value, found);
}
template <typename... T>
void find_tensors(std::tuple<T...>& values, std::vector<at::Tensor*>& found) {
  std::apply([&](T&... value) { (find_tensors(value, found), ...); }, values);
}
template <typename T, typename U>
void find_tensors(std::pair<T, U>& values, std::vector<at::Tensor*>& found) {
  find_tensors(values.first, found);
  find_tensors(values.second, found);
}

/// Makes the parameters of a unit whole for the time of one forward().
class CHAINMAIL_API ShardedScope {
 public:
  explicit ShardedScope(std::shared_ptr<UnitCall> call);
  /// Gives them up again.
  ~ShardedScope();
  ShardedScope(const ShardedScope&) = delete;
  ShardedScope& operator=(const ShardedScope&) = delete;

  /// Puts what notices backward behind the arguments and the results.
  void take_arguments(const std::vector<at::Tensor*>& tensors);
  void take_results(const std::vector<at::Tensor*>& tensors);

 private:
  std::shared_ptr<UnitCall> call_;
  int exceptions_at_start_;
};

}  // namespace internal

}  // namespace chainmail
