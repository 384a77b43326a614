// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Encodes and decodes messages by one list of their fields for both directions: a message has
//
//   static void fields(auto& archive, auto& message) { archive(message.rank, message.text); }
//
// Integers are little-endian, texts and lists begin with their length. Pure functions over bytes:
// every length is checked before use.

#pragma once

#include <cerrno>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include "base/error.h"
#include "base/job/job_protocol.h"

namespace chainmail::internal {

class FieldWriter {
 public:
  void operator()(const auto&... values) { (put(values), ...); }
  [[nodiscard]] std::string take() { return body_.take(); }

 private:
  template <typename T>
  void put(const T& value) {
    if constexpr (std::is_enum_v<T>) {
      put(static_cast<std::underlying_type_t<T>>(value));
    } else if constexpr (std::is_integral_v<T> && sizeof value == 1) {
      body_.u8(static_cast<std::uint8_t>(value));
    } else if constexpr (std::is_integral_v<T> && sizeof value == 4) {
      body_.u32(static_cast<std::uint32_t>(value));
    } else if constexpr (std::is_integral_v<T>) {
      body_.u64(value);
    } else if constexpr (std::is_convertible_v<T, std::string_view>) {
      body_.long_text(value);
    } else if constexpr (std::is_same_v<T, Welcome>) {
      body_.long_text(encode_welcome(value));
    } else if constexpr (requires { T::fields(*this, value); }) {
      T::fields(*this, value);
    } else if constexpr (requires { value.first; }) {
      (*this)(value.first, value.second);
    } else {
      body_.u32(static_cast<std::uint32_t>(value.size()));
      for (const auto& element : value) put(element);
    }
  }

  BodyWriter body_;
};

class FieldReader {
 public:
  explicit FieldReader(std::string_view bytes) : body_(bytes) {}
  void operator()(auto&... values) { (get(values), ...); }
  [[nodiscard]] bool at_end() const noexcept { return body_.at_end(); }

 private:
  template <typename T>
  void get(T& value) {
    if constexpr (std::is_enum_v<T>) {
      std::underlying_type_t<T> number{};
      get(number);
      value = static_cast<T>(number);
    } else if constexpr (std::is_integral_v<T> && sizeof value == 1) {
      value = static_cast<T>(body_.u8());
    } else if constexpr (std::is_integral_v<T> && sizeof value == 4) {
      value = static_cast<T>(body_.u32());
    } else if constexpr (std::is_integral_v<T>) {
      value = body_.u64();
    } else if constexpr (std::is_same_v<T, std::string>) {
      value = body_.text();
    } else if constexpr (std::is_same_v<T, Welcome>) {
      value = decode_welcome(body_.text());
    } else if constexpr (requires { T::fields(*this, value); }) {
      T::fields(*this, value);
    } else {
      // Each element takes bytes of the body, so the number alone makes nothing grow.
      for (std::uint32_t left = body_.u32(); left > 0; --left) {
        if constexpr (requires { typename T::mapped_type; }) {
          typename T::key_type key;
          get(key);
          get(value[key]);
        } else {
          get(value.emplace_back());
        }
      }
    }
  }

  BodyReader body_;
};

template <typename Message>
[[nodiscard]] std::string encode_fields(const Message& message) {
  FieldWriter writer;
  writer(message);
  return writer.take();
}

/// `protocol` begins the message of the SystemError(EPROTO) for what is too long.
template <typename Message>
[[nodiscard]] Message decode_fields(std::string_view bytes, const char* protocol) {
  FieldReader reader(bytes);
  Message message;
  reader(message);
  if (!reader.at_end()) {
    throw SystemError(std::string(protocol) + ": bytes after the end of a message", EPROTO);
  }
  return message;
}

}  // namespace chainmail::internal
