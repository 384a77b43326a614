// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "base/bytes.h"

#include <sys/random.h>

#include "base/error.h"
#include "base/xxh3_avx2.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace chainmail::internal {
#if defined(__x86_64__)
namespace {

bool has_avx2() noexcept { return __builtin_cpu_supports("avx2") != 0; }

}  // namespace
#endif

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

std::string to_hex(std::uint64_t value) {
  std::string bytes;
  for (int shift = 56; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift);
  return to_hex(bytes);
}

std::uint64_t hash64(std::span<const std::byte> bytes) noexcept {
#if defined(__x86_64__)
  // Nothing shorter is computed by vectors.
  if (bytes.size() > XXH3_MIDSIZE_MAX && has_avx2()) return xxh3_avx2(bytes.data(), bytes.size());
#endif
  return XXH3_64bits(bytes.data(), bytes.size());
}

struct StreamHash::State {
  XXH3_state_t state;
};

StreamHash::StreamHash() : state_(std::make_unique<State>()) { reset(); }

StreamHash::~StreamHash() = default;

void StreamHash::reset() noexcept { XXH3_64bits_reset(&state_->state); }

void StreamHash::add(std::span<const std::byte> bytes) noexcept {
#if defined(__x86_64__)
  if (has_avx2()) return xxh3_update_avx2(&state_->state, bytes.data(), bytes.size());
#endif
  XXH3_64bits_update(&state_->state, bytes.data(), bytes.size());
}

std::uint64_t StreamHash::value() const noexcept { return XXH3_64bits_digest(&state_->state); }

}  // namespace chainmail::internal
