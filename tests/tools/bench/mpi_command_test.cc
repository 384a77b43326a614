// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "tools/bench/mpi/job.h"

namespace chainmail::bench {
namespace {

using ::testing::Contains;
using ::testing::Not;

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += word + " ";
  return text;
}

TEST(MpiCommandTest, OneNodeNeedsNoHosts) {
  const auto words = mpiexec_command(mpi_flavor("mpi"), "/prog", "token", {"a", "a"}, "ssh");
  EXPECT_EQ(words.front(), "mpiexec.openmpi");
  EXPECT_THAT(words, Not(Contains("--host")));
  EXPECT_THAT(joined(words), ::testing::HasSubstr("-n 2 "));
  EXPECT_THAT(joined(words), ::testing::EndsWith("/prog token "));
}

TEST(MpiCommandTest, NodesGetTheirRanksInOrder) {
  const auto words =
      mpiexec_command(mpi_flavor("mpi"), "/prog", "token", {"n1", "n1", "n2"}, "ssh -F f");
  EXPECT_THAT(joined(words),
              ::testing::HasSubstr("--host n1:2,n2:1 --mca plm_rsh_agent ssh -F f "));
}

TEST(MpiCommandTest, FlavorsDiffer) {
  EXPECT_TRUE(mpi_flavor("mpi-inplace").is_in_place);
  EXPECT_THAT(joined(mpiexec_command(mpi_flavor("mpi-sm"), "p", "t", {"a"}, "")),
              ::testing::HasSubstr("--mca coll_sm_priority"));
  EXPECT_EQ(mpiexec_command(mpi_flavor("mpich"), "p", "t", {"a"}, "").front(), "mpiexec.mpich");
  EXPECT_FALSE(mpi_flavor("mpich").is_for_nodes);
  EXPECT_THROW((void)mpi_flavor("lam"), InvalidArgument);
}

TEST(MpiCommandTest, WhatAnotherStarterLeftIsNotPassedOn) {
  for (const char* name : {"OMPI_COMM_WORLD_RANK=1", "PMIX_NAMESPACE=x", "PMI_RANK=0",
                           "CHAINMAIL_JOB_FD=3", "OMPI_MCA_ess_base_jobid=7"}) {
    EXPECT_TRUE(is_of_starter(name)) << name;
  }
  for (const char* name : {"PATH=/bin", "OMPI_MCA_btl=self,vader", "CHAINMAIL_LOG=info"}) {
    EXPECT_FALSE(is_of_starter(name)) << name;
  }
}

}  // namespace
}  // namespace chainmail::bench
