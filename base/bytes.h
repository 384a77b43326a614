// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Bytes from the kernel's generator, bytes as text, as numbers, and what they hash to; numbers that
// a text says; sizes in whole units.
//
// Any thread; a StreamHash belongs to one.

#pragma once

#include <charconv>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

namespace chainmail::internal {

/// Unguessable, for keys, tokens and unique names. At most 256 bytes, which the kernel returns
/// whole once its pool is ready. Throws SystemError.
void fill_with_random(std::span<std::byte> bytes);

/// `count` of them, at most 256. Throws SystemError.
[[nodiscard]] std::string random_bytes(std::size_t count);

/// Two lower-case digits per byte.
[[nodiscard]] std::string to_hex(std::string_view bytes);
/// 16 digits, the most significant first.
[[nodiscard]] std::string to_hex(std::uint64_t value);

/// Writes `value`, least significant byte first, and moves `out` past it. Compilers turn this and
/// take_number() into plain moves.
template <std::unsigned_integral T>
constexpr void put_number(std::byte*& out, T value) noexcept {
  for (std::size_t i = 0; i < sizeof(T); ++i) *out++ = static_cast<std::byte>(value >> (8 * i));
}

/// The reverse. The caller has checked that the bytes are there.
template <std::unsigned_integral T>
constexpr T take_number(const std::byte*& in) noexcept {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < sizeof(T); ++i) {
    value |= std::to_integer<std::uint64_t>(*in++) << (8 * i);
  }
  return static_cast<T>(value);
}

template <std::unsigned_integral T>
void append_number(std::string& out, T value) {
  std::byte bytes[sizeof(T)];
  std::byte* end = bytes;
  put_number(end, value);
  out.append(reinterpret_cast<const char*>(bytes), sizeof bytes);
}

/// What a text says that is a whole number and nothing else.
template <typename Number = int>
[[nodiscard]] std::optional<Number> whole_number(std::string_view text, int base = 10) {
  Number value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value, base);
  return stop == end && error == std::errc() ? std::optional(value) : std::nullopt;
}

/// The least multiple of `unit` that is not below `value`.
template <std::integral T>
[[nodiscard]] constexpr T round_up(T value, std::type_identity_t<T> unit) noexcept {
  return (value + unit - 1) / unit * unit;
}

/// XXH3. Finds accidents, not forgeries: it has no key.
[[nodiscard]] std::uint64_t hash64(std::span<const std::byte> bytes) noexcept;
[[nodiscard]] inline std::uint64_t hash64(std::string_view text) noexcept {
  return hash64(std::as_bytes(std::span(text)));
}

/// hash64() of bytes that come in pieces. Allocates when it is made only.
class StreamHash {
 public:
  StreamHash();
  ~StreamHash();

  void reset() noexcept;
  void add(std::span<const std::byte> bytes) noexcept;
  void add(std::string_view text) noexcept { add(std::as_bytes(std::span(text))); }
  [[nodiscard]] std::uint64_t value() const noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Of a few numbers, where a call of hash64() would cost more than the numbers do.
class NumberHash {
 public:
  constexpr NumberHash& add(std::uint64_t value) noexcept {
    hash_ = (hash_ ^ value) * 0x9e3779b97f4a7c15U;
    hash_ ^= hash_ >> 32U;
    return *this;
  }
  [[nodiscard]] constexpr std::uint32_t value() const noexcept {
    return static_cast<std::uint32_t>(wide_value());
  }
  /// All 64 bits of it.
  [[nodiscard]] constexpr std::uint64_t wide_value() const noexcept {
    return hash_ ^ (hash_ >> 29U);
  }

 private:
  std::uint64_t hash_ = 0xcbf29ce484222325U;
};

}  // namespace chainmail::internal
