// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What is particular to messages over MPI, with threads in MPI's place: what is left behind, who
// cannot be reached, worlds that do not fit, MPI that is not there.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "ops/comm/mpi/mpi_join.h"
#include "ops/core/rendezvous.h"
#include "ops/engine/create_group.h"
#include "ops/engine/group.h"
#include "tests/ops/comm/rank_threads.h"

namespace chainmail::ops {
namespace {

using testing::CommWorld;
using ::testing::HasSubstr;
using testing::is_a;
using testing::Ops;
using testing::run_ranks;
using testing::run_ranks_catching;
using testing::what;
using testing::Wire;

void sum(P2pComm& comm, Ops& ops, std::size_t count) {
  std::vector<float> data(count, 1.0F);
  comm.all_reduce(reinterpret_cast<std::byte*>(data.data()), count, {},
                  ops.next(OpKind::kAllReduce, count, DataType::kFloat32));
  ASSERT_EQ(data, std::vector<float>(count, static_cast<float>(comm.size())));
}

TEST(MpiTransportTest, WhatComesForClosedOnesIsThrownAway) {
  CommWorld world(Wire::kMpi, 3);
  run_ranks(3, [&](int rank) {
    const auto comm = world.make(rank);
    Ops ops;
    sum(*comm, ops, 100'000);
    // Goodbyes cross: all but the last are sent to a transport that is gone.
    std::this_thread::sleep_for(std::chrono::milliseconds{20 * rank});
  });
  for (int tries = 0; tries < 200; ++tries) {
    for (int rank = 0; rank < 3; ++rank) world.mpi->world(rank)->tidy();
    if (world.mpi->waiting(0) + world.mpi->waiting(1) + world.mpi->waiting(2) == 0) break;
    std::this_thread::sleep_for(std::chrono::milliseconds{10});
  }
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(world.mpi->waiting(rank), 0U);
}

/// One message of `bytes` has come, for any inbox.
class OneMessage final : public MpiApi {
 public:
  explicit OneMessage(int bytes) : bytes_(bytes) {}
  int rank() const noexcept override { return 0; }
  int size() const noexcept override { return 2; }
  int max_tag() const noexcept override { return 32767; }
  MpiCode send(const std::byte*, int, int, int, MpiRequest&) noexcept override { return 1; }
  MpiCode probe(int, int, bool& is_found, MpiArrival& arrival) noexcept override {
    is_found = !is_received();
    arrival.bytes = bytes_;
    return kMpiSuccess;
  }
  MpiCode receive(std::byte* data, const MpiArrival&, MpiRequest&) noexcept override {
    room_ = ::malloc_usable_size(data);
    return kMpiSuccess;
  }
  MpiCode test(MpiRequest&, bool& is_done) noexcept override {
    is_done = true;
    return kMpiSuccess;
  }
  std::string describe(MpiCode) const override { return "fake"; }
  void distrust_peers() noexcept override {}

  bool is_received() const { return room_ != 0; }
  std::size_t room() const { return room_; }

 private:
  const int bytes_;
  std::size_t room_ = 0;
};

TEST(MpiTransportTest, WhatIsThrownAwayHasRoomHoweverLongItIs) {
  const auto api = std::make_shared<OneMessage>(3 * static_cast<int>(MpiBuffer::kMaxBytes));
  MpiWorld world(api);
  world.close_inbox(world.open_inbox(), 1);
  while (!api->is_received()) {
    world.tidy();
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
  }
  EXPECT_GE(api->room(), 3 * MpiBuffer::kMaxBytes);
}

TEST(MpiTransportTest, AFailedOneTakesNothingOfItsPeersAndLetsThemSend) {
  CommWorld world(Wire::kMpi, 2);
  const auto errors = run_ranks_catching(2, [&](int rank) {
    const auto comm = world.make(rank);
    Ops ops;
    sum(*comm, ops, 10);
    std::vector<float> data(1'000'000, 1.0F);
    if (rank == 1) ops.failure().fail(std::make_exception_ptr(PeerError("this rank gives up", 1)));
    comm->all_reduce(reinterpret_cast<std::byte*>(data.data()), data.size(), {},
                     ops.next(OpKind::kAllReduce, data.size(), DataType::kFloat32));
  });
  EXPECT_TRUE(is_a<PeerError>(errors[0])) << what(errors[0]);
  EXPECT_THAT(what(errors[0]), HasSubstr("this rank gives up"));
  EXPECT_THAT(what(errors[1]), HasSubstr("this rank gives up"));
}

TEST(MpiTransportTest, AProcessThatMpiCannotReachIsAPeerError) {
  CommWorld world(Wire::kMpi, 2);
  world.mpi->cut_off(1);
  const auto errors = run_ranks_catching(2, [&](int rank) {
    const auto comm = world.make(rank);
    Ops ops(std::chrono::milliseconds{rank == 0 ? 20000 : 300});
    sum(*comm, ops, 10);
  });
  EXPECT_TRUE(is_a<PeerError>(errors[0])) << what(errors[0]);
  EXPECT_THAT(what(errors[0]),
              HasSubstr("rank 1 on host host1 cannot be reached (MPI_Isend: fake"));
  EXPECT_NE(errors[1], nullptr);
}

TEST(MpiTransportTest, RanksOfTwoMpiJobsAreToldSo) {
  CommWorld world(Wire::kMpi, 2);
  // Each alone in its world, as without mpiexec.
  std::vector<std::shared_ptr<test::FakeMpi>> alone = {std::make_shared<test::FakeMpi>(1),
                                                       std::make_shared<test::FakeMpi>(1)};
  const auto errors = run_ranks_catching(2, [&](int rank) {
    MpiOptions options;
    options.rank = rank;
    options.names = world.tcp.names;
    options.group = "alone";
    P2pComm comm(std::make_unique<MpiTransport>(alone[static_cast<std::size_t>(rank)]->world(0),
                                                world.rendezvous, options));
    Ops ops(std::chrono::milliseconds{20000});
    sum(comm, ops, 10);
  });
  for (const auto& error : errors) {
    EXPECT_TRUE(is_a<MismatchError>(error)) << what(error);
    EXPECT_THAT(what(error), HasSubstr("process 0 of 1"));
    EXPECT_THAT(what(error), HasSubstr("one mpiexec"));
  }
}

TEST(MpiTransportTest, TagsAreNotUsedTwice) {
  test::FakeMpi mpi(1);
  int inbox = 0;
  for (int i = 1; i < 32767; ++i) {
    const int next = mpi.world(0)->open_inbox();
    ASSERT_GT(next, inbox);
    inbox = next;
  }
  EXPECT_THROW(mpi.world(0)->open_inbox(), MpiError);
}

TEST(MpiTransportTest, ALibraryThatIsNotThereIsNamedWithItsPackage) {
  try {
    static_cast<void>(open_mpi_library("libchainmail_no_such_mpi.so"));
    ADD_FAILURE() << "it was opened";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("libchainmail_no_such_mpi.so"));
    EXPECT_THAT(error.what(), HasSubstr("libopenmpi-dev"));
  }
}

// Also where the library is not built, with another sentence.
TEST(MpiTransportTest, WithoutMpiexecAGroupIsRefusedOnAllRanks) {
  for (const char* name : {"PMIX_RANK", "PMI_RANK", "OMPI_COMM_WORLD_RANK"}) ::unsetenv(name);
  const auto rendezvous = std::make_shared<LocalRendezvous>();
  const std::vector<int> nodes = {1, 1};
  run_ranks(2, [&](int rank) {
    GroupOptions options;
    options.cross = CrossTransport::kMpi;
    const auto join = [&] {
      return create_group(rank, Topology::from_node_sizes(nodes), rendezvous, options);
    };
    EXPECT_THROW(static_cast<void>(join()), InvalidArgument);
  });
}

TEST(MpiTransportTest, ARankOfItsOwnNeedsNoMpi) {
  GroupOptions options;
  options.cross = CrossTransport::kMpi;
  EXPECT_NE(create_group(0, Topology::single_node(1), std::make_shared<LocalRendezvous>(), options),
            nullptr);
}

}  // namespace
}  // namespace chainmail::ops
