// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Records: that each opens at its place and nowhere else, what they are sealed with, and that the
// key changes in time.

#include "ops/comm/tcp/stream/record_cipher.h"

#include <gtest/gtest.h>
#include <openssl/crypto.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "ops/comm/tcp/stream/stream_keys.h"

namespace chainmail::ops {
namespace {

using internal::AesGcm;
using internal::SecretKey;

using Bytes = std::vector<std::byte>;
constexpr std::size_t kTag = RecordCipher::kTagBytes;

// What OpenSSL has allocated so far.
std::atomic<std::size_t> allocations{0};
void* counting_malloc(std::size_t bytes, const char* /*file*/, int /*line*/) {
  ++allocations;
  return std::malloc(bytes);
}
void* counting_realloc(void* old, std::size_t bytes, const char* /*file*/, int /*line*/) {
  ++allocations;
  return std::realloc(old, bytes);
}
void plain_free(void* memory, const char* /*file*/, int /*line*/) { std::free(memory); }
// Possible only before OpenSSL allocates for the first time.
const int counts_allocations =
    CRYPTO_set_mem_functions(counting_malloc, counting_realloc, plain_free);

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

SecretKey some_key(std::string_view text = "a secret") {
  return internal::hkdf_extract({}, bytes_of(text));
}

struct Record {
  Bytes text;
  Bytes tag = Bytes(kTag);
};

Record sealed(RecordCipher& cipher, Encryption mode, const Bytes& text) {
  Record record{text};
  cipher.seal(text, mode == Encryption::kEncrypt ? record.text.data() : nullptr, record.tag.data());
  return record;
}

bool opens(RecordCipher& cipher, Record record, const Bytes& text) {
  return cipher.open(record.text, record.tag.data()) && record.text == text;
}

class Modes : public testing::TestWithParam<Encryption> {
 protected:
  RecordCipher sealer(std::uint64_t limit = kRecordsPerKey) const {
    return RecordCipher(AesGcm::Role::kSeal, GetParam(), some_key(), limit);
  }
  RecordCipher opener(std::uint64_t limit = kRecordsPerKey) const {
    return RecordCipher(AesGcm::Role::kOpen, GetParam(), some_key(), limit);
  }
};

TEST_P(Modes, EveryRecordOpensInItsPlace) {
  RecordCipher seals = sealer(7);
  RecordCipher reads = opener(7);
  for (std::size_t i = 0; i < 100; ++i) {
    const Bytes text(i * 37 % 501, static_cast<std::byte>(i));
    const Record record = sealed(seals, GetParam(), text);
    EXPECT_EQ(record.text == text, GetParam() == Encryption::kAuthenticate || text.empty()) << i;
    EXPECT_TRUE(opens(reads, record, text)) << i;
  }
  EXPECT_EQ(seals.record_count(), 100U);
}

TEST_P(Modes, ARecordOpensNowhereElse) {
  constexpr std::size_t kRecords = 12;  // over three keys
  const Bytes text(100, std::byte{5});
  RecordCipher seals = sealer(5);
  std::vector<Record> records;
  for (std::size_t i = 0; i < kRecords; ++i) records.push_back(sealed(seals, GetParam(), text));
  for (std::size_t place = 0; place < kRecords; ++place) {
    for (std::size_t i = 0; i < kRecords; ++i) {
      RecordCipher reads = opener(5);
      for (std::size_t before = 0; before < place; ++before) {
        ASSERT_TRUE(opens(reads, records[before], text));
      }
      EXPECT_EQ(opens(reads, records[i], text), i == place) << i << " at " << place;
    }
  }
}

TEST_P(Modes, AnotherModeOrKeyDoesNotOpen) {
  const Bytes text(100, std::byte{5});
  RecordCipher seals = sealer();
  const Record record = sealed(seals, GetParam(), text);
  const Encryption other =
      GetParam() == Encryption::kEncrypt ? Encryption::kAuthenticate : Encryption::kEncrypt;
  RecordCipher of_other_mode(AesGcm::Role::kOpen, other, some_key());
  Record copy = record;
  EXPECT_FALSE(of_other_mode.open(copy.text, copy.tag.data()));
  RecordCipher of_other_key(AesGcm::Role::kOpen, GetParam(), some_key("another secret"));
  EXPECT_FALSE(opens(of_other_key, record, text));
}

TEST_P(Modes, ARecordCostsNoAllocation) {
  ASSERT_EQ(counts_allocations, 1);
  RecordCipher seals = sealer();
  RecordCipher reads = opener();
  const Bytes text(1000, std::byte{5});
  Record record{text};
  std::size_t first = 0;
  for (int i = 0; i < 100; ++i) {
    if (i == 1) first = allocations;
    record.text = text;  // of the same size: not allocated anew
    seals.seal(text, GetParam() == Encryption::kEncrypt ? record.text.data() : nullptr,
               record.tag.data());
    ASSERT_TRUE(reads.open(record.text, record.tag.data()));
  }
  EXPECT_GT(first, 0U);
  EXPECT_EQ(allocations, first);
}

INSTANTIATE_TEST_SUITE_P(RecordCipherTest, Modes,
                         testing::Values(Encryption::kAuthenticate, Encryption::kEncrypt),
                         [](const auto& of) { return std::string(to_string(of.param)); });

// RFC 8446, 5.3 and 7.2, put together here from their parts.
class Expected {
 public:
  Expected() { use(); }
  void next_key() {
    SecretKey next;
    internal::hkdf_expand(key_, "next", next.bytes());
    key_ = std::move(next);
    use();
  }
  Record record(std::uint64_t number, const Bytes& text) {
    AesGcm::Iv iv = iv_;
    for (std::size_t i = 0; i < 8; ++i) {
      iv[4 + i] ^= static_cast<std::byte>(number >> (56 - 8 * i) & 0xff);
    }
    Record record{text};
    cipher_.seal(iv, {}, text, record.text.data(), record.tag.data());
    return record;
  }

 private:
  void use() {
    SecretKey key;
    internal::hkdf_expand(key_, "key", key.bytes());
    cipher_.set_key(key.bytes());
    internal::hkdf_expand(key_, "iv", iv_);
  }
  AesGcm cipher_{AesGcm::Role::kSeal};
  SecretKey key_ = some_key();
  AesGcm::Iv iv_{};
};

TEST(RecordCipherTest, CountsInTheIvAndChangesTheKeyAtTheLimit) {
  constexpr std::uint64_t kLimit = 300;  // the counter's second byte counts, too
  RecordCipher cipher(AesGcm::Role::kSeal, Encryption::kEncrypt, some_key(), kLimit);
  Expected expected;
  const Bytes text(40, std::byte{9});
  for (std::uint64_t number = 0; number < 3 * kLimit; ++number) {
    if (number != 0 && number % kLimit == 0) expected.next_key();
    const Record theirs = sealed(cipher, Encryption::kEncrypt, text);
    const Record ours = expected.record(number, text);
    ASSERT_EQ(theirs.text, ours.text) << number;
    ASSERT_EQ(theirs.tag, ours.tag) << number;
  }
}

// Whatever is different between two connections, directions or modes, no key of one is one of the
// other; and both ends of one have the same.
TEST(StreamKeysTest, EveryInputMakesOtherKeys) {
  const KeyInputs inputs{.secret = "secret",
                         .protocol = "one",
                         .group = "group",
                         .generation = 1,
                         .size = 4,
                         .dialer = 0,
                         .acceptor = 1,
                         .encryption = Encryption::kEncrypt,
                         .nonce_of_dialer = {std::byte{1}},
                         .nonce_of_acceptor = {std::byte{2}}};
  std::vector<KeyInputs> all(11, inputs);
  all[1].secret = "secret2";
  all[2].protocol = "two";
  all[3].group = "group2";
  all[4].generation = 2;
  all[5].size = 5;
  std::swap(all[6].dialer, all[6].acceptor);
  all[7].acceptor = 2;
  all[8].encryption = Encryption::kAuthenticate;
  all[9].nonce_of_dialer = {std::byte{3}};
  std::swap(all[10].nonce_of_dialer, all[10].nonce_of_acceptor);
  std::set<std::string> keys;
  for (const KeyInputs& each : all) {
    const StreamKeys dialer = derive_stream_keys(each, true);
    const StreamKeys acceptor = derive_stream_keys(each, false);
    EXPECT_EQ(dialer.send.view(), acceptor.receive.view());
    EXPECT_EQ(dialer.receive.view(), acceptor.send.view());
    EXPECT_TRUE(keys.emplace(dialer.send.view()).second);
    EXPECT_TRUE(keys.emplace(dialer.receive.view()).second);
  }
  // A piece of one text is not a piece of the next.
  KeyInputs moved = inputs;
  moved.protocol = "on";
  moved.group = "egroup";
  EXPECT_TRUE(keys.emplace(derive_stream_keys(moved, true).send.view()).second);
}

TEST(RecordCipherTest, TheLimitIsWellInsideThatOfNist) {
  // SP 800-38D, 8.3: at most 2^32 records. RFC 8446, 5.5: 2^24.5 records of 2^10 blocks.
  static_assert(kRecordsPerKey < std::uint64_t{1} << 32);
  static_assert(kRecordsPerKey * (kRecordBytes / 16) <= std::uint64_t{1} << 34);
}

}  // namespace
}  // namespace chainmail::ops
