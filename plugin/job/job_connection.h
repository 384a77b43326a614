// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What this process talks to its job through: the launcher's socket, or a store that torchrun,
// mpirun or srun let the ranks agree on.
//
// Thread-safe.

#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "ops/core/failure/failure_news.h"
#include "ops/core/rendezvous.h"
#include "ops/engine/group.h"
#include "plugin/job/environment/job_info.h"
#include "plugin/job/launcher/launcher_client.h"

namespace chainmail::internal {

struct JobConnection {
  JobInfo info;
  std::shared_ptr<LauncherClient> launcher;  ///< null under other starters
  std::shared_ptr<ops::Rendezvous> store;    ///< what connect_job_store made; null under launcher
  std::shared_ptr<ops::Rendezvous> rendezvous;  ///< the job's; users prefix their keys
  std::shared_ptr<ops::FailureNews> news;       ///< null when alone
};

/// The connection of this process, made at the first call and kept until the process ends: the
/// inherited socket exists once, and rank 0's store must outlive every other rank's last question.
/// Throws what read_job_info throws, TimeoutError, PeerError.
[[nodiscard]] const JobConnection& job_connection();

/// Makes the store of a job that no launcher of ours started. Implemented in plugin/c10d over
/// c10d's stores.
[[nodiscard]] std::shared_ptr<ops::Rendezvous> connect_job_store(const JobInfo& info,
                                                                 std::chrono::milliseconds timeout);

}  // namespace chainmail::internal
