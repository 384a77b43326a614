// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// A job that somebody waits for, looked at again and again; not thread-safe.

#pragma once

#include <chrono>
#include <optional>

#include "launcher/jobs/folder/job_list.h"

namespace chainmail::launch {

class WatchedJob {
 public:
  using Clock = std::chrono::steady_clock;
  /// Between two looks.
  static constexpr std::chrono::milliseconds kInterval{200};

  explicit WatchedJob(FoundJob job) : job_(std::move(job)), seen_(Clock::now()) {}

  /// As it was when it was looked at last.
  [[nodiscard]] const FoundJob& job() const noexcept { return job_; }
  [[nodiscard]] bool has_ended() const noexcept { return is_ended(job_.record.phase); }

  /// Looks at it if the last time is kInterval ago, and it has not ended. Throws SystemError where
  /// it has been removed, and where it could not be read for half a minute: file servers come back.
  void look();
  /// What is left until look() does something.
  [[nodiscard]] std::chrono::milliseconds until_look() const;

 private:
  FoundJob job_;
  Clock::time_point seen_;
  std::optional<Clock::time_point> unreadable_since_;
};

}  // namespace chainmail::launch
