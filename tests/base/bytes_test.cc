// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "base/bytes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <set>
#include <vector>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace chainmail::internal {
namespace {

TEST(Bytes, HexHasTwoLowerCaseDigitsPerByte) {
  EXPECT_EQ(to_hex(""), "");
  EXPECT_EQ(to_hex(std::string_view("\x00\x01\x7f\x80\xff", 5)), "00017f80ff");
  EXPECT_EQ(to_hex(0xfedcba9876543210U), "fedcba9876543210");
  EXPECT_EQ(to_hex(std::uint64_t{7}), "0000000000000007");
}

TEST(Bytes, NumbersAreLittleEndian) {
  std::string text = "<";
  append_number(text, std::uint8_t{0xff});
  append_number(text, std::uint16_t{0x0102});
  append_number(text, std::uint32_t{0x80000001});
  append_number(text, std::uint64_t{0x1122334455667788});
  EXPECT_EQ(to_hex(text), "3cff0201010000808877665544332211");
  const auto* in = reinterpret_cast<const std::byte*>(text.data()) + 1;
  EXPECT_EQ(take_number<std::uint8_t>(in), 0xff);
  EXPECT_EQ(take_number<std::uint16_t>(in), 0x0102);
  EXPECT_EQ(take_number<std::uint32_t>(in), 0x80000001U);
  EXPECT_EQ(take_number<std::uint64_t>(in), 0x1122334455667788U);
  EXPECT_EQ(reinterpret_cast<const char*>(in), text.data() + text.size());
}

TEST(Bytes, RandomBytesAreAsManyAsAskedForAndNeverTheSame) {
  EXPECT_EQ(random_bytes(0), "");
  std::set<std::string> seen;
  for (int i = 0; i < 100; ++i) {
    const std::string bytes = random_bytes(16);
    EXPECT_EQ(bytes.size(), 16U);
    seen.insert(bytes);
  }
  EXPECT_EQ(seen.size(), 100U);
}

// Each byte of 256 is hit: what stays zero in all of 20 fills was not written.
TEST(Bytes, AFillReachesTheLastByte) {
  std::vector<bool> is_written(256, false);
  for (int i = 0; i < 20; ++i) {
    std::vector<std::byte> bytes(256);
    fill_with_random(bytes);
    for (std::size_t at = 0; at < bytes.size(); ++at) {
      if (bytes[at] != std::byte{0}) is_written[at] = true;
    }
  }
  for (std::size_t at = 0; at < is_written.size(); ++at) EXPECT_TRUE(is_written[at]) << at;
}

// Checkpoints and the digests that --verify prints live longer than a build.
TEST(Hash, IsXxh3) {
  EXPECT_EQ(hash64(""), 0x2d06800538d394c2U);
  EXPECT_EQ(hash64("a"), 0xe6c632b61e964e1fU);
  EXPECT_EQ(hash64("abc"), 0x78af5f94892f3950U);
}

std::vector<std::byte> some_bytes(std::size_t count) {
  std::mt19937 random(11);
  std::vector<std::byte> bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

TEST(Hash, InPiecesAsInOne) {
  StreamHash hash;
  for (const std::size_t count : {0U, 1U, 3U, 16U, 17U, 128U, 129U, 240U, 241U, 5000U, 300'000U}) {
    const auto bytes = some_bytes(count);
    for (const std::size_t piece : {std::size_t{1}, std::size_t{7}, std::size_t{16} << 10}) {
      hash.reset();
      for (std::size_t at = 0; at < count; at += piece) {
        hash.add(std::span(bytes).subspan(at, std::min(piece, count - at)));
      }
      EXPECT_EQ(hash.value(), hash64(bytes)) << count << " in pieces of " << piece;
    }
  }
}

// The library's own form for the least of processors is compiled here.
TEST(Hash, IsTheSameOnEveryProcessor) {
  for (const std::size_t count : {240U, 241U, 1024U, 1025U, 70'001U, 1U << 20U}) {
    const auto bytes = some_bytes(count);
    EXPECT_EQ(hash64(bytes), XXH3_64bits(bytes.data(), count)) << count;
  }
}

// What a CRC promises, XXH3 has to show: every burst of up to 64 bits, in the lengths that go ways
// of their own in it (16, 128 and 240 bytes) and in whole blocks.
TEST(Hash, FindsBurstsOfErrors) {
  std::mt19937_64 random(7);
  for (const std::size_t count : {16U, 72U, 200U, 1000U, 4096U}) {
    auto bytes = some_bytes(count);
    const std::uint64_t good = hash64(bytes);
    for (std::size_t bit = 0; bit < 8 * count; ++bit) {
      bytes[bit / 8] ^= std::byte{1} << (bit % 8);
      EXPECT_NE(hash64(bytes), good) << "bit " << bit << " of " << count << " bytes";
      bytes[bit / 8] ^= std::byte{1} << (bit % 8);
    }
    for (std::size_t at = 0; at + 8 <= count; ++at) {
      for (int attempt = 0; attempt < 20; ++attempt) {
        const std::uint64_t burst = random() >> (random() % 64) | 1U;
        std::uint64_t word = 0;
        std::memcpy(&word, bytes.data() + at, 8);
        word ^= burst;
        std::memcpy(bytes.data() + at, &word, 8);
        EXPECT_NE(hash64(bytes), good) << "burst at " << at << " of " << count << " bytes";
        word ^= burst;
        std::memcpy(bytes.data() + at, &word, 8);
      }
    }
  }
}

TEST(NumberHash, TellsNumbersTheirOrderAndTheirCount) {
  std::set<std::uint32_t> seen;
  for (std::uint64_t a = 0; a < 50; ++a) {
    seen.insert(NumberHash().add(a).value());
    for (std::uint64_t b = 0; b < 50; ++b) seen.insert(NumberHash().add(a).add(b).value());
  }
  EXPECT_EQ(seen.size(), 50U + 50U * 50U);
}

}  // namespace
}  // namespace chainmail::internal
