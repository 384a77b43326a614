// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Several threads of a rank on one group, and on several groups at once.

#include <atomic>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/ops/support/groups.h"

namespace chainmail::ops {
namespace {

using test::GroupMaker;
using test::on;
using test::TransportKind;

class GroupThreads : public testing::TestWithParam<TransportKind> {
 protected:
  static GroupOptions limits() {
    GroupOptions options;
    options.timeout = std::chrono::seconds{60};
    return options;
  }

  /// Which thread of one rank meets which of another is open, so all give what their rank gives.
  static std::vector<float> contribution(int rank) {
    std::vector<float> values(64);
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<float>(rank + 1) * static_cast<float>(i + 1);
    }
    return values;
  }
  static bool is_sum(const std::vector<float>& values, int ranks) {
    const auto factor = static_cast<float>(ranks * (ranks + 1) / 2);
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (values[i] != factor * static_cast<float>(i + 1)) return false;
    }
    return true;
  }
};

TEST_P(GroupThreads, TwoThreadsOnOneGroupGetNoWrongSum) {
  constexpr int kThreads = 2;
  constexpr int kRounds = 4000;
  for (const auto& nodes : {std::vector<int>{2}, std::vector<int>{1, 1}}) {
    GroupMaker maker(nodes, GetParam(), limits());
    std::atomic<int> wrong{0};
    std::atomic<int> done{0};
    maker.run_ok([&](int rank, Group& group) {
      test::run_ranks_ok(kThreads, [&](int thread) {
        // One thread waits at once, the other has a few under way.
        struct UnderWay {
          std::vector<float> values;
          std::shared_ptr<Operation> operation;
        };
        std::deque<UnderWay> window;
        const std::size_t depth = thread == 0 ? 1 : 4;
        const auto finish_oldest = [&] {
          window.front().operation->wait();
          wrong += is_sum(window.front().values, group.size()) ? 0 : 1;
          ++done;
          window.pop_front();
        };
        for (int round = 0; round < kRounds; ++round) {
          UnderWay& next = window.emplace_back(UnderWay{contribution(rank), nullptr});
          Collective collective = on(next.values);
          collective.is_async = thread != 0;
          next.operation = group.submit(std::move(collective));
          if (window.size() == depth) finish_oldest();
        }
        while (!window.empty()) finish_oldest();
      });
    });
    EXPECT_EQ(wrong.load(), 0);
    EXPECT_EQ(done.load(), 2 * kThreads * kRounds);
  }
}

TEST_P(GroupThreads, GroupsOfOneProcessWorkAtOnce) {
  constexpr int kGroups = 3;
  std::deque<GroupMaker> makers;
  for (int i = 0; i < kGroups; ++i) {
    GroupOptions options = limits();
    options.name = "group" + std::to_string(i);
    makers.emplace_back(std::vector<int>{2}, GetParam(), options);
  }
  test::run_ranks_ok(kGroups, [&](int number) {
    makers[static_cast<std::size_t>(number)].run_ok([&](int rank, Group& group) {
      for (int round = 0; round < 300; ++round) {
        std::vector<float> sum(100, static_cast<float>(number + rank));
        std::vector<float> mine(100, static_cast<float>(round));
        std::vector<float> theirs(100);
        Collective send = on(mine, OpKind::kSend);
        Collective receive = on(theirs, OpKind::kRecv);
        send.root = 1 - rank;
        receive.root = round % 2 == 0 ? kAnyRank : 1 - rank;
        const auto in = group.submit(std::move(receive));
        const auto out = group.submit(std::move(send));
        group.run(on(sum));
        in->wait();
        out->wait();
        ASSERT_EQ(sum[99], static_cast<float>(2 * number + 1));
        ASSERT_EQ(theirs[99], static_cast<float>(round));
      }
    });
  });
}

INSTANTIATE_TEST_SUITE_P(Carriers, GroupThreads,
                         testing::Values(TransportKind::kReal, TransportKind::kTcpEverywhere,
                                         TransportKind::kEncrypted, TransportKind::kMpi),
                         [](const auto& each) { return test::to_string(each.param); });

}  // namespace
}  // namespace chainmail::ops
