// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/job/rendezvous/port_announcer.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "tests/support/patience.h"

namespace chainmail::internal {
namespace {

using std::chrono::milliseconds;

std::string unique_id(const char* test) {
  return std::string("test-") + test + "-" + std::to_string(::getpid());
}

TEST(LocalMeeting, EverybodyLearnsThePort) {
  const std::string id = unique_id("port");
  std::vector<std::uint16_t> ports(5);
  std::vector<std::thread> ranks;
  for (std::uint16_t& port : ports) {
    ranks.emplace_back([&] { port = ask_port(id, Deadline::after(milliseconds(10'000))); });
  }
  // The others ask before there is an answer.
  std::this_thread::sleep_for(milliseconds(30));
  const PortAnnouncer announcer(id, 4711);
  for (std::thread& rank : ranks) rank.join();
  EXPECT_EQ(ports, std::vector<std::uint16_t>(5, 4711));
}

TEST(LocalMeeting, GivesUpAtTheDeadline) {
  const Stopwatch watch;
  EXPECT_THROW((void)ask_port(unique_id("nobody"), Deadline::after(milliseconds(100))),
               TimeoutError);
  EXPECT_LT(watch.elapsed(), patient(std::chrono::seconds(5)));
}

TEST(LocalMeeting, TwoAnnouncersOfOneJobAreAnError) {
  const std::string id = unique_id("twice");
  const PortAnnouncer first(id, 1);
  EXPECT_THROW(PortAnnouncer(id, 2), SystemError);
}

TEST(LocalMeeting, TheNameIsFreeAfterwards) {
  const std::string id = unique_id("again");
  { const PortAnnouncer first(id, 1); }
  const PortAnnouncer second(id, 2);
  EXPECT_EQ(ask_port(id, Deadline::after(milliseconds(10'000))), 2);
}

TEST(LocalMeeting, RefusesAnIdThatDoesNotFit) {
  EXPECT_THROW(PortAnnouncer(std::string(200, 'x'), 1), InvalidArgument);
}

}  // namespace
}  // namespace chainmail::internal
