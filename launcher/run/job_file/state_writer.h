// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Writes a job's state by a thread of its own: a file server that does not answer must not stop the
// heartbeats, and with them the job.
//
// One thread calls it; what is called back is in the other.

#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "launcher/jobs/folder/job_folder.h"

namespace chainmail::launch {

class StateWriter {
 public:
  /// Until finish(), nobody else writes the state of `folder`.
  explicit StateWriter(JobFolder& folder);
  /// As finish().
  ~StateWriter();
  StateWriter(const StateWriter&) = delete;
  StateWriter& operator=(const StateWriter&) = delete;

  /// Never blocks. Of states that come faster than they can be written the last one is; `then` is
  /// called when it, or a later one, is, and also where it cannot be.
  void write(JobRecord record, std::function<void()> then = {});
  /// Writes what there is, however long that takes, and ends.
  void finish();
  /// Why a state could not be written, once; otherwise empty.
  [[nodiscard]] std::string take_loss();

 private:
  void run();

  JobFolder& folder_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<JobRecord> next_;
  std::function<void()> then_;
  std::string loss_;
  bool is_ending_ = false;
  std::thread thread_;
};

}  // namespace chainmail::launch
