// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// One world of a job, as all parts of the controller share it: what was asked for, hosts and ranks,
// and the ways to tell somebody something. Each decision belongs to one of those parts; nothing is
// decided here.
//
// One thread, the io_context's.

#pragma once

#include <asio/io_context.hpp>
#include <cstdint>
#include <memory>
#include <string>

#include "launcher/controller/state/agents.h"
#include "launcher/controller/state/event_log.h"
#include "launcher/controller/state/rank_table.h"
#include "launcher/job/options.h"
#include "launcher/output/hidden_values.h"
#include "launcher/output/job_directory.h"
#include "launcher/output/output_sink.h"
#include "launcher/placement/placement.h"
#include "launcher/process/child_process.h"
#include "launcher/remote/container_script.h"

namespace chainmail::launch {

struct JobState {
  /// `generation`: see Controller.
  JobState(Options asked, Placement planned, JobDirectory& folder, std::uint32_t world);
  ~JobState();
  JobState(const JobState&) = delete;
  JobState& operator=(const JobState&) = delete;

  void say(std::string line) { output->say(without_values(std::move(line), options.hidden)); }
  /// Of the next try to start the agent of `node`; `what` is off where it is to be in none.
  [[nodiscard]] ContainerStart container_on(std::uint32_t node) const;
  /// By which this job's containers are found.
  [[nodiscard]] std::string container_label() const;
  /// Whether people watch what ranks print.
  [[nodiscard]] bool has_terminal() const;
  /// Of an elastic job: one more host with an agent of its own, one more rank there.
  std::uint32_t add_node(const Host& host);
  std::uint32_t add_rank(std::uint32_t node);

  JobDirectory& directory;
  const RaisedFileLimit descriptors;  ///< first: files of the job count against it
  const Options options;
  const Placement placement;  ///< of an elastic job, its first world as it was asked for
  const std::string id;       ///< 16 hexadecimal digits, chosen at random
  const std::string secret;   ///< 32 bytes that ranks know each other by
  const std::uint32_t generation;
  asio::io_context io;
  EventFile event_file;
  EventLog events;
  Agents agents;    ///< of an elastic job they are added as hosts are needed,
  RankTable ranks;  ///< and so are ranks, whose numbers are member ids there
  std::unique_ptr<OutputSink> output;

 private:
  void make_room();
};

}  // namespace chainmail::launch
