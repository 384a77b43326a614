// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/job/environment/settings.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <string>
#include <thread>

#include "base/error.h"
#include "ops/core/rendezvous.h"
#include "plugin/job/environment/mpi_starter.h"
#include "plugin/job/environment/node_id.h"
#include "tests/plugin/job/recorded.h"

namespace chainmail::internal {
namespace {

using std::chrono::milliseconds;

TEST(Settings, LeaveTheProgramsOptionsAloneWhenUnset) {
  ops::GroupOptions options;
  options.timeout = milliseconds(1234);
  options.interface = "eth7";
  apply(read_settings(environment_of({})), options);
  EXPECT_EQ(options.timeout, milliseconds(1234));
  EXPECT_EQ(options.interface, "eth7");
  EXPECT_TRUE(options.use_shared_memory);
  options.cross = ops::CrossTransport::kMpi;
  apply(read_settings(environment_of({})), options);
  EXPECT_EQ(options.cross, ops::CrossTransport::kMpi);
}

TEST(Settings, WinOverTheProgramsOptions) {
  ops::GroupOptions options;
  apply(read_settings(environment_of({{"CHAINMAIL_TIMEOUT", "7"},
                                      {"CHAINMAIL_INTERFACE", "10.0.0.3"},
                                      {"CHAINMAIL_LOCAL", "tcp"},
                                      {"CHAINMAIL_CROSS", "mpi"}})),
        options);
  EXPECT_EQ(options.timeout, milliseconds(7000));
  EXPECT_EQ(options.interface, "10.0.0.3");
  EXPECT_FALSE(options.use_shared_memory);
  EXPECT_EQ(options.cross, ops::CrossTransport::kMpi);
  apply(read_settings(environment_of({{"CHAINMAIL_CROSS", "tcp"}})), options);
  EXPECT_EQ(options.cross, ops::CrossTransport::kTcp);
}

TEST(Settings, TellWhetherDataAreEncrypted) {
  ops::GroupOptions options;
  apply(read_settings(environment_of({})), options);
  EXPECT_EQ(options.encryption, ops::Encryption::kOff);
  for (const auto mode :
       {ops::Encryption::kEncrypt, ops::Encryption::kAuthenticate, ops::Encryption::kOff}) {
    apply(read_settings(environment_of({{"CHAINMAIL_ENCRYPT", to_string(mode)}})), options);
    EXPECT_EQ(options.encryption, mode);
  }
  options.encryption = ops::Encryption::kEncrypt;
  apply(read_settings(environment_of({})), options);
  EXPECT_EQ(options.encryption, ops::Encryption::kEncrypt);
  // Nothing that was meant to protect is taken for "off".
  for (const char* word : {"1", "on", "yes", "Encrypt", "encrypt ", "aes", "none", "0"}) {
    try {
      (void)read_settings(environment_of({{"CHAINMAIL_ENCRYPT", word}}));
      ADD_FAILURE() << word;
    } catch (const InvalidArgument& error) {
      EXPECT_NE(std::string(error.what()).find("none of encrypt, authenticate and off"),
                std::string::npos);
    }
  }
}

TEST(Settings, ReadATableOfAlgorithms) {
  const std::string path = testing::TempDir() + "settings_test_tuning";
  std::ofstream(path) << "0 hierarchical\n100 flat\n";
  ops::GroupOptions options;
  apply(read_settings(environment_of({{"CHAINMAIL_TUNING", path}})), options);
  EXPECT_EQ(options.tuning,
            (ops::Tuning{{0, ops::Algorithm::kHierarchical}, {100, ops::Algorithm::kFlat}}));
  EXPECT_FALSE(options.measures_tuning);
  apply(read_settings(environment_of({{"CHAINMAIL_TUNING", "measure"}})), options);
  EXPECT_TRUE(options.measures_tuning);
  std::ofstream(path) << "0 fast\n";
  EXPECT_THROW((void)read_settings(environment_of({{"CHAINMAIL_TUNING", path}})), InvalidArgument);
  std::remove(path.c_str());
  EXPECT_THROW((void)read_settings(environment_of({{"CHAINMAIL_TUNING", path}})), InvalidArgument);
}

TEST(Settings, RefuseWhatTheyCannotRead) {
  EXPECT_THROW((void)read_settings(environment_of({{"CHAINMAIL_TIMEOUT", "0"}})), InvalidArgument);
  EXPECT_THROW((void)read_settings(environment_of({{"CHAINMAIL_TIMEOUT", "5s"}})), InvalidArgument);
  EXPECT_THROW((void)read_settings(environment_of({{"CHAINMAIL_LOCAL", "pipe"}})), InvalidArgument);
  EXPECT_THROW((void)read_settings(environment_of({{"CHAINMAIL_CROSS", "ib"}})), InvalidArgument);
  EXPECT_THROW((void)read_settings(environment_of({{"CHAINMAIL_LOG", "INFO"}})), InvalidArgument);
  for (const char* level : {"info", "warning", "error"}) {
    EXPECT_NO_THROW((void)read_settings(environment_of({{"CHAINMAIL_LOG", level}}))) << level;
  }
}

// What check_mpi_starter says; "" when MPI can be had.
std::string mpi_refusal(const Recorded& variables) {
  try {
    check_mpi_starter(environment_of(variables));
    return "";
  } catch (const InvalidArgument& error) {
    return error.what();
  }
}

TEST(MpiStarter, IsMpiexecOrSomebodyElseWhoKnowsMpi) {
  EXPECT_EQ(mpi_refusal({{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "4"}}), "");
  EXPECT_EQ(mpi_refusal({{"PMIX_RANK", "0"}, {"SLURM_PROCID", "0"}}), "");
  EXPECT_EQ(mpi_refusal({{"PMI_RANK", "3"}}), "");
  // As our launcher serves PMIx.
  EXPECT_EQ(mpi_refusal({{"CHAINMAIL_JOB_FD", "5"}, {"RANK", "2"}, {"PMIX_RANK", "2"}}), "");
}

TEST(MpiStarter, IsNotTheLauncherTorchrunOrNobody) {
  EXPECT_NE(mpi_refusal({}).find("start the program with mpiexec"), std::string::npos);
  const auto launcher = mpi_refusal({{"CHAINMAIL_JOB_FD", "5"}, {"RANK", "0"}});
  EXPECT_NE(launcher.find("the launcher does not serve Open MPI"), std::string::npos) << launcher;
  EXPECT_NE(launcher.find("mpiexec"), std::string::npos) << launcher;
  // PMI-1 is MPICH's; Open MPI would be alone.
  EXPECT_NE(mpi_refusal({{"CHAINMAIL_JOB_FD", "5"}, {"RANK", "0"}, {"PMI_RANK", "0"}}), "");
  EXPECT_NE(mpi_refusal({{"RANK", "0"}, {"WORLD_SIZE", "2"}}), "");
}

TEST(MpiStarter, NumbersTheRanksAsTheJobDoes) {
  // torchrun, twice on each node, inside mpiexec.
  const auto rank =
      mpi_refusal({{"RANK", "3"}, {"WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_RANK", "1"}});
  EXPECT_NE(rank.find("rank 3 of 4, but process 1"), std::string::npos) << rank;
  const auto size = mpi_refusal({{"RANK", "1"},
                                 {"WORLD_SIZE", "4"},
                                 {"OMPI_COMM_WORLD_RANK", "1"},
                                 {"OMPI_COMM_WORLD_SIZE", "2"}});
  EXPECT_NE(size.find("process 1 of 2"), std::string::npos) << size;
  // MPICH's mpiexec in a rank of the launcher, whose PMIx it leaves.
  const auto nested = mpi_refusal(
      {{"PMIX_RANK", "0"}, {"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALNRANKS", "2"}});
  EXPECT_NE(nested.find("process 1 by PMI_RANK, but 0"), std::string::npos) << nested;
}

TEST(NodeId, IsTheSameForThisMachineAndCanBeGiven) {
  const std::string id = node_id(environment_of({}));
  EXPECT_EQ(id, node_id(environment_of({})));
  EXPECT_NE(id.find("pid:["), std::string::npos) << id;
  EXPECT_EQ(node_id(environment_of({{"CHAINMAIL_NODE_ID", "left"}})), "left");
}

TEST(Exchange, GivesEverybodyAllTextsInRankOrder) {
  ops::LocalRendezvous rendezvous;
  const auto deadline = Deadline::after(milliseconds(10'000));
  std::vector<std::vector<std::string>> seen(3);
  std::vector<std::string> secrets(3);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 3; ++rank) {
    ranks.emplace_back([&, rank] {
      const auto index = static_cast<std::size_t>(rank);
      const std::string own = std::string("r") + std::to_string(rank);
      seen[index] = exchange(rendezvous, "key", rank, 3, own, deadline);
      secrets[index] = share_secret(rendezvous, rank, deadline);
    });
  }
  for (std::thread& rank : ranks) rank.join();
  const std::vector<std::string> all{"r0", "r1", "r2"};
  for (const auto& texts : seen) EXPECT_EQ(texts, all);
  EXPECT_EQ(secrets[0].size(), 32U);
  EXPECT_EQ(secrets[1], secrets[0]);
  EXPECT_EQ(secrets[2], secrets[0]);
}

TEST(Exchange, NamesTheRankThatDoesNotCome) {
  ops::LocalRendezvous rendezvous;
  try {
    (void)exchange(rendezvous, "key", 0, 2, "me", Deadline::after(milliseconds(50)));
    FAIL() << "nobody else was there";
  } catch (const TimeoutError& error) {
    EXPECT_EQ(error.missing_ranks(), std::vector<int>{1});
    EXPECT_NE(std::string(error.what()).find("rank 1 of 2"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace chainmail::internal
