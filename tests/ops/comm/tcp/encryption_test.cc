// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Ranks that encrypt or authenticate, with somebody on the way between them: what he sees, what he
// cannot do, and what ranks say that disagree.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <random>

#include "ops/comm/tcp/stream/sealed_stream.h"
#include "tests/ops/comm/rank_threads.h"
#include "tests/ops/comm/tcp/relay.h"
#include "tests/support/patience.h"

namespace chainmail::ops {
namespace {

using testing::CommWorld;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using testing::is_a;
using testing::Ops;
using testing::Relay;
using testing::run_ranks_catching;
using testing::what;
using testing::Wire;

// Of the handshake: hello and proof; challenge and verdict. Records follow.
constexpr std::size_t kDialerBytes = 8 + 44 + 1 + 32 + 32;
constexpr std::size_t kAcceptorBytes = 32 + 1 + 32 + 1 + 32;
// Where an end says what it wants.
constexpr std::size_t kDialerMode = 8 + 44;
constexpr std::size_t kAcceptorMode = 32;

constexpr std::size_t kCount = 60'000;  // several records each way

struct Pair {
  Pair(Wire wire, Relay& relay) : world(wire, 2) {
    for (int rank = 0; rank < 2; ++rank) comms.push_back(world.make(rank));
    for (int rank = 0; rank < 2; ++rank) lead_through(relay, rank);
  }
  Pair(Wire of_first, Wire of_second) : world(of_first, 2) {
    comms.push_back(world.make(0));
    world.wire = of_second;
    comms.push_back(world.make(1));
  }
  void lead_through(Relay& relay, int rank) const {
    const std::string key = "test/tcp/0/" + std::to_string(rank);
    world.rendezvous->set(key, relay.in_front_of(world.rendezvous->try_get(key).value()));
  }

  // Both ranks sum up twice; a wrong sum without an error is a failure of the test.
  std::vector<std::exception_ptr> run(const std::vector<float>& values) {
    return run_ranks_catching(2, [&](int rank) {
      P2pComm& comm = *comms[static_cast<std::size_t>(rank)];
      Ops ops(std::chrono::seconds{20});
      for (int call = 0; call < 2; ++call) {
        std::vector<float> data = values;
        comm.all_reduce(reinterpret_cast<std::byte*>(data.data()), data.size(), {},
                        ops.next(OpKind::kAllReduce, data.size(), DataType::kFloat32));
        for (std::size_t i = 0; i < data.size(); ++i) {
          ASSERT_EQ(data[i], 2 * values[i]) << "a wrong sum was accepted";
        }
      }
    });
  }

  CommWorld world;
  std::vector<std::unique_ptr<P2pComm>> comms;
};

std::vector<float> numbers() {
  std::vector<float> values(kCount);
  std::mt19937 random(3);
  for (float& value : values) value = static_cast<float>(random() % 100'000) / 7;
  return values;
}

std::string both(const std::vector<std::exception_ptr>& errors) {
  return "rank 0: " + what(errors[0]) + "\nrank 1: " + what(errors[1]);
}

class EncryptionTest : public ::testing::TestWithParam<Wire> {};
class TamperingTest : public ::testing::TestWithParam<Wire> {};

TEST_P(EncryptionTest, ShowsNoPieceOfATensorToWhoListens) {
  Relay relay;
  const std::vector<float> values = numbers();
  {
    Pair pair(GetParam(), relay);
    const auto errors = pair.run(values);
    EXPECT_EQ(both(errors), "rank 0: \nrank 1: ");
  }
  relay.stop();
  const std::string wire = relay.seen(Relay::Side::kDialer) + relay.seen(Relay::Side::kAcceptor);
  ASSERT_GT(wire.size(), 2 * kCount * sizeof(float));
  std::vector<std::uint64_t> pieces;  // of 8 bytes, at every place
  for (std::size_t i = 0; i + 8 <= wire.size(); ++i) {
    std::memcpy(&pieces.emplace_back(), wire.data() + i, 8);
  }
  std::sort(pieces.begin(), pieces.end());
  std::size_t seen = 0;
  for (std::size_t i = 0; i + 1 < values.size(); i += 2) {
    std::uint64_t piece = 0;
    std::memcpy(&piece, &values[i], 8);
    if (std::binary_search(pieces.begin(), pieces.end(), piece)) ++seen;
  }
  // How the head of a message of an all-reduce begins.
  const bool shows_heads = wire.find(std::string("CM\1\0\0\0\0\0", 8)) != std::string::npos;
  if (GetParam() == Wire::kEncrypted) {
    EXPECT_EQ(seen, 0U);
    EXPECT_FALSE(shows_heads);
  } else {
    EXPECT_GT(seen, kCount / 2 * 9 / 10);
    EXPECT_TRUE(shows_heads);
  }
}

// Changes the stream once, at `place` of one side, as `kind` says.
class Tampering {
 public:
  static constexpr int kKinds = 6;
  Tampering(int kind, std::mt19937& random, const std::string* other)
      : kind_(kind),
        side_(random() % 2 == 0 ? Relay::Side::kDialer : Relay::Side::kAcceptor),
        place_(random() % 200'000),
        noise_(static_cast<unsigned>(random())),
        other_(other) {
    place_ += side_ == Relay::Side::kDialer ? kDialerBytes : kAcceptorBytes;
  }

  bool operator()(Relay::Side side, std::size_t offset, std::string& bytes) {
    if (side != side_) return true;
    const std::size_t end = offset + bytes.size();
    if (kind_ == 5) {  // from here on the bytes of an earlier connection
      const std::size_t from = std::max(offset, place_);
      const std::size_t to = std::min(end, other_->size());
      if (from < to) bytes.replace(from - offset, to - from, other_->substr(from, to - from));
      is_done_ = is_done_ || from < to;
      return true;
    }
    if (is_done_ || place_ < offset || place_ >= end) return true;
    is_done_ = true;
    const std::size_t at = place_ - offset;
    const std::size_t some = std::min(bytes.size() - at, std::size_t{1} + noise_ % 3000);
    switch (kind_) {
      case 0:
        bytes[at] = static_cast<char>(bytes[at] ^ (1 << noise_ % 8));
        return true;
      case 1:
        return false;
      case 2:  // few enough that the next inquiry fills the gap
        bytes.erase(at, 1 + noise_ % 80);
        return true;
      case 3:  // again
        bytes.insert(at + some, bytes.substr(at, some));
        return true;
      default: {  // two pieces change places
        const std::size_t half = (bytes.size() - at) / 2;
        if (half == 0) return false;
        bytes = bytes.substr(0, at) + bytes.substr(at + half) + bytes.substr(at, half);
        return true;
      }
    }
  }
  bool is_done() const { return is_done_; }
  int kind() const { return kind_; }

 private:
  int kind_;
  Relay::Side side_;
  std::size_t place_;
  unsigned noise_;
  const std::string* other_;
  bool is_done_ = false;
};

// More by hand: tests/soak/engine/encryption.sh.
int attempts() {
  const char* const text = std::getenv("CHAINMAIL_TEST_ATTEMPTS");
  return text == nullptr ? 60 : std::atoi(text);
}

TEST_P(TamperingTest, WhateverIsDoneOnTheWayEndsBothRanksAndChangesNoSum) {
  const std::vector<float> values = numbers();
  std::string earlier[2];
  {
    Relay relay;
    { Pair(GetParam(), relay).run(values); }
    relay.stop();
    earlier[0] = relay.seen(Relay::Side::kDialer);
    earlier[1] = relay.seen(Relay::Side::kAcceptor);
  }
  std::mt19937 random(std::random_device{}());
  int done = 0;
  for (int attempt = 0; attempt < attempts(); ++attempt) {
    Tampering tampering(attempt % Tampering::kKinds, random, &earlier[attempt % 2]);
    Relay relay(std::ref(tampering));
    Pair pair(GetParam(), relay);
    const Stopwatch watch;
    const auto errors = pair.run(values);
    const auto took = watch.elapsed();
    if (HasFatalFailure()) return;
    relay.stop();
    if (!tampering.is_done()) continue;
    ++done;
    EXPECT_LT(took, patient(std::chrono::seconds{10})) << "kind " << tampering.kind();
    EXPECT_TRUE(is_a<PeerError>(errors[0])) << tampering.kind() << "\n" << both(errors);
    EXPECT_TRUE(is_a<PeerError>(errors[1])) << tampering.kind() << "\n" << both(errors);
    if (tampering.kind() == 0) {
      EXPECT_THAT(both(errors), HasSubstr("this job did not seal"));
    }
  }
  EXPECT_GT(done, attempts() / 2);
}

TEST_P(EncryptionTest, NobodyOnTheWayCanTalkBothEndsOutOfIt) {
  // Says to each end what the other one did not say, or only to one of them.
  for (const int told : {0, 1, 2}) {
    for (const int ends : {1, 2, 3}) {
      const auto mode = static_cast<char>(told);
      if (mode == static_cast<char>(GetParam() == Wire::kEncrypted       ? 2
                                    : GetParam() == Wire::kAuthenticated ? 1
                                                                         : 0)) {
        continue;
      }
      Relay relay([&](Relay::Side side, std::size_t offset, std::string& bytes) {
        const bool is_dialer = side == Relay::Side::kDialer;
        const std::size_t place = is_dialer ? kDialerMode : kAcceptorMode;
        if ((ends & (is_dialer ? 1 : 2)) == 0) return true;
        if (offset <= place && place < offset + bytes.size()) bytes[place - offset] = mode;
        return true;
      });
      Pair pair(GetParam(), relay);
      const auto errors = pair.run(numbers());
      relay.stop();
      EXPECT_TRUE(is_a<PeerError>(errors[0]) || is_a<PeerError>(errors[1])) << both(errors);
      EXPECT_FALSE(is_a<MismatchError>(errors[0]) || is_a<MismatchError>(errors[1]))
          << both(errors);
      EXPECT_LE(relay.seen(Relay::Side::kDialer).size(), 200 * kDialerBytes) << "data was sent";
    }
  }
}

TEST_P(EncryptionTest, AVerdictCannotBeChanged) {
  Relay relay([&](Relay::Side side, std::size_t offset, std::string& bytes) {
    constexpr std::size_t kPlace = kAcceptorBytes - 33;
    const bool is_here = offset <= kPlace && kPlace < offset + bytes.size();
    if (side == Relay::Side::kAcceptor && is_here) bytes[kPlace - offset] = 'Y';
    return true;
  });
  Pair pair(GetParam(), relay);
  const auto errors = pair.run(numbers());
  EXPECT_THAT(both(errors), HasSubstr("does not know the job's secret"));
}

INSTANTIATE_TEST_SUITE_P(Modes, TamperingTest,
                         ::testing::Values(Wire::kAuthenticated, Wire::kEncrypted),
                         [](const auto& of) { return std::string(to_string(of.param)); });
INSTANTIATE_TEST_SUITE_P(Modes, EncryptionTest,
                         ::testing::Values(Wire::kTcp, Wire::kAuthenticated, Wire::kEncrypted),
                         [](const auto& of) { return std::string(to_string(of.param)); });

TEST(EncryptionMismatchTest, RanksThatDisagreeSayWhatBothHaveAndWhatToSet) {
  struct Case {
    Wire first, second;
    const char* name_of_first;
    const char* name_of_second;
  };
  for (const auto& [first, second, name_of_first, name_of_second] :
       {Case{Wire::kTcp, Wire::kEncrypted, "off", "encrypt"},
        Case{Wire::kEncrypted, Wire::kTcp, "encrypt", "off"},
        Case{Wire::kAuthenticated, Wire::kEncrypted, "authenticate", "encrypt"},
        Case{Wire::kTcp, Wire::kAuthenticated, "off", "authenticate"}}) {
    Pair pair(first, second);
    const Stopwatch watch;
    const auto errors = pair.run(numbers());
    EXPECT_LT(watch.elapsed(), patient(std::chrono::seconds{5}));
    for (const auto& error : errors) {
      ASSERT_TRUE(is_a<MismatchError>(error)) << both(errors);
      EXPECT_THAT(what(error),
                  ContainsRegex(std::string("rank 0 on host host0 has (encryption )?\"") +
                                name_of_first + "\""));
      EXPECT_THAT(what(error),
                  ContainsRegex(std::string("rank 1 on host host1 has (encryption )?\"") +
                                name_of_second + "\""));
      EXPECT_THAT(what(error), HasSubstr("CHAINMAIL_ENCRYPT"));
    }
  }
}

}  // namespace
}  // namespace chainmail::ops
