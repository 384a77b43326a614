// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/jobs/folder/watched_job.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "base/error.h"

namespace chainmail::launch {

void WatchedJob::look() {
  constexpr std::chrono::seconds kPatience{30};
  if (has_ended() || until_look().count() > 0) return;
  seen_ = Clock::now();
  try {
    job_ = read_job(job_.folder);
    unreadable_since_.reset();
  } catch (const SystemError&) {
    std::error_code error;
    if (!std::filesystem::exists(job_.folder, error) && !error) {
      throw SystemError(job_.record.id + " was removed before its end was seen", ENOENT);
    }
    if (!unreadable_since_) unreadable_since_ = seen_;
    if (seen_ - *unreadable_since_ > kPatience) throw;
  }
}

std::chrono::milliseconds WatchedJob::until_look() const {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(seen_ + kInterval - Clock::now());
  return std::max(left, std::chrono::milliseconds(0));
}

}  // namespace chainmail::launch
