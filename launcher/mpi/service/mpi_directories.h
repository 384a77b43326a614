// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Folders for what MPI libraries put into /tmp and /dev/shm and leave there when they are killed.
// Theirs alone (0700), where nobody else can put others in their place, and named after the agent's
// marker, so that whoever outlives the agent finds them.
//
// One thread.

#pragma once

#include <string>

namespace chainmail::launch {

class MpiDirectories {
 public:
  /// What cannot be made stays empty.
  explicit MpiDirectories(const std::string& marker);
  ~MpiDirectories();
  MpiDirectories(const MpiDirectories&) = delete;
  MpiDirectories& operator=(const MpiDirectories&) = delete;

  const std::string& session() const noexcept { return session_; }
  /// Of each folder that it could have been made in, why not.
  const std::string& why_no_session() const noexcept { return why_no_session_; }
  /// The session's where /dev/shm is not to be trusted.
  const std::string& memory() const noexcept { return memory_; }

 private:
  std::string why_no_session_;
  std::string session_;
  std::string memory_;
};

}  // namespace chainmail::launch
