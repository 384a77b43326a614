// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What a user's command and a running job say to each other over its control socket.
//
// Plain structs, and their JSON; thread-safe.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace chainmail::launch {

struct JobRequest {
  enum class Verb { kStatus, kAdd, kDrain };
  Verb verb = Verb::kStatus;
  std::vector<std::string> hosts;  ///< lines of a hosts file; of kDrain names
};

struct HostStatus {
  std::string host;
  std::uint32_t slots = 0;           ///< ranks that it should have
  std::string state;                 ///< "of -n", "added", "is being prepared", ...
  std::vector<std::string> members;  ///< "member 3 is rank 2"
};

struct JobStatus {
  std::int64_t pid = 0;  ///< the launcher's
  std::string id;
  std::vector<std::string> program;
  std::string hosts_file;  ///< absolute; empty where the hosts stand in none
  std::string sizes;       ///< "2:8"
  std::string state;       ///< "runs", "waits for ranks", "changes", ...
  std::uint64_t world = 0;
  std::uint64_t size = 0;
  std::uint64_t step = 0;  ///< the newest that the launcher knows of as committed
  std::vector<HostStatus> hosts;
};

struct JobAnswer {
  std::string error;              ///< empty: done
  std::vector<std::string> said;  ///< lines for the user
  JobStatus status;               ///< of every verb
};

[[nodiscard]] std::string json_of(const JobRequest& request);
[[nodiscard]] std::string json_of(const JobAnswer& answer);
/// Throw SystemError(EPROTO) for what is none.
[[nodiscard]] JobRequest request_of(const std::string& json);
[[nodiscard]] JobAnswer answer_of(const std::string& json);

}  // namespace chainmail::launch
