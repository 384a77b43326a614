// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Ranks as real processes that are killed, stopped, leave or disagree. The test starts its own
// binary again with "--role NAME DIRECTORY RANK SIZE"; a rank prints what it caught and when.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "ops/core/liveness.h"
#include "tests/ops/comm/shm/shm_ranks.h"
#include "tests/ops/support/dev_shm.h"
#include "tests/ops/support/processes.h"
#include "tests/support/patience.h"

namespace chainmail::ops {
namespace {

using test::DirectoryRendezvous;
using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

// Rank 1 is killed once it has joined, rank 0 looks at it only when nothing of it is left.
class DeadlyRendezvous final : public Rendezvous {
 public:
  DeadlyRendezvous(const char* directory, int rank) : files_(directory), rank_(rank) {}
  void set(const std::string& key, const std::string& value) override { files_.set(key, value); }
  std::optional<std::string> try_get(const std::string& key, internal::Deadline deadline) override {
    // What a rank looks for while it waits for the others.
    const bool has_joined = key.find("/shm/failed") != std::string::npos;
    if (has_joined && rank_ == 1) ::raise(SIGKILL);
    if (has_joined) (void)get("reaped", internal::Deadline::after(std::chrono::seconds{20}));
    return files_.try_get(key, deadline);
  }
  std::string get(const std::string& key, internal::Deadline deadline) override {
    return files_.get(key, deadline);
  }

 private:
  DirectoryRendezvous files_;
  int rank_;
};

// --- what a rank does ---------------------------------------------------------------------------

void sum_floats(ShmRank& self, std::size_t count, std::chrono::milliseconds timeout) {
  std::vector<float> data(count, 1.0f);
  self.comm.all_reduce(
      reinterpret_cast<std::byte*>(data.data()), count, {},
      self.context(OpKind::kAllReduce, count, DataType::kFloat32, ReduceOp::kSum, timeout));
}

void signal_at_fifth_call(ShmRank& self, int signal_number, std::size_t count) {
  for (int call = 0; call < 1000; ++call) {
    if (call == 5 && self.comm.rank() == 1) ::raise(signal_number);
    sum_floats(self, count, std::chrono::milliseconds{800});
  }
}

void die_in_shared_memory(ShmRank& self) {
  constexpr std::size_t kCount = 500000;
  const auto data = self.comm.allocate(kCount * sizeof(float), self.context(OpKind::kAllocate, 0));
  for (int call = 1; call < 1000; ++call) {
    if (call == 5 && self.comm.rank() == 1) ::raise(SIGKILL);
    self.comm.all_reduce(data.get(), kCount, {},
                         self.context(OpKind::kAllReduce, kCount, DataType::kFloat32,
                                      ReduceOp::kSum, std::chrono::milliseconds{800}));
  }
}

void disagree_at_third_call(ShmRank& self, const std::string& how) {
  for (int call = 0; call < 2; ++call) sum_floats(self, 1000, std::chrono::seconds{20});
  const bool differs = self.comm.rank() == 1;
  std::vector<double> data(200000, 1.0);
  auto* bytes = reinterpret_cast<std::byte*>(data.data());
  if (differs && how == "kind") {
    self.comm.broadcast(bytes, 40, 0, self.context(OpKind::kBroadcast, 10));
    return;
  }
  const std::size_t count = differs && how == "count" ? 100000 : 10;
  Reduction reduction;
  if (differs && how == "dtype") reduction.dtype = DataType::kInt32;
  if (differs && how == "op") reduction.op = ReduceOp::kMax;
  self.comm.all_reduce(bytes, count, reduction,
                       self.context(OpKind::kAllReduce, count, reduction.dtype, reduction.op));
}

void leave_early(ShmRank& self) {
  const std::vector<std::byte> wanted(100, std::byte{7});
  std::vector<std::byte> data(100, self.comm.rank() == 1 ? std::byte{7} : std::byte{0});
  if (self.comm.rank() == 0) std::this_thread::sleep_for(std::chrono::milliseconds{300});
  self.comm.broadcast(data.data(), 100, 1, self.context(OpKind::kBroadcast, 100));
  if (self.comm.rank() == 1) return;
  std::cout << (data == wanted ? "delivered " : "corrupted ");
  self.comm.broadcast(data.data(), 100, 1, self.context(OpKind::kBroadcast, 100));
}

void play(const std::string& role, ShmRank& self) {
  if (role == "kill_small") return signal_at_fifth_call(self, SIGKILL, 1);
  if (role == "kill_large") return signal_at_fifth_call(self, SIGKILL, 500000);
  if (role == "kill_shared") return die_in_shared_memory(self);
  if (role == "stop") return signal_at_fifth_call(self, SIGSTOP, 1);
  if (role == "leave") return leave_early(self);
  disagree_at_third_call(self, role);
}

int be_rank(const std::string& role, const char* directory, int rank, int size) {
  if (role == "file_limit") {
    const rlimit limit{4096, 4096};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ShmCommOptions options;
  options.rank = rank;
  options.size = size;
  options.host = "testhost";
  options.key_prefix = "group";
  const auto start = Clock::now();
  std::string caught = "nothing";
  try {
    std::unique_ptr<Rendezvous> rendezvous = std::make_unique<DirectoryRendezvous>(directory);
    if (role == "die_joining") {
      if (rank == 2) return 0;
      rendezvous = std::make_unique<DeadlyRendezvous>(directory, rank);
    }
    FailureState failure;
    const auto comm =
        create_shm_comm(options, *rendezvous, internal::Deadline::after(std::chrono::seconds{30}));
    ShmRank self{*comm, failure};
    play(role, self);
  } catch (const Error& error) {
    caught = std::string(to_string(error.code())) + ": " + error.what();
  }
  const std::chrono::duration<double> elapsed = Clock::now() - start;
  std::cout << caught << " after " << elapsed.count() << " s\n" << std::flush;
  return 0;
}

// --- the test's side ----------------------------------------------------------------------------

using ShmFaultTest = test::RankProcesses;

class ShmKillTest : public ShmFaultTest, public ::testing::WithParamInterface<const char*> {};

TEST_P(ShmKillTest, AKilledRankIsNoticedByAllOthersAtOnce) {
  start(GetParam(), 4);
  int status = 0;
  ASSERT_EQ(::waitpid(pids_[1], &status, 0), pids_[1]);
  const auto death = Clock::now();
  pids_[1] = 0;
  ASSERT_TRUE(WIFSIGNALED(status));
  for (const int rank : {0, 2, 3}) {
    const std::string text = output_of(rank);
    EXPECT_THAT(text, HasSubstr("PeerError: rank 1 on host testhost (pid "));
    EXPECT_THAT(text, HasSubstr("ended while rank "));
    EXPECT_THAT(text, HasSubstr("all_reduce #6"));
  }
  // 0.2 s is the aim; a loaded machine needs a while to run the three.
  EXPECT_LT(Clock::now() - death, patient(std::chrono::seconds{2}));
  EXPECT_EQ(test::files_in_dev_shm(), 0U);
}
INSTANTIATE_TEST_SUITE_P(Sizes, ShmKillTest,
                         ::testing::Values("kill_small", "kill_large", "kill_shared"));

TEST_F(ShmFaultTest, ARankThatDiesBeforeAllHaveJoinedIsNoticed) {
  start("die_joining", 3);
  int status = 0;
  ASSERT_EQ(::waitpid(pids_[1], &status, 0), pids_[1]);
  pids_[1] = 0;
  ASSERT_TRUE(WIFSIGNALED(status));
  DirectoryRendezvous(directory_).set("reaped", "yes");
  const auto reaped = Clock::now();
  const std::string text = output_of(0);
  EXPECT_THAT(text, HasSubstr("PeerError: rank 1 on host testhost (pid "));
  EXPECT_THAT(text, HasSubstr("ended while the ranks of the node joined"));
  EXPECT_LT(Clock::now() - reaped, patient(std::chrono::seconds{2}));
}

// Rank 0 has offered its memory and closed it again, for want of rank 2.
TEST(ShmOffer, ThatLeadsNowhereIsToldAsTheRankThatHasEnded) {
  const auto keys = std::make_shared<LocalRendezvous>();
  keys->set("g/shm", "/proc/self/fd/1000000\n" + std::string(32, '0'));
  int looks = 0;
  LivenessRendezvous rendezvous(keys, [&](int rank) -> std::optional<RankEnd> {
    if (rank != 2 || ++looks < 3) return std::nullopt;  // it is reaped a little later
    return RankEnd{2, "n1", "exited with code 0"};
  });
  ShmCommOptions options;
  options.rank = 1;
  options.size = 3;
  options.global_ranks = {4, 5, 6};
  options.host = "n1";
  options.key_prefix = "g";
  try {
    static_cast<void>(
        create_shm_comm(options, rendezvous, internal::Deadline::after(std::chrono::seconds{30})));
    FAIL() << "it was attached";
  } catch (const PeerError& error) {
    EXPECT_EQ(error.peer_rank(), 6);
    EXPECT_THAT(error.what(), HasSubstr("rank 6 on host n1 exited with code 0"));
  }
}

TEST(ShmOffer, ThatLeadsNowhereWhereNobodyHasEndedSaysWhatToTry) {
  const auto keys = std::make_shared<LocalRendezvous>();
  keys->set("g/shm", "/proc/self/fd/1000000\n" + std::string(32, '0'));
  LivenessRendezvous rendezvous(keys, [](int /*rank*/) { return std::nullopt; });
  ShmCommOptions options;
  options.rank = 1;
  options.size = 2;
  options.key_prefix = "g";
  try {
    static_cast<void>(create_shm_comm(options, rendezvous,
                                      internal::Deadline::after(std::chrono::milliseconds{50})));
    FAIL() << "it was attached";
  } catch (const SystemError& error) {
    EXPECT_EQ(error.native_code(), ENOENT);
    EXPECT_THAT(error.what(), HasSubstr("CHAINMAIL_LOCAL=tcp"));
  }
}

TEST_F(ShmFaultTest, AStoppedRankIsATimeoutThatNamesIt) {
  start("stop", 3);
  for (const int rank : {0, 2}) {
    const std::string text = output_of(rank);
    EXPECT_THAT(text, HasSubstr("TimeoutError: all_reduce #6 of 1 float32"));
    EXPECT_THAT(text, HasSubstr("waiting for rank 1 on host testhost (pid "));
  }
}

class ShmMismatchTest : public ShmFaultTest, public ::testing::WithParamInterface<const char*> {};

TEST_P(ShmMismatchTest, EveryRankIsToldBothSides) {
  start(GetParam(), 3);
  for (const int rank : {0, 1, 2}) {
    const std::string text = output_of(rank);
    EXPECT_THAT(text, HasSubstr("MismatchError: ranks disagree: "));
    EXPECT_THAT(text, HasSubstr("rank 1 on host testhost calls "));
    EXPECT_THAT(text, HasSubstr("all_reduce #3 of 10 float32 (sum, "));
    const std::string word = " after ";
    const double seconds = std::atof(text.c_str() + text.rfind(word) + word.size());
    EXPECT_LT(seconds, 5.0 * patience()) << "far below the 60 s of the operation";
  }
}
INSTANTIATE_TEST_SUITE_P(Differences, ShmMismatchTest,
                         ::testing::Values("kind", "count", "dtype", "op"));

TEST_F(ShmFaultTest, WhatARankSentBeforeItLeftIsDelivered) {
  start("leave", 2);
  EXPECT_THAT(output_of(1), HasSubstr("nothing"));
  const std::string text = output_of(0);
  EXPECT_THAT(text, HasSubstr("delivered PeerError: rank 1 on host testhost"));
  EXPECT_THAT(text, HasSubstr("left the group while rank 0"));
}

TEST_F(ShmFaultTest, ALimitOnFileSizesIsAnErrorNotASignal) {
  start("file_limit", 2);
  for (const int rank : {0, 1}) {
    const std::string text = output_of(rank);
    EXPECT_THAT(text, HasSubstr("SystemError: cannot reserve "));
    EXPECT_THAT(text, HasSubstr("ulimit -f"));
    EXPECT_THAT(text, HasSubstr("CHAINMAIL_LOCAL=tcp"));
  }
}

}  // namespace
}  // namespace chainmail::ops

int main(int argc, char** argv) {
  if (argc == 6 && std::string(argv[1]) == "--role") {
    return chainmail::ops::be_rank(argv[2], argv[3], std::atoi(argv[4]), std::atoi(argv[5]));
  }
  ::testing::InitGoogleMock(&argc, argv);
  return RUN_ALL_TESTS();
}
