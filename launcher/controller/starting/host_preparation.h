// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Prepares the hosts of a job of fixed size: has each agent run a command (launcher/job/
// host_setup.h) before its ranks, first on the first host alone where that is asked for. The first
// one that fails ends the job.
//
// One thread, the io_context's.

#pragma once

#include <asio/steady_timer.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "launcher/controller/state/job_state.h"
#include "launcher/controller/state/root_cause.h"
#include "launcher/output/line_splitter.h"
#include "launcher/output/targets/host_files.h"

namespace chainmail::launch {

/// Has the program of this order be the preparation, which runs where it is asked to.
void order_preparation(const Preparation& asked, const std::vector<std::string>& words,
                       StartOrder& order);

class HostPreparation {
 public:
  struct Callbacks {
    /// What to tell an agent to start, but for the ranks.
    std::function<StartOrder(std::uint32_t node)> make_order;
    /// All hosts are prepared, and no agent runs anything.
    std::function<void()> on_done;
    std::function<void(Failure failure)> fail;
  };

  HostPreparation(JobState& job, Callbacks callbacks);

  /// All agents have said hello, and files for hosts are there.
  void start();
  /// The job is ending, and with it what runs on hosts: nothing more is begun.
  void stop();

  // What agents say.
  /// False for a frame that is not of a preparation.
  bool on_frame(std::uint32_t node, const internal::Frame& frame);
  /// What this agent was told to run is gone.
  void on_all_exited(std::uint32_t node);

  /// Waits until what hosts have printed is written. Why some of it is lost; empty when none is.
  [[nodiscard]] std::string finish();

 private:
  enum class Stage { kNone, kFirstHost, kAllHosts, kDone };

  void begin(Stage stage);
  void send_order(std::uint32_t node, const std::vector<std::string>& words);
  void wait_for_limit(std::chrono::steady_clock::time_point end);
  void on_limit();
  void on_output(std::uint32_t node, const internal::Frame& frame);
  void on_exited(std::uint32_t node, const RankExit& exit);
  void on_start_failed(std::uint32_t node, const internal::Frame& frame);
  void fail(std::uint32_t node, int code, const std::string& cause);
  void make_room();
  void take(std::uint32_t node, std::uint8_t stream, std::size_t bytes);
  [[nodiscard]] std::chrono::milliseconds limit() const;

  JobState& job_;
  Callbacks callbacks_;
  Stage stage_ = Stage::kNone;
  bool is_stopped_ = false;
  std::map<std::uint32_t, LastLines> running_;  ///< nodes, with what they have printed last
  asio::steady_timer timer_;
  std::unique_ptr<HostFiles> files_;
};

}  // namespace chainmail::launch
