// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// One number for all fields of a message or a machine.
//
// A Digest belongs to one thread.

#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "base/bytes.h"

namespace chainmail::membership {

/// An archive for `fields`. Fast rather than strong: it tells states of the simulator apart.
class Digest {
 public:
  void operator()(const char* /*name*/, const auto& value) { add(value); }

  void add_number(std::uint64_t value) noexcept { hash_.add(value); }
  template <typename T>
  void add(const T& value) {
    if constexpr (std::is_enum_v<T> || std::is_integral_v<T>) {
      add_number(static_cast<std::uint64_t>(value));
    } else {
      T::fields(*this, value);
    }
  }
  void add(const std::string& text) { add_number(internal::hash64(text)); }
  void add(std::chrono::milliseconds time) { add_number(static_cast<std::uint64_t>(time.count())); }
  template <typename T>
  void add(const std::vector<T>& values) {
    add_number(values.size());
    for (const T& value : values) add(value);
  }
  template <typename T>
  void add(const std::optional<T>& value) {
    add_number(value ? 1 : 0);
    if (value) add(*value);
  }
  template <typename T>
  void add(const std::shared_ptr<T>& value) {
    add_number(value ? 1 : 0);
    if (value) add(*value);
  }
  template <typename... T>
  void add(const std::variant<T...>& value) {
    add_number(value.index());
    std::visit([this](const auto& held) { add(held); }, value);
  }

  [[nodiscard]] std::uint64_t value() const noexcept { return hash_.wide_value(); }

 private:
  internal::NumberHash hash_;
};

}  // namespace chainmail::membership
