// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Groups whose ranks are processes of which one does not come, stops in the middle, or is killed:
// which error the others get and when, and that their other groups go on.

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/ops/support/groups.h"
#include "tests/ops/support/processes.h"
#include "tests/support/patience.h"

namespace chainmail::ops {
namespace {

using std::chrono::milliseconds;
using test::DirectoryRendezvous;
using test::on;
using testing::HasSubstr;
using testing::Not;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kLimit{3000};
constexpr std::size_t kLarge = std::size_t{16} << 20;

// When the operation that met the error began.
Clock::time_point begin;

// --- what a rank does ---------------------------------------------------------------------------

std::shared_ptr<Group> join(const std::string& directory, const std::string& name, int rank,
                            int size, bool is_over_tcp, milliseconds limit) {
  const std::vector<int> ones(static_cast<std::size_t>(size), 1);
  const Topology topology = Topology::from_node_sizes(is_over_tcp ? ones : std::vector<int>{size});
  GroupOptions options;
  options.name = name;
  options.timeout = limit;
  options.interface = "127.0.0.1";
  options.secret = std::string(32, 's');
  options.host = "node" + std::to_string(topology.node_of(rank) + 1);
  return create_group(rank, topology, std::make_shared<DirectoryRendezvous>(directory + "/" + name),
                      options);
}

void sum(Group& group, std::size_t count = 10) {
  std::vector<float> values(count, 1);
  begin = Clock::now();
  group.run(on(values));
  if (values.front() != static_cast<float>(group.size()) || values.back() != values.front()) {
    throw std::runtime_error("a wrong sum");
  }
}

void transfer(Group& group, OpKind kind, int peer, std::size_t count) {
  std::vector<float> values(count, 1);
  Collective collective = on(values, kind);
  collective.root = peer;
  begin = Clock::now();
  group.run(collective);
}

/// To rank 0, a message at the heels of the other, so that the end comes in the middle of one.
void send_without_pause(Group& group, const std::function<void()>& end_soon) {
  std::vector<float> values(kLarge, 1);
  Collective send = on(values, OpKind::kSend);
  send.root = 0;
  std::vector<std::shared_ptr<Operation>> sends;
  for (int i = 0; i < 100; ++i) sends.push_back(group.submit(send));
  sends.front()->wait();
  end_soon();
  for (const auto& each : sends) each->wait();
}

/// Rank 2 is lost in the way that `role` says; the others must notice.
void play(const std::string& role, Group& group) {
  const bool is_lost = group.rank() == 2;
  if (is_lost && role == "missing") {
    std::this_thread::sleep_for(std::chrono::seconds{60});
  }
  std::thread end;
  const auto end_soon = [&] {
    end = std::thread([&] {
      std::this_thread::sleep_for(milliseconds{role == "stop_late" ? 300 : 20});
      ::raise(role == "kill_sender" ? SIGKILL : SIGSTOP);
    });
  };
  if (is_lost && role != "kill_sender" && role != "stop_sender_to_any") end_soon();
  if (role == "stop_sender") {
    // To rank 0 goes more than any buffer on the way can hold.
    for (int i = 0; i < 100; ++i) {
      if (is_lost) transfer(group, OpKind::kSend, 0, kLarge);
      if (group.rank() == 0) transfer(group, OpKind::kRecv, 2, kLarge);
    }
  } else if (role == "stop_sender_to_any") {
    if (is_lost) send_without_pause(group, end_soon);
    for (int i = 0; i < 100 && group.rank() == 0; ++i) {
      transfer(group, OpKind::kRecv, kAnyRank, kLarge);
    }
  } else if (role == "kill_sender" && group.rank() != 1) {
    transfer(group, is_lost ? OpKind::kSend : OpKind::kRecv, is_lost ? 0 : kAnyRank, 5);
    if (is_lost) end_soon();  // not before it has sent, however slow the machine is
    transfer(group, OpKind::kRecv, kAnyRank, 5);
  } else if (role != "kill_sender") {
    if (role == "stop_late" && group.rank() == 1) {
      std::this_thread::sleep_for(milliseconds{350});
    }
    for (int i = 0; i < 100; ++i) sum(group, kLarge);
  }
  if (end.joinable()) end.join();
}

/// However slow the machine starts them: a group's limit is for what comes after.
void meet(const std::string& directory, int rank, int size) {
  DirectoryRendezvous here(directory + "/start");
  here.set(std::to_string(rank), "");
  const auto deadline = internal::Deadline::after(std::chrono::seconds{60});
  for (int other = 0; other < size; ++other) here.get(std::to_string(other), deadline);
}

int be_rank(const std::string& role, const std::string& directory, int rank, int size) {
  meet(directory, rank, size);
  const bool is_over_tcp = role.find("_tcp") != std::string::npos;
  const std::string what = role.substr(0, role.rfind('_'));
  try {
    const auto group = join(directory, "all", rank, size, is_over_tcp, kLimit);
    const auto other =
        rank == 2 ? nullptr : join(directory, "two", rank, 2, is_over_tcp, 10 * kLimit);
    sum(*group);
    if (other != nullptr) sum(*other);
    group->run([] {
      Collective barrier;
      barrier.kind = OpKind::kBarrier;
      return barrier;
    }());
    try {
      play(what, *group);
      std::cout << "nothing";
    } catch (const TimeoutError& e) {
      std::cout << "TimeoutError missing";
      for (const int missing : e.missing_ranks()) std::cout << " " << missing;
      std::cout << ": " << e.what();
    } catch (const PeerError& e) {
      std::cout << "PeerError peer " << e.peer_rank() << ": " << e.what();
    }
    std::cout << " | after " << std::chrono::duration<double>(Clock::now() - begin).count() << " s";
    for (int i = 0; other != nullptr && i < 20; ++i) sum(*other, 100'000);
    std::cout << " | the other group works\n" << std::flush;
  } catch (const std::exception& e) {
    std::cout << "failed outside: " << e.what() << "\n" << std::flush;
  }
  return 0;
}

// --- the test's side ----------------------------------------------------------------------------

class GroupStop : public test::RankProcesses,
                  public testing::WithParamInterface<std::tuple<const char*, const char*>> {
 protected:
  static double seconds_of(const std::string& text) {
    const std::string word = "| after ";
    const std::size_t place = text.rfind(word);
    return place == std::string::npos ? -1 : std::atof(text.c_str() + place + word.size());
  }
};

TEST_P(GroupStop, TheOthersGetATimeoutThatNamesItAtTheSetTime) {
  const auto [what, transport] = GetParam();
  start(std::string(what) + "_" + transport, 3);
  double longest = 0;
  const bool has_bystander = std::string(what).rfind("stop_sender", 0) == 0;
  for (const int rank : {0, 1}) {
    const std::string text = output_of(rank);
    EXPECT_THAT(text, HasSubstr("the other group works"));
    if (rank == 1 && has_bystander) {
      continue;  // it had nothing to do with it
    }
    EXPECT_THAT(text, HasSubstr("TimeoutError missing 2: "));
    EXPECT_THAT(text, HasSubstr("rank 2 (node"));
    if (has_bystander) {
      EXPECT_THAT(text, Not(HasSubstr("rank 1 (node")));
    }
    EXPECT_THAT(text, HasSubstr("nothing of it has moved for 3000 ms"));
    longest = std::max(longest, seconds_of(text));
    if (rank == 0) {
      EXPECT_LT(seconds_of(text), 1.5 * 3.0 * patience()) << "10 % are enough on an idle machine";
      std::cout << what << " over " << transport << ", limit 3 s: error after " << seconds_of(text)
                << " s\n";
    }
  }
  // Who has begun later hears of it from the other before its own limit.
  EXPECT_GT(longest, 0.9 * 3.0);
}

INSTANTIATE_TEST_SUITE_P(Ways, GroupStop,
                         testing::Combine(testing::Values("missing", "stop", "stop_late",
                                                          "stop_sender", "stop_sender_to_any"),
                                          testing::Values("shm", "tcp")),
                         [](const auto& each) {
                           return std::string(std::get<0>(each.param)) + "_" +
                                  std::get<1>(each.param);
                         });

class GroupKill : public test::RankProcesses, public testing::WithParamInterface<const char*> {};

TEST_P(GroupKill, AReceiveFromAnyRankNoticesThatASenderWasKilled) {
  start(std::string("kill_sender_") + GetParam(), 3);
  const std::string text = output_of(0);
  EXPECT_THAT(text, HasSubstr("PeerError peer 2: recv #1 on rank 0"));
  EXPECT_THAT(text, HasSubstr("rank 2 on host node"));
  EXPECT_THAT(text, HasSubstr("the other group works"));
}

INSTANTIATE_TEST_SUITE_P(Carriers, GroupKill, testing::Values("shm", "tcp"),
                         [](const auto& each) { return std::string(each.param); });

}  // namespace
}  // namespace chainmail::ops

int main(int argc, char** argv) {
  if (argc == 6 && std::string(argv[1]) == "--role") {
    return chainmail::ops::be_rank(argv[2], argv[3], std::atoi(argv[4]), std::atoi(argv[5]));
  }
  testing::InitGoogleMock(&argc, argv);
  return RUN_ALL_TESTS();
}
