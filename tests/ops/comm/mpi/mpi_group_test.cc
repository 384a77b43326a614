// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Groups over real MPI, every rank a process of mpiexec that runs this whole program; the "nodes"
// are this machine. usage: mpi_group_test SCRATCH_DIRECTORY (the same for all ranks)

#include <malloc.h>
#include <unistd.h>

#include <chrono>
#include <cinttypes>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/ops/support/groups.h"
#include "tests/ops/support/processes.h"
#include "tests/ops/support/reference.h"

namespace chainmail::ops {
namespace {

using std::chrono::milliseconds;
using test::DirectoryRendezvous;
using test::on;
using testing::ElementsAre;
using testing::HasSubstr;

std::string directory;

int variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? -1 : std::stoi(value);
}

class MpiGroup : public testing::Test {
 protected:
  const int rank = variable("OMPI_COMM_WORLD_RANK");
  const int size = variable("OMPI_COMM_WORLD_SIZE");

  void SetUp() override {
    if (size < 2) {
      GTEST_SKIP() << "skipped: not under mpiexec";
    }
  }

  /// Ranks that come with the same name meet; `nodes` are sizes.
  std::shared_ptr<Group> join(const std::string& name, int own_rank, const std::vector<int>& nodes,
                              CrossTransport cross = CrossTransport::kMpi,
                              milliseconds limit = std::chrono::seconds{60}) const {
    const Topology topology = Topology::from_node_sizes(nodes);
    GroupOptions options;
    options.name = name;
    options.cross = cross;
    options.timeout = limit;
    options.interface = "127.0.0.1";
    options.secret = std::string(32, 's');
    options.host = "node" + std::to_string(topology.node_of(own_rank) + 1);
    return create_group(own_rank, topology,
                        std::make_shared<DirectoryRendezvous>(directory + "/" + name), options);
  }
  std::vector<int> one_per_node() const {
    return std::vector<int>(static_cast<std::size_t>(size), 1);
  }

  /// Returns when all ranks have called it with this name, without MPI.
  void meet(const std::string& name) const {
    DirectoryRendezvous board(directory + "/meet-" + name);
    board.set(std::to_string(rank), "1");
    for (int other = 0; other < size; ++other) {
      board.get(std::to_string(other), internal::Deadline::after(std::chrono::seconds{60}));
    }
  }

  static void expect_sum(Group& group, std::size_t count) {
    std::vector<float> values(count, static_cast<float>(group.rank() + 1));
    group.run(on(values));
    const int sum = group.size() * (group.size() + 1) / 2;
    ASSERT_EQ(values, std::vector<float>(count, static_cast<float>(sum)));
  }

  static bool has_mapped(const std::string& library) {
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
      if (line.find(library) != std::string::npos) return true;
    }
    return false;
  }

  /// Deterministic values that no order of additions leaves alike.
  static std::vector<std::byte> input(int own_rank, std::size_t count, DataType type) {
    std::vector<std::byte> data(count * size_of(type));
    for (std::size_t i = 0; i < count; ++i) {
      const auto mixed =
          static_cast<double>((i * 2654435761U + static_cast<unsigned>(own_rank)) % 97);
      test::set_element(data.data(), type, i, is_floating_point(type) ? mixed * 0.37 : mixed / 10);
    }
    return data;
  }
};

TEST_F(MpiGroup, IsLoadedWhenSomebodyAsksForIt) {
  const auto tcp = join("tcp-only", rank, one_per_node(), CrossTransport::kTcp);
  expect_sum(*tcp, 1000);
  EXPECT_FALSE(has_mapped("libmpi")) << "TCP needs no MPI";
  EXPECT_FALSE(has_mapped("libchainmail_mpi"));
  const auto mpi = join("first-mpi", rank, one_per_node());
  expect_sum(*mpi, 1000);
  EXPECT_TRUE(has_mapped("libmpi"));
}

TEST_F(MpiGroup, EveryAlgorithmTypeAndWireGivesTheBitsOfTcp) {
  std::vector<std::vector<int>> shapes = {one_per_node()};
  if (size == 4) shapes = {{2, 2}, {3, 1}, {1, 1, 1, 1}};
  for (const auto& nodes : shapes) {
    const std::string shape = Topology::from_node_sizes(nodes).describe();
    const auto tcp = join("tcp " + shape, rank, nodes, CrossTransport::kTcp);
    const auto mpi = join("mpi " + shape, rank, nodes);
    for (const Algorithm algorithm :
         {Algorithm::kFlat, Algorithm::kHierarchical, Algorithm::kTwoDimensional}) {
      for (int t = 0; t < kDataTypeCount; ++t) {
        const auto type = static_cast<DataType>(t);
        for (const WireFormat wire :
             {WireFormat::kNative, WireFormat::kFloat16, WireFormat::kBFloat16, WireFormat::kInt8,
              WireFormat::kInt4}) {
          if (wire != WireFormat::kNative && !is_compressed(wire, type, ReduceOp::kSum)) continue;
          std::vector<std::size_t> counts = {0, 1, 7, 1000, 65537};
          if (type == DataType::kFloat32 && algorithm == Algorithm::kHierarchical) {
            counts.push_back(1'000'003);
          }
          for (const std::size_t count : counts) {
            auto over_tcp = input(rank, count, type);
            auto over_mpi = over_tcp;
            for (auto* data : {&over_tcp, &over_mpi}) {
              Collective collective;
              collective.dtype = type;
              collective.count = count;
              collective.output = data->data();
              collective.algorithm = algorithm;
              collective.wire = wire;
              (data == &over_tcp ? *tcp : *mpi).run(collective);
            }
            ASSERT_TRUE(over_tcp == over_mpi)
                << shape << " " << to_string(algorithm) << " " << count << " " << to_string(type)
                << " over " << to_string(wire);
          }
        }
      }
    }
  }
}

TEST_F(MpiGroup, SendsAndReceivesMeetInAnyOrder) {
  const auto group = join("transfers", rank, one_per_node());
  for (const std::size_t count : {std::size_t{0}, std::size_t{5}, std::size_t{3'000'000}}) {
    std::vector<std::vector<float>> sent;
    std::vector<std::vector<float>> got;
    std::vector<std::shared_ptr<Operation>> operations;
    for (int peer = 0; peer < size; ++peer) {
      sent.emplace_back(count, static_cast<float>(10 * rank + peer));
      got.emplace_back(count, -1.0F);
    }
    for (int peer = 0; peer < size; ++peer) {
      if (peer == rank) continue;
      for (const OpKind kind : {OpKind::kSend, OpKind::kRecv}) {
        const auto at = static_cast<std::size_t>(peer);
        Collective transfer = on(kind == OpKind::kSend ? sent[at] : got[at], kind);
        transfer.root = peer;
        transfer.tag = 7;
        operations.push_back(group->submit(transfer));
      }
    }
    for (const auto& operation : operations) operation->wait();
    for (int peer = 0; peer < size; ++peer) {
      if (peer == rank) continue;
      ASSERT_EQ(got[static_cast<std::size_t>(peer)],
                std::vector<float>(count, static_cast<float>(10 * peer + rank)));
    }
  }
}

TEST_F(MpiGroup, SubgroupsNeedTheirOwnRanksOnly) {
  if (rank < 2) {
    const auto pair = join("pair", rank, {1, 1});
    expect_sum(*pair, 100'000);
  }
  if (rank % 2 == 0 && size > 2) {
    const auto even =
        join("even", rank / 2, std::vector<int>(static_cast<std::size_t>(size / 2), 1));
    expect_sum(*even, 100'000);
  }
}

TEST_F(MpiGroup, TwoGroupsWorkAtOnceInThreadsOfOneProcess) {
  const auto first = join("thread-0", rank, one_per_node());
  const auto second = join("thread-1", rank, one_per_node());
  std::thread other([&] {
    for (int i = 0; i < 50; ++i) expect_sum(*second, i % 2 == 0 ? 10 : 200'000);
  });
  for (int i = 0; i < 50; ++i) expect_sum(*first, i % 2 == 0 ? 200'000 : 10);
  other.join();
}

// What the program holds: bytes of live allocations, and of memory that it shares. The resident set
// would count freed memory that the allocator keeps and stacks of threads that have ended too.
std::size_t held_bytes() {
  const auto heap = mallinfo2();
  std::size_t held = heap.uordblks + heap.hblkhd;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    std::uintptr_t begin = 0;
    std::uintptr_t end = 0;
    char shared = 0;
    const int fields =
        std::sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR " %*3c%c", &begin, &end, &shared);
    if (fields == 3 && shared == 's') held += end - begin;
  }
  return held;
}

TEST_F(MpiGroup, HundredsOfGroupsLeaveNothing) {
  std::size_t before = 0;
  for (int i = 0; i < 300; ++i) {
    if (i == 50) before = held_bytes();
    const auto group = join("many-" + std::to_string(i), rank, one_per_node());
    expect_sum(*group, 200'000);
  }
  const std::size_t after = held_bytes();
  EXPECT_LT(after, before + (std::size_t{1} << 20)) << "was " << before << " bytes";
}

TEST_F(MpiGroup, ADisagreementIsTheSameErrorOnAllRanks) {
  const auto group = join("mismatch", rank, one_per_node());
  expect_sum(*group, 10);
  meet("before-mismatch");
  std::vector<float> values(rank == 1 ? 11 : 10, 1.0F);
  try {
    group->run(on(values));
    ADD_FAILURE() << "ranks disagree, and nobody says so";
  } catch (const MismatchError& error) {
    EXPECT_THAT(error.what(), HasSubstr("[11]"));
    EXPECT_THAT(error.what(), HasSubstr("[10]"));
  }
  meet("mismatch");
}

TEST_F(MpiGroup, ATimeoutNamesTheRankThatDidNotCome) {
  const int missing = size - 1;
  const auto group = join("late", rank, one_per_node(), CrossTransport::kMpi, milliseconds{3000});
  expect_sum(*group, 10);
  if (rank != missing) {
    std::vector<float> values(10, 1.0F);
    try {
      group->run(on(values));
      ADD_FAILURE() << "rank " << missing << " has not come";
    } catch (const TimeoutError& error) {
      EXPECT_THAT(error.missing_ranks(), ElementsAre(missing)) << error.what();
    }
  }
  meet("late");
  // Another group works afterwards.
  expect_sum(*join("after-late", rank, one_per_node()), 1000);
}

// Only when asked for: mpiexec ends the job when this rank does.
TEST_F(MpiGroup, DISABLED_ARankThatIsKilledOrStopped) {
  expect_sum(*join("first", rank, one_per_node()), 10);  // all have started MPI
  const auto group = join("lost", rank, one_per_node(), CrossTransport::kMpi, milliseconds{3000});
  expect_sum(*group, 10);
  meet("lost");
  const std::string how = std::getenv("LOSE_BY") != nullptr ? std::getenv("LOSE_BY") : "";
  std::thread end;
  if (rank == size - 1) {
    end = std::thread([&] {
      std::this_thread::sleep_for(milliseconds{200});
      ::raise(how == "stop" ? SIGSTOP : SIGKILL);
    });
  }
  try {
    for (int i = 0; i < 10'000; ++i) expect_sum(*group, 1'000'000);
  } catch (const Error& error) {
    std::cout << "rank " << rank << " got " << to_string(error.code()) << ": " << error.what()
              << std::endl;
  }
  if (end.joinable()) end.join();
}

}  // namespace
}  // namespace chainmail::ops

int main(int argc, char** argv) {
  testing::InitGoogleMock(&argc, argv);
  if (argc != 2) {
    std::cerr << "usage: mpiexec -n N mpi_group_test [--gtest_...] SCRATCH_DIRECTORY\n";
    return 2;
  }
  chainmail::ops::directory = argv[1];
  return RUN_ALL_TESTS();
}
