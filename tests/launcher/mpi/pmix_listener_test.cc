// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/mpi/service/pmix_listener.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "launcher/channel/wire.h"
#include "launcher/mpi/service/mpi_service.h"
#include "tests/support/patience.h"

namespace chainmail::launch {
namespace {

using internal::UniqueFd;
using std::chrono::milliseconds;

class PmixListenerTest : public ::testing::Test {
 protected:
  UniqueFd call(const std::string& words) {
    UniqueFd caller(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(listener_.port());
    EXPECT_EQ(connect(caller.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address),
              0);
    say(caller, words);
    return caller;
  }
  static void say(const UniqueFd& caller, const std::string& words) {
    if (words.empty()) return;
    EXPECT_EQ(send(caller.get(), words.data(), words.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(words.size()));
  }
  // Runs the loop until `members` have come or the time is over.
  void run(std::size_t members, milliseconds limit) {
    const auto end = std::chrono::steady_clock::now() + limit;
    while (members_.size() < members && std::chrono::steady_clock::now() < end) {
      io_.restart();
      io_.run_for(milliseconds(5));
    }
  }
  // Whether the listener has closed the connection.
  static bool is_dropped(const UniqueFd& caller) {
    char byte = 0;
    const ssize_t count = recv(caller.get(), &byte, 1, MSG_DONTWAIT);
    return count == 0 || (count < 0 && errno == ECONNRESET);
  }

  asio::io_context io_;
  std::vector<UniqueFd> members_;
  PmixListener listener_{io_, "chainmail-0123", [this](UniqueFd connection) {
                           members_.push_back(std::move(connection));
                         }};
};

TEST_F(PmixListenerTest, AMemberIsHandedOverWithItsWordsUnread) {
  const UniqueFd rank = call("native..chainmail-0123..1");
  run(1, milliseconds(2000));
  ASSERT_EQ(members_.size(), 1U);
  EXPECT_EQ(fcntl(members_[0].get(), F_GETFD), FD_CLOEXEC);
  std::array<char, 64> buffer{};
  const ssize_t count = recv(members_[0].get(), buffer.data(), buffer.size(), 0);
  EXPECT_EQ(std::string(buffer.data(), static_cast<std::size_t>(count)),
            "native..chainmail-0123..1");
}

TEST_F(PmixListenerTest, StrangersAreDropped) {
  const UniqueFd http = call("GET / HTTP/1.1\r\n\r\n");
  const UniqueFd near = call("chainmail-0122");
  const UniqueFd length = call("\x7f\xff\xff\xff\xff\xff\xff\xff");
  const UniqueFd flood = call(std::string(100000, 'x'));
  run(1, milliseconds(300));
  EXPECT_TRUE(members_.empty());
  for (const UniqueFd* stranger : {&http, &near, &length, &flood})
    EXPECT_TRUE(is_dropped(*stranger));
}

TEST_F(PmixListenerTest, WordsMayComeInTwoPackets) {
  const UniqueFd rank = call("native..chainmail-");
  run(1, milliseconds(2));
  say(rank, "0123");
  run(1, milliseconds(500));
  EXPECT_EQ(members_.size(), 1U);
}

TEST_F(PmixListenerTest, SilentCrowdsHoldNobodyUpForLong) {
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 300; ++i) {
    silent.push_back(call(""));
    if (i % 50 == 0) run(1, milliseconds(10));
  }
  const UniqueFd rank = call("chainmail-0123");
  run(1, milliseconds(8000));
  EXPECT_EQ(members_.size(), 1U);
  // One of those that had to go for the rank to be looked at.
  EXPECT_TRUE(is_dropped(silent[140]));
  EXPECT_FALSE(is_dropped(silent.front())) << "a rank on a busy host has not had its time";
}

// A helper that ranks rely on, and that says nonsense: MPI is over there, and the agent goes on.
TEST(MpiServiceTest, AWordAboutNoRankIsTheEndOfTheHelper) {
  const std::filesystem::path folder = std::filesystem::path(::testing::TempDir()) /
                                       ("chainmail-helper." + std::to_string(getpid()));
  std::filesystem::create_directory(folder);
  const auto write = [&](const char* name, const std::string& text) {
    std::ofstream(folder / name, std::ios::binary) << text;
    return (folder / name).string();
  };
  for (const MpiOp nonsense : {MpiOp::kConnected, MpiOp::kFinalized}) {
    std::string words;
    for (const std::vector<std::uint32_t>& ranks :
         {std::vector<std::uint32_t>{0}, std::vector<std::uint32_t>{}}) {
      send_in_pieces({.op = ranks.empty() ? nonsense : MpiOp::kConnected, .ranks = ranks},
                     [&](std::string body) {
                       words += internal::encode_frame(make_frame(AgentMessage::kMpi, body));
                     });
    }
    const std::string script =
        write("helper", "#!/bin/sh\ncat " + write("words", words) + " >&3\nexec sleep 60\n");
    ASSERT_EQ(chmod(script.c_str(), 0700), 0);
    asio::io_context io;
    std::string unserved;
    MpiService service(io, {MpiMode::kPmix, "job", 0, {0}, {"a"}, true}, "chainmail-marker", script,
                       [&](const MpiMessage& message) {
                         if (message.op == MpiOp::kUnserved) unserved = message.data;
                       });
    service.handle({.op = MpiOp::kFetch, .id = 1, .ranks = {0}});  // starts the helper
    const auto end = std::chrono::steady_clock::now() + patient(std::chrono::seconds(10));
    while (unserved.empty() && std::chrono::steady_clock::now() < end) {
      io.restart();
      io.run_for(milliseconds(5));
    }
    EXPECT_NE(unserved.find("a word about no rank"), std::string::npos) << unserved;
  }
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace chainmail::launch
