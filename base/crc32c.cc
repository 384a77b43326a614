// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "base/crc32c.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace chainmail::internal {
namespace {

constexpr std::uint32_t kPolynomial = 0x82f63b78;  // reflected

constexpr std::array<std::uint32_t, 256> make_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc & 1) != 0 ? (crc >> 1) ^ kPolynomial : crc >> 1;
    table[i] = crc;
  }
  return table;
}
constexpr std::array<std::uint32_t, 256> kTable = make_table();

std::uint32_t update_portable(std::uint32_t crc, const std::byte* data, std::size_t size) noexcept {
  for (std::size_t i = 0; i < size; ++i) {
    crc = kTable[(crc ^ std::to_integer<std::uint32_t>(data[i])) & 0xff] ^ (crc >> 8);
  }
  return crc;
}

#if defined(__x86_64__)

// The crc32 instruction has a latency of three cycles and a throughput of one, so three streams of
// kLane bytes run side by side and are joined by "append kLane zero bytes", a linear map that four
// tables of 256 words hold.
constexpr std::size_t kLane = 1360;  // 3 lanes are 4 KiB less a cache line

using ShiftTables = std::array<std::array<std::uint32_t, 256>, 4>;

ShiftTables make_shift_tables() {
  const std::array<std::byte, kLane> zeros{};
  ShiftTables tables{};
  for (std::uint32_t byte = 0; byte < 4; ++byte) {
    for (std::uint32_t bit = 0; bit < 8; ++bit) {
      tables[byte][1U << bit] = update_portable(1U << (8 * byte + bit), zeros.data(), kLane);
    }
    for (std::uint32_t value = 1; value < 256; ++value) {
      const std::uint32_t low = value & (~value + 1);
      tables[byte][value] = tables[byte][low] ^ tables[byte][value ^ low];
    }
  }
  return tables;
}

std::uint32_t shift(const ShiftTables& tables, std::uint64_t crc) noexcept {
  return tables[0][crc & 0xff] ^ tables[1][(crc >> 8) & 0xff] ^ tables[2][(crc >> 16) & 0xff] ^
         tables[3][(crc >> 24) & 0xff];
}

std::uint64_t load(const std::byte* data) noexcept {
  std::uint64_t word = 0;
  std::memcpy(&word, data, sizeof word);
  return word;
}

__attribute__((target("sse4.2"))) std::uint32_t update_fast(std::uint32_t crc,
                                                            const std::byte* data,
                                                            std::size_t size) noexcept {
  static const ShiftTables tables = make_shift_tables();
  std::uint64_t first = crc;
  while (size >= 3 * kLane) {
    std::uint64_t second = 0;
    std::uint64_t third = 0;
    for (std::size_t i = 0; i < kLane; i += sizeof(std::uint64_t)) {
      first = _mm_crc32_u64(first, load(data + i));
      second = _mm_crc32_u64(second, load(data + kLane + i));
      third = _mm_crc32_u64(third, load(data + 2 * kLane + i));
    }
    first = shift(tables, shift(tables, first) ^ second) ^ third;
    data += 3 * kLane;
    size -= 3 * kLane;
  }
  for (; size >= sizeof(std::uint64_t); data += 8, size -= 8) {
    first = _mm_crc32_u64(first, load(data));
  }
  auto rest = static_cast<std::uint32_t>(first);
  for (; size > 0; ++data, --size) {
    rest = _mm_crc32_u8(rest, std::to_integer<std::uint8_t>(*data));
  }
  return rest;
}

bool has_instruction() noexcept {
  static const bool has = __builtin_cpu_supports("sse4.2") != 0;
  return has;
}

#endif

}  // namespace

std::uint32_t crc32c_portable(std::span<const std::byte> bytes, std::uint32_t previous) noexcept {
  return ~update_portable(~previous, bytes.data(), bytes.size());
}

std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t previous) noexcept {
#if defined(__x86_64__)
  if (has_instruction()) return ~update_fast(~previous, bytes.data(), bytes.size());
#endif
  return crc32c_portable(bytes, previous);
}

}  // namespace chainmail::internal
