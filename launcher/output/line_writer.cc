// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/output/line_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/error.h"

namespace chainmail::launch {

LineWriter::LineWriter(std::string path, bool goes_on) : path_(std::move(path)) {
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path_).parent_path(), error);
  // A folder that could not be made shows in the next call.
  const int flags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | (goes_on ? 0 : O_TRUNC);
  fd_.reset(::open(path_.c_str(), flags, 0600));
  if (!fd_.is_open()) throw system_error("cannot write " + path_);
  thread_ = std::thread([this] { run(); });
}

LineWriter::~LineWriter() { (void)finish(); }

void LineWriter::write(std::string line) {
  const std::lock_guard lock(mutex_);
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
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return ending_ || !queue_.empty(); });
    if (queue_.empty()) return;
    const std::string line = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    const int error = put(line);
    lock.lock();
    if (error != 0 && loss_.empty()) {
      loss_ = "cannot write " + path_ + ": " + std::generic_category().message(error) +
              "; lines of it are lost";
    }
  }
}

// 0 or errno.
int LineWriter::put(const std::string& line) {
  std::size_t done = 0;
  while (done < line.size()) {
    const ssize_t count = ::write(fd_.get(), line.data() + done, line.size() - done);
    if (count > 0) {
      done += static_cast<std::size_t>(count);
    } else if (errno != EINTR) {
      return errno;
    }
  }
  return 0;
}

}  // namespace chainmail::launch
