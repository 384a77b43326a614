// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "base/bytes.h"

#include <sys/random.h>

#include "base/error.h"

namespace chainmail::internal {

void fill_with_random(std::span<std::byte> bytes) {
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    throw system_error("cannot get random bytes");
  }
}

std::string random_bytes(std::size_t count) {
  std::string bytes(count, '\0');
  fill_with_random(std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

std::string to_hex(std::string_view bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  text.reserve(2 * bytes.size());
  for (const char c : bytes) {
    text += kDigits[static_cast<unsigned char>(c) >> 4U];
    text += kDigits[static_cast<unsigned char>(c) & 15U];
  }
  return text;
}

}  // namespace chainmail::internal
