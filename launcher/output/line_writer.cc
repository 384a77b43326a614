// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/output/line_writer.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "launcher/files/own_file.h"
#include "launcher/output/targets/write_all.h"
#include "launcher/process/signals.h"

namespace chainmail::launch {

namespace {

// Where the file system hangs, lines are lost before memory is.
constexpr std::size_t kMostQueuedBytes = std::size_t{4} << 20;

}  // namespace

LineWriter::LineWriter(std::string path, bool goes_on, std::size_t most_bytes)
    : path_(std::move(path)), most_bytes_(most_bytes) {
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path_).parent_path(), error);
  // A folder that could not be made shows in the next call.
  open(goes_on ? 0 : O_TRUNC);
  // Signals are for the main thread.
  const SignalsBlocked blocked;
  thread_ = std::thread([this] { run(); });
}

LineWriter::~LineWriter() { (void)finish(); }

void LineWriter::open(int more_flags) {
  fd_ = open_own(AT_FDCWD, path_, O_WRONLY | O_CREAT | O_APPEND | more_flags, 0600, path_);
  struct stat status {};
  const bool is_known = fd_.is_open() && fstat(fd_.get(), &status) == 0;
  file_bytes_ = is_known ? static_cast<std::size_t>(status.st_size) : 0;
}

// What follows the file by its name (tail -F) goes on in the new one.
void LineWriter::begin_anew() {
  struct stat status {};
  if (fstat(fd_.get(), &status) != 0 || !S_ISREG(status.st_mode)) return;
  if (std::rename(path_.c_str(), (path_ + ".1").c_str()) != 0) return;
  try {
    open(O_TRUNC);
  } catch (const SystemError&) {
    // Lines go on into the old one.
  }
}

void LineWriter::write(std::string line) {
  const std::lock_guard lock(mutex_);
  if (queued_bytes_ + line.size() > kMostQueuedBytes) {
    if (loss_.empty()) loss_ = path_ + " is written too slowly; lines of it are lost";
    return;
  }
  queued_bytes_ += line.size();
  queue_.push_back(std::move(line));
  changed_.notify_all();
}

std::string LineWriter::finish() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
  return loss_;
}

void LineWriter::run() {
  pthread_setname_np(pthread_self(), "line_writer");  // for tests/soak/launcher
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return ending_ || !queue_.empty(); });
    if (queue_.empty()) return;
    const std::string line = std::move(queue_.front());
    queue_.pop_front();
    queued_bytes_ -= line.size();
    lock.unlock();
    if (file_bytes_ > 0 && file_bytes_ + line.size() > most_bytes_) begin_anew();
    file_bytes_ += line.size();
    const int error = write_all(fd_.get(), line);
    lock.lock();
    if (error != 0 && loss_.empty()) {
      loss_ = "cannot write " + path_ + ": " + std::generic_category().message(error) +
              "; lines of it are lost";
    }
  }
}

}  // namespace chainmail::launch
