// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "base/net/crc32c.h"

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

__attribute__((target("sse4.2"))) std::uint32_t update_by_instruction(std::uint32_t crc,
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

// Folding: a block of 128 bits stands for a polynomial, and moving it n bits ahead multiplies it by
// x^n. Modulo the checksum's polynomial that is two carry-less products with constants, so a block
// can be added to one further on, until 128 bits with the same remainder are left (Gopal et al.,
// "Fast CRC computation for generic polynomials using PCLMULQDQ instruction", 2009, here in
// reflected order and four blocks per register).
#define CHAINMAIL_FOLDING __attribute__((target("sse4.2,pclmul,avx512f,vpclmulqdq")))

constexpr std::size_t kBlocks = sizeof(__m512i);  // four of them in one register
// A product takes several cycles and one can start in each, so four chains run side by side.
constexpr std::size_t kStride = 4 * kBlocks;
// How far ahead to ask for bytes: from the second-level cache on this is a third faster.
constexpr std::size_t kPrefetchBytes = 2048;

// x^n modulo the polynomial, reflected, as products need it.
constexpr std::int64_t power(std::size_t n) {
  std::uint32_t value = 0x80000000;
  for (std::size_t i = 0; i < n; ++i) value = (value >> 1) ^ ((value & 1) != 0 ? kPolynomial : 0);
  return static_cast<std::int64_t>(std::uint64_t{value} << 1);
}

// The constants that move a block `kBytes` ahead: for its lower half, for its upper half.
template <std::size_t kBytes>
struct Ahead {
  static constexpr std::int64_t kLower = power(8 * kBytes + 32);
  static constexpr std::int64_t kUpper = power(8 * kBytes - 32);
};

CHAINMAIL_FOLDING inline __m512i load_blocks(const std::byte* data) noexcept {
  return _mm512_loadu_si512(data);
}

template <std::size_t kBytes>
CHAINMAIL_FOLDING inline __m512i fold(__m512i blocks, __m512i onto) noexcept {
  const __m512i by = _mm512_set_epi64(Ahead<kBytes>::kUpper, Ahead<kBytes>::kLower,  //
                                      Ahead<kBytes>::kUpper, Ahead<kBytes>::kLower,  //
                                      Ahead<kBytes>::kUpper, Ahead<kBytes>::kLower,  //
                                      Ahead<kBytes>::kUpper, Ahead<kBytes>::kLower);
  constexpr int kXor3 = 0x96;
  return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(blocks, by, 0x00),
                                   _mm512_clmulepi64_epi128(blocks, by, 0x11), onto, kXor3);
}

template <std::size_t kBytes>
CHAINMAIL_FOLDING inline __m128i fold(__m128i block, __m128i onto) noexcept {
  const __m128i by = _mm_set_epi64x(Ahead<kBytes>::kUpper, Ahead<kBytes>::kLower);
  return _mm_xor_si128(onto, _mm_xor_si128(_mm_clmulepi64_si128(block, by, 0x00),
                                           _mm_clmulepi64_si128(block, by, 0x11)));
}

// Four blocks to one.
CHAINMAIL_FOLDING inline __m128i gather(__m512i blocks) noexcept {
  constexpr std::size_t kBlock = sizeof(__m128i);
  alignas(kBlocks) __m128i each[4];  // std::array warns that it loses attributes of the type
  _mm512_store_si512(each, blocks);
  const __m128i far = fold<2 * kBlock>(each[1], each[3]);
  const __m128i near = fold<2 * kBlock>(each[0], each[2]);
  return fold<kBlock>(near, far);
}

CHAINMAIL_FOLDING inline void prefetch_stride(const std::byte* data) noexcept {
  for (std::size_t i = 0; i < kStride; i += kBlocks) {
    _mm_prefetch(reinterpret_cast<const char*>(data + kPrefetchBytes + i), _MM_HINT_T0);
  }
}

CHAINMAIL_FOLDING std::uint32_t update_folding(std::uint32_t crc, const std::byte* data,
                                               std::size_t size) noexcept {
  if (size < kStride) return update_by_instruction(crc, data, size);
  __m512i a = load_blocks(data);
  __m512i b = load_blocks(data + kBlocks);
  __m512i c = load_blocks(data + 2 * kBlocks);
  __m512i d = load_blocks(data + 3 * kBlocks);
  a = _mm512_xor_si512(a, _mm512_zextsi128_si512(_mm_cvtsi32_si128(static_cast<int>(crc))));
  for (data += kStride, size -= kStride; size >= kStride; data += kStride, size -= kStride) {
    prefetch_stride(data);
    a = fold<kStride>(a, load_blocks(data));
    b = fold<kStride>(b, load_blocks(data + kBlocks));
    c = fold<kStride>(c, load_blocks(data + 2 * kBlocks));
    d = fold<kStride>(d, load_blocks(data + 3 * kBlocks));
  }
  __m512i sum = fold<kBlocks>(fold<kBlocks>(fold<kBlocks>(a, b), c), d);
  for (; size >= kBlocks; data += kBlocks, size -= kBlocks) {
    sum = fold<kBlocks>(sum, load_blocks(data));
  }
  const __m128i rest = gather(sum);
  std::uint64_t folded = _mm_crc32_u64(0, static_cast<std::uint64_t>(_mm_cvtsi128_si64(rest)));
  folded = _mm_crc32_u64(
      folded, static_cast<std::uint64_t>(_mm_cvtsi128_si64(_mm_unpackhi_epi64(rest, rest))));
  return update_by_instruction(static_cast<std::uint32_t>(folded), data, size);
}

#endif

}  // namespace

bool is_supported(Crc32cMethod method) noexcept {
  switch (method) {
    case Crc32cMethod::kTable:
      return true;
#if defined(__x86_64__)
    case Crc32cMethod::kInstruction:
      return __builtin_cpu_supports("sse4.2") != 0;
    case Crc32cMethod::kFolding:
      return __builtin_cpu_supports("sse4.2") != 0 && __builtin_cpu_supports("pclmul") != 0 &&
             __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("vpclmulqdq") != 0;
#else
    case Crc32cMethod::kInstruction:
    case Crc32cMethod::kFolding:
      return false;
#endif
  }
  return false;
}

std::uint32_t crc32c_by(Crc32cMethod method, std::span<const std::byte> bytes,
                        std::uint32_t previous) noexcept {
  const std::uint32_t crc = ~previous;
  switch (method) {
#if defined(__x86_64__)
    case Crc32cMethod::kFolding:
      return ~update_folding(crc, bytes.data(), bytes.size());
    case Crc32cMethod::kInstruction:
      return ~update_by_instruction(crc, bytes.data(), bytes.size());
#else
    case Crc32cMethod::kFolding:
    case Crc32cMethod::kInstruction:
#endif
    case Crc32cMethod::kTable:
      break;
  }
  return ~update_portable(crc, bytes.data(), bytes.size());
}

std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t previous) noexcept {
  static const Crc32cMethod fastest = [] {
    for (const auto method : {Crc32cMethod::kFolding, Crc32cMethod::kInstruction}) {
      if (is_supported(method)) return method;
    }
    return Crc32cMethod::kTable;
  }();
  return crc32c_by(fastest, bytes, previous);
}

}  // namespace chainmail::internal
