// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Reads back what base/membership/trace.h wrote.
//
// Pure functions; any thread.

#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace chainmail::membership {

/// An archive for `fields` that takes them from a JSON object. Throws nlohmann::json::exception or
/// std::runtime_error where one is missing or of another kind.
class JsonReader {
 public:
  template <typename T>
  [[nodiscard]] static T read(const nlohmann::json& json) {
    T value{};
    take(json, value);
    return value;
  }

  void operator()(const char* name, auto& value) { take(json_->at(name), value); }

 private:
  explicit JsonReader(const nlohmann::json& json) : json_(&json) {}

  template <typename T>
  static void take(const nlohmann::json& json, T& value) {
    if constexpr (std::is_enum_v<T>) {
      value = static_cast<T>(json.get<std::int64_t>());
    } else if constexpr (std::is_arithmetic_v<T> || std::is_same_v<T, std::string>) {
      json.get_to(value);
    } else {
      JsonReader reader(json);
      T::fields(reader, value);
    }
  }
  static void take(const nlohmann::json& json, std::chrono::milliseconds& value) {
    value = std::chrono::milliseconds(json.get<std::int64_t>());
  }
  template <typename T>
  static void take(const nlohmann::json& json, std::optional<T>& value) {
    if (!json.is_null()) take(json, value.emplace());
  }
  template <typename T>
  static void take(const nlohmann::json& json, std::shared_ptr<const T>& value) {
    value = std::make_shared<const T>(read<T>(json));
  }
  template <typename T>
  static void take(const nlohmann::json& json, std::vector<T>& values) {
    for (const auto& element : json) take(element, values.emplace_back());
  }
  template <typename... T>
  static void take(const nlohmann::json& json, std::variant<T...>& value) {
    const std::string kind = json.at("kind").get<std::string>();
    const bool is_known = (take_if<T>(json, kind, value) || ...);
    if (!is_known) throw std::runtime_error("the kind '" + kind + "' is not known");
  }
  template <typename T>
  static bool take_if(const nlohmann::json& json, const std::string& kind, auto& value) {
    if (kind != T::kName) return false;
    take(json, value.template emplace<T>());
    return true;
  }

  const nlohmann::json* json_;
};

}  // namespace chainmail::membership
