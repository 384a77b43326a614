// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <asio/io_context.hpp>

#include "base/error.h"
#include "launcher/mpi/mpi_environment.h"
#include "launcher/mpi/mpi_exchange.h"
#include "launcher/pmi1/pmi1_command.h"
#include "launcher/pmi1/pmi1_server.h"

namespace chainmail::launch {
namespace {

using ::testing::HasSubstr;

// Two nodes with two ranks each, and what is between them.
class Pmi1Test : public ::testing::Test {
 protected:
  Pmi1Test() {
    order_.mode = MpiMode::kPmi1;
    order_.name = "job";
    order_.node_of_rank = {0, 0, 1, 1};
    order_.node_names = {"a", "b"};
    for (std::uint32_t node = 0; node < 2; ++node) {
      order_.node = node;
      servers_[node] =
          std::make_unique<Pmi1Server>(io_, order_, [this, node](const MpiMessage& message) {
            if (message.op == MpiOp::kAbort) {
              aborts_ += std::to_string(message.ranks.at(0)) + "=" +
                         std::to_string(message.status) + message.data + ";";
            } else {
              exchange_.handle(node, message);
            }
          });
      for (const std::uint32_t rank : order_.ranks_of(node)) {
        sockets_[rank] = servers_[node]->socket_for(rank);
      }
    }
  }

  void say(std::uint32_t rank, const std::string& text) {
    ASSERT_EQ(write(sockets_[rank].get(), text.data(), text.size()),
              static_cast<ssize_t>(text.size()));
    io_.poll();
    io_.restart();
  }
  std::string heard(std::uint32_t rank) {
    std::array<char, 8192> buffer{};
    const ssize_t count = recv(sockets_[rank].get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    return count > 0 ? std::string(buffer.data(), static_cast<std::size_t>(count)) : std::string();
  }
  std::string ask(std::uint32_t rank, const std::string& line) {
    say(rank, line + "\n");
    return heard(rank);
  }

  asio::io_context io_;
  MpiOrder order_;
  std::string aborts_;
  std::array<std::unique_ptr<Pmi1Server>, 2> servers_;
  std::array<internal::UniqueFd, 4> sockets_;
  MpiExchange exchange_{{0, 0, 1, 1}, [this](std::uint32_t node, const MpiMessage& message) {
                          EXPECT_TRUE(servers_[node]->handle(message));
                        }};
};

TEST_F(Pmi1Test, TheWordsOfAStart) {
  EXPECT_EQ(ask(0, "cmd=init pmi_version=1 pmi_subversion=1"),
            "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n");
  EXPECT_EQ(ask(0, "cmd=init pmi_version=2 pmi_subversion=0"),
            "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=-1\n");
  EXPECT_EQ(ask(0, "cmd=get_maxes"), "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024\n");
  EXPECT_EQ(ask(3, "cmd=get_my_kvsname"), "cmd=my_kvsname kvsname=job\n");
  EXPECT_EQ(ask(3, "cmd=get_universe_size"), "cmd=universe_size size=4\n");
  EXPECT_EQ(ask(3, "cmd=get_appnum"), "cmd=appnum appnum=0\n");
  EXPECT_EQ(ask(3, "cmd=get kvsname=job key=PMI_process_mapping"),
            "cmd=get_result rc=0 msg=success value=(vector,(0,2,2))\n");
}

TEST_F(Pmi1Test, ValuesTravelWithTheBarrier) {
  EXPECT_EQ(ask(0, "cmd=put kvsname=job key=card-0 value=tcp#1$2"),
            "cmd=put_result rc=0 msg=success\n");
  EXPECT_THAT(ask(3, "cmd=get kvsname=job key=card-0"), HasSubstr("rc=-1"));
  for (std::uint32_t rank = 0; rank < 3; ++rank) EXPECT_EQ(ask(rank, "cmd=barrier_in"), "");
  say(3, "cmd=barrier_in\n");
  for (std::uint32_t rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(heard(rank), "cmd=barrier_out rc=0\n");
    EXPECT_EQ(ask(rank, "cmd=get kvsname=job key=card-0"),
              "cmd=get_result rc=0 msg=success value=tcp#1$2\n");
  }
}

TEST_F(Pmi1Test, NamesAreForTheWholeJob) {
  EXPECT_THAT(ask(2, "cmd=lookup_name service=s"), HasSubstr("rc=1"));
  EXPECT_EQ(ask(0, "cmd=publish_name service=s port=p#1"),
            "cmd=publish_result info=ok rc=0 msg=success\n");
  EXPECT_EQ(ask(2, "cmd=lookup_name service=s"),
            "cmd=lookup_result info=ok rc=0 msg=success port=p#1\n");
  EXPECT_THAT(ask(0, "cmd=unpublish_name service=s"), HasSubstr("rc=0"));
  EXPECT_THAT(ask(2, "cmd=lookup_name service=s"), HasSubstr("rc=1"));
}

TEST_F(Pmi1Test, KnowsWhoIsInside) {
  EXPECT_FALSE(servers_[0]->is_inside(1));
  (void)ask(1, "cmd=init pmi_version=1 pmi_subversion=1");
  EXPECT_TRUE(servers_[0]->is_inside(1));
  EXPECT_EQ(ask(1, "cmd=finalize"), "cmd=finalize_ack\n");
  EXPECT_FALSE(servers_[0]->is_inside(1));
}

TEST_F(Pmi1Test, AbortsAndRefusals) {
  (void)ask(2, "cmd=abort exitcode=7");
  EXPECT_EQ(aborts_, "2=7;");
  EXPECT_EQ(ask(1, "mcmd=spawn\nnprocs=1\nexecname=/bin/true\nendcmd"),
            "cmd=spawn_result rc=-1 errmsg=the_launcher_starts_no_further_ranks\n");
  EXPECT_THAT(ask(1, "cmd=put kvsname=job key= value=1"), HasSubstr("rc=-1"));
  EXPECT_THAT(ask(1, "cmd=put kvsname=job key=" + std::string(65, 'k') + " value=1"),
              HasSubstr("rc=-1"));
  EXPECT_THAT(ask(1, "cmd=put kvsname=job key=k value=" + std::string(1025, 'v')),
              HasSubstr("rc=-1"));
}

TEST_F(Pmi1Test, NonsenseEndsTheRankOnly) {
  aborts_.clear();
  say(0, "cmd=make_coffee\n");
  EXPECT_THAT(aborts_, HasSubstr("0=1PMI-1: the launcher does not know the command make_coffee"));
  aborts_.clear();
  say(1, "no command here\n");
  EXPECT_THAT(aborts_, HasSubstr("1=1PMI-1: a line without a command"));
  aborts_.clear();
  say(2, std::string(5000, 'x'));
  EXPECT_THAT(aborts_, HasSubstr("2=1PMI-1: a line without end"));
  EXPECT_EQ(ask(3, "cmd=get_appnum"), "cmd=appnum appnum=0\n");
}

TEST_F(Pmi1Test, LinesMayComeInPieces) {
  say(0, "cmd=get_");
  EXPECT_EQ(heard(0), "");
  say(0, "appnum\ncmd=get_appnum\n");
  EXPECT_EQ(heard(0), "cmd=appnum appnum=0\ncmd=appnum appnum=0\n");
}

TEST(Pmi1CommandTest, MapsOfUnevenNodes) {
  EXPECT_EQ(pmi1_process_mapping({0}), "(vector,(0,1,1))");
  EXPECT_EQ(pmi1_process_mapping({0, 1, 1, 1}), "(vector,(0,1,1),(1,1,3))");
  EXPECT_EQ(pmi1_process_mapping({0, 0, 1, 1, 2}), "(vector,(0,2,2),(2,1,1))");
  EXPECT_EQ(pmi1_process_mapping({0, 1, 0, 1}), "(vector,(0,2,1),(0,2,1))");
}

TEST(MpiEnvironmentTest, ForeignManagersGoAndUsersSettingsStay) {
  Environment variables{{"PMIX_RANK", "7"},
                        {"PMI_FD", "3"},
                        {"HYDI_CONTROL_FD", "4"},
                        {"MPI_LOCALNRANKS", "2"},
                        {"OMPI_COMM_WORLD_RANK", "7"},
                        {"OMPI_MCA_orte_hnp_uri", "x"},
                        {"OMPI_MCA_ess_base_jobid", "x"},
                        {"OMPI_MCA_btl", "tcp,self"},
                        {"PMIX_MCA_gds", "hash"},
                        {"PATH", "/bin"}};
  drop_foreign_mpi(variables);
  EXPECT_EQ(
      variables,
      (Environment{{"OMPI_MCA_btl", "tcp,self"}, {"PMIX_MCA_gds", "hash"}, {"PATH", "/bin"}}));
}

TEST(MpiEnvironmentTest, NamesTheServerOfTheNode) {
  const MpiOrder order{MpiMode::kAuto, "job", 1, {0, 1, 1}, {"a", "b"}};
  const Environment variables = pmix_variables(order, 2, {"/tmp/x", 4711});
  EXPECT_EQ(variables.at("PMIX_SERVER_URI41"), "job-server.1;tcp4://127.0.0.1:4711");
  EXPECT_EQ(variables.at("PMIX_HOSTNAME"), "b");
  EXPECT_EQ(variables.at("PMIX_RANK"), "2");
  EXPECT_EQ(open_mpi_variables(order, {2, 1, 2}).at("OMPI_MCA_schizo"), "ompi");
}

}  // namespace
}  // namespace chainmail::launch
