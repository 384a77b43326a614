// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/output/targets/host_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "launcher/files/own_file.h"
#include "launcher/output/targets/write_all.h"
#include "launcher/process/signals.h"

namespace chainmail::launch {

HostFiles::HostFiles(std::string folder, std::vector<std::string> hosts, bool goes_on,
                     std::function<void()> on_written)
    : folder_(std::move(folder)),
      hosts_(std::move(hosts)),
      goes_on_(goes_on),
      on_written_(std::move(on_written)) {
  // Signals are for the main thread.
  const SignalsBlocked blocked;
  thread_ = std::thread([this] { run(); });
}

HostFiles::~HostFiles() { (void)finish(); }

std::string HostFiles::path_of(std::size_t node) const {
  std::string host = hosts_[node];
  std::replace(host.begin(), host.end(), '/', '_');
  return folder_ + "/prepare." + host + ".txt";
}

void HostFiles::write(std::uint32_t node, std::uint8_t stream, std::string text) {
  const std::lock_guard lock(mutex_);
  queue_.push_back({node, stream, std::move(text)});
  changed_.notify_all();
}

std::vector<HostFiles::Written> HostFiles::take_written() {
  const std::lock_guard lock(mutex_);
  std::vector<Written> all;
  for (const auto& [writer, bytes] : written_) {
    all.push_back({writer.first, writer.second, bytes});
  }
  written_.clear();
  return all;
}

void HostFiles::end() {
  const std::lock_guard lock(mutex_);
  is_ending_ = true;
  changed_.notify_all();
}

std::string HostFiles::finish() {
  end();
  if (thread_.joinable()) thread_.join();
  return loss_;
}

void HostFiles::run() {
  open_files();
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return is_ending_ || !queue_.empty(); });
    if (queue_.empty()) break;
    const Piece piece = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    put(piece);
    lock.lock();
  }
  lock.unlock();
  for (std::size_t node = 0; node < files_.size(); ++node) {
    if (files_[node].is_open() && fsync(files_[node].get()) != 0 && errno != EINVAL) {
      lose("cannot store " + path_of(node) + ": " + std::generic_category().message(errno));
    }
  }
  files_.clear();
}

void HostFiles::open_files() {
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  // A folder that could not be made shows in what follows.
  for (std::size_t node = 0; node < hosts_.size(); ++node) {
    const std::string path = path_of(node);
    internal::UniqueFd& file = files_.emplace_back();
    try {
      const int mode = O_WRONLY | O_CREAT | O_APPEND | (goes_on_ ? 0 : O_TRUNC);
      file = open_own(AT_FDCWD, path, mode, 0600, path);
    } catch (const SystemError& why) {
      lose(why.what());
    }
  }
}

void HostFiles::put(const Piece& piece) {
  const internal::UniqueFd& file = files_.at(piece.node);
  const int error = file.is_open() ? write_all(file.get(), piece.text) : 0;
  if (error != 0) {
    lose("cannot write " + path_of(piece.node) + ": " + std::generic_category().message(error));
  }
  bool is_first = false;
  {
    const std::lock_guard lock(mutex_);
    is_first = written_.empty();
    written_[{piece.node, piece.stream}] += static_cast<std::uint32_t>(piece.text.size());
  }
  if (is_first && on_written_) on_written_();
}

void HostFiles::lose(const std::string& why) {
  const std::lock_guard lock(mutex_);
  if (loss_.empty()) loss_ = why + "; what hosts print while they are prepared is lost";
}

}  // namespace chainmail::launch
