// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// How ranks on one node that were not started by our launcher learn the port of rank 0's store: an
// abstract Unix socket named after the user and the job. Nothing is left in the file system, and
// both sides check that the other belongs to the same user.

#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>

#include "base/deadline.h"
#include "base/unique_fd.h"

namespace chainmail::internal {

/// Rank 0's side: answers every connection with the port, from a thread of its own, while it lives.
class PortAnnouncer {
 public:
  /// `job_id` must be unique among this user's jobs on the node. Throws SystemError (EADDRINUSE:
  /// another process of this job already announces).
  PortAnnouncer(const std::string& job_id, std::uint16_t port);
  PortAnnouncer(const PortAnnouncer&) = delete;
  PortAnnouncer& operator=(const PortAnnouncer&) = delete;
  ~PortAnnouncer();

 private:
  void serve() noexcept;

  UniqueFd fd_;
  std::uint16_t port_;
  std::atomic<bool> is_stopping_{false};
  std::thread thread_;
};

/// The others' side: asks until rank 0 answers. Throws TimeoutError.
[[nodiscard]] std::uint16_t ask_port(const std::string& job_id, Deadline deadline);

}  // namespace chainmail::internal
