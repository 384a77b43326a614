// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What a machine took in and asked for, as lines of JSON, so that a job that ran can be checked
// against the machines afterwards (tests/base/membership/trace).
//
// The launcher's lines stand in events.jsonl among other events, a member's in a file of its own.
// One line is one machine's birth or one event with the actions that it gave:
//
//   {"machine":"world","options":{...},"resume":{...}}
//   {"machine":"world","in":{"kind":"elapsed",...},"out":[{"kind":"tell",...},...]}
//   {"machine":"member","id":3,"options":{...}}
//   {"machine":"member","id":3,"in":{...},"out":[...],"state":"<16 digits>"}
//
// The members of an object are those of the struct's `fields`, and `kind` is its kName. Enumerators
// are numbers, but for the names of events. "state" is a digest of the committed state, in lines
// with a commit. Readers skip lines without "machine", and members that they do not know ("time").
//
// Pure functions; any thread.

#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "base/membership/member/member_events.h"
#include "base/membership/member/member_machine.h"
#include "base/membership/world/world_events.h"
#include "base/membership/world/world_options.h"

namespace chainmail::membership {

/// An archive for `fields` that writes one JSON object.
class JsonObject {
 public:
  JsonObject() = default;
  /// The object of `value`; begins with its kind where the type has a name.
  template <typename T>
  [[nodiscard]] static std::string of(const T& value) {
    JsonObject object;
    if constexpr (requires { T::kName; }) object("kind", std::string(T::kName));
    T::fields(object, value);
    return object.take();
  }

  void operator()(std::string_view name, const auto& value) { raw(name, text_of(value)); }
  /// `json` as it is.
  void raw(std::string_view name, std::string_view json);
  [[nodiscard]] std::string take() { return text_.empty() ? "{}" : text_ + "}"; }

  [[nodiscard]] static std::string text_of(const std::string& value);
  [[nodiscard]] static std::string text_of(EventKind value) {
    return text_of(std::string(to_string(value)));
  }
  [[nodiscard]] static std::string text_of(bool value) { return value ? "true" : "false"; }
  [[nodiscard]] static std::string text_of(std::chrono::milliseconds value) {
    return std::to_string(value.count());
  }
  template <typename T>
  [[nodiscard]] static std::string text_of(const T& value) {
    if constexpr (std::is_enum_v<T>) {
      return std::to_string(static_cast<std::int64_t>(value));
    } else if constexpr (std::is_integral_v<T>) {
      return std::to_string(value);
    } else {
      return of(value);
    }
  }
  template <typename T>
  [[nodiscard]] static std::string text_of(const std::optional<T>& value) {
    return value ? text_of(*value) : "null";
  }
  template <typename T>
  [[nodiscard]] static std::string text_of(const std::shared_ptr<T>& value) {
    return value ? text_of(*value) : "null";
  }
  template <typename... T>
  [[nodiscard]] static std::string text_of(const std::variant<T...>& value) {
    return std::visit([](const auto& held) { return text_of(held); }, value);
  }
  template <typename T>
  [[nodiscard]] static std::string text_of(const std::vector<T>& values) {
    std::string text = "[";
    for (const T& value : values) {
      if (text.size() > 1) text += ",";
      text += text_of(value);
    }
    return text + "]";
  }

 private:
  std::string text_;
};

[[nodiscard]] std::string trace_birth(const WorldOptions& options, const ResumePoint& resume);
[[nodiscard]] std::string trace_birth(MemberId id, const MemberOptions& options);
[[nodiscard]] std::string trace_line(const WorldEvent& event, const WorldActions& actions);
/// `state`: a digest of the committed state; written if `actions` have a commit.
[[nodiscard]] std::string trace_line(MemberId id, const MemberEvent& event,
                                     const MemberActions& actions, std::uint64_t state);

}  // namespace chainmail::membership
