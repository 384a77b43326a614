// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What agents are told to start: the programs of the job with their variables, and which ranks of
// its plan are whose.
//
// One thread, the io_context's.

#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "launcher/channel/wire.h"
#include "launcher/controller/state/job_state.h"

namespace chainmail::launch {

class RankOrders {
 public:
  /// `ignored_signals`: by the launcher's caller, so by ranks. Says which variables that were asked
  /// for there are none of.
  RankOrders(JobState& job, const std::vector<int>& ignored_signals);

  /// By PlacedRank::application, as typed.
  [[nodiscard]] const std::vector<OrderedProgram>& programs() const noexcept { return programs_; }
  /// MASTER_ADDR and MASTER_PORT for all programs; all agents have said hello.
  void add_torchrun_variables();

  /// For the agent of `node`, with its ranks of a job of fixed size.
  [[nodiscard]] StartOrder with_ranks(std::uint32_t node) const;
  [[nodiscard]] StartOrder without_ranks(std::uint32_t node) const;
  /// The ranks that read standard input.
  [[nodiscard]] std::vector<std::uint32_t> ranks_with_input() const;
  /// How long a rank may take to come to its program; 0: as long as it likes.
  [[nodiscard]] std::chrono::milliseconds start_timeout() const;

 private:
  [[nodiscard]] bool has_input(std::uint32_t rank) const;

  JobState& job_;
  std::vector<std::uint32_t> ignored_signals_;
  std::vector<OrderedProgram> programs_;
};

}  // namespace chainmail::launch
