// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/run/job_file/state_writer.h"

#include <utility>

#include "launcher/process/signals.h"

namespace chainmail::launch {

StateWriter::StateWriter(JobFolder& folder) : folder_(folder) {
  // Signals are for the main thread.
  const SignalsBlocked blocked;
  thread_ = std::thread([this] { run(); });
}

StateWriter::~StateWriter() { finish(); }

void StateWriter::write(JobRecord record, std::function<void()> then) {
  const std::lock_guard lock(mutex_);
  next_ = std::move(record);
  if (then) then_ = std::move(then);
  changed_.notify_all();
}

void StateWriter::finish() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

std::string StateWriter::take_loss() {
  const std::lock_guard lock(mutex_);
  return std::exchange(loss_, {});
}

void StateWriter::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return next_ || is_ending_; });
    if (!next_) return;
    JobRecord record = *std::exchange(next_, std::nullopt);
    const std::function<void()> then = std::exchange(then_, nullptr);
    lock.unlock();
    std::string loss = folder_.write(std::move(record));
    if (then) then();
    lock.lock();
    if (!loss.empty()) loss_ = std::move(loss);
  }
}

}  // namespace chainmail::launch
