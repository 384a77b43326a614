// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Real ranks without an agent: a fixture that hears of their ends and keeps what is told of them.
//
// One thread, the main one (PR_SET_PDEATHSIG of the ranks depends on it).

#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <asio/signal_set.hpp>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "launcher/agent/local_ranks.h"
#include "launcher/process/children.h"
#include "tests/support/patience.h"

namespace chainmail::launch {

inline rlimit file_limit() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  return limit;
}

/// What an agent does for its ranks, and all that it would tell the controller of them.
class WatchedRanks : public ::testing::Test {
 protected:
  WatchedRanks() {
    signal(SIGPIPE, SIG_IGN);
    adopt_orphans();
    wait_for_children();
  }

  void TearDown() override {
    if (HasFailure()) ranks_.signal_all(SIGKILL);
    EXPECT_TRUE(run_until([] { return !has_children(); })) << "processes are left";
    for (const auto& [rank, pid] : pids_) EXPECT_FALSE(orphans_.contains(pid)) << "rank " << rank;
    (void)end_all_children(internal::Deadline::after(std::chrono::seconds(10)));
  }

  // Ranks of these numbers that run a script.
  static StartOrder order_of(const std::vector<std::uint32_t>& numbers, const std::string& script) {
    StartOrder order;
    order.world_size = 10;
    order.node_rank = 2;
    for (const std::uint32_t number : numbers) order.ranks.push_back({number, 0, false});
    order.programs = {{"/", {"sh", "-c", script}, {}}};
    order.binding.to = BindTo::kNone;
    order.output_window = 1U << 16;
    return order;
  }

  void start(StartOrder order) { ranks_.start(std::move(order), {Core{{0}}}, nullptr); }
  void start(const std::vector<std::uint32_t>& numbers, const std::string& script) {
    start(order_of(numbers, script));
  }

  bool run_until(const std::function<bool()>& is_so) {
    using Clock = std::chrono::steady_clock;
    const auto limit = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                          patient(std::chrono::seconds(20)));
    while (!is_so()) {
      if (io_.run_one_until(limit) == 0) return false;
    }
    return true;
  }
  // Until this is the last that was told of a rank.
  void wait_for(std::uint32_t rank, const std::string& what) {
    ASSERT_TRUE(run_until([&] { return !news_[rank].empty() && news_[rank].back() == what; }))
        << "rank " << rank << " " << what << ": " << ::testing::PrintToString(news_);
  }
  void wait_for_end() {
    ASSERT_TRUE(run_until([&] { return ends_ > 0; })) << ::testing::PrintToString(news_);
  }

  asio::io_context io_;
  asio::signal_set signals_{io_, SIGCHLD};
  const ControlGroup group_;                                // none
  std::map<std::uint32_t, std::vector<std::string>> news_;  // by rank
  int ends_ = 0;                                            // of all of them
  std::map<std::uint32_t, pid_t> pids_;
  std::map<std::uint32_t, RankExit> exits_;
  std::map<std::uint32_t, std::string> output_;
  std::map<pid_t, int> orphans_;  // with their wait status
  LocalRanks ranks_{io_, file_limit(), group_,
                    [this](AgentMessage type, const std::string& body) { on_message(type, body); },
                    [this](const std::string& frames) { on_frames(frames); }};

 private:
  static bool has_children() {
    siginfo_t info{};
    return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 || errno != ECHILD;
  }

  void wait_for_children() {
    signals_.async_wait([this](const asio::error_code& error, int /*number*/) {
      if (error) return;
      ranks_.reap();
      for (siginfo_t info{}; waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0; info = {}) {
        if (info.si_pid == 0) break;
        if (ranks_.owns(info.si_pid)) {
          ranks_.reap();
        } else {
          waitpid(info.si_pid, &orphans_[info.si_pid], 0);
        }
      }
      wait_for_children();
    });
  }

  void on_frames(const std::string& bytes) {
    internal::FrameReader reader;
    reader.append(std::as_bytes(std::span(bytes)));
    while (const auto frame = reader.next()) on_message(type_of(*frame), frame->body);
  }

  void on_message(AgentMessage type, const std::string& bytes) {
    EXPECT_EQ(ends_, 0) << "news after the end of all";
    if (type == AgentMessage::kAllExited) {
      ++ends_;
      return;
    }
    if (type == AgentMessage::kRankExited) {
      const RankExit exit = decode_exit(bytes);
      exits_[exit.rank] = exit;
      return news_[exit.rank].push_back(end_text(exit.by_signal, static_cast<int>(exit.value)));
    }
    internal::BodyReader body(bytes);
    const std::uint32_t rank = body.u32();
    if (type == AgentMessage::kRankStarted) {
      pids_[rank] = static_cast<pid_t>(body.u32());
      news_[rank].push_back("started");
    } else if (type == AgentMessage::kStartFailed) {
      const int error = static_cast<int>(body.u32());
      const std::string stage = body.text();
      news_[rank].push_back(stage + " " + body.text() + ": " + std::to_string(error));
    } else if (type == AgentMessage::kRankStopped) {
      news_[rank].push_back(body.u8() != 0 ? "stopped" : "continued");
    } else if (type == AgentMessage::kOutput) {
      (void)body.u8();
      output_[rank] += body.text();
    }
  }
};

}  // namespace chainmail::launch
