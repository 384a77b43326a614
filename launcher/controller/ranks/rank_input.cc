// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/controller/ranks/rank_input.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <asio/post.hpp>
#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/unique_fd.h"
#include "launcher/process/signals.h"

namespace chainmail::launch {
namespace {

constexpr std::size_t kPieceBytes = 65536;
// How often a launcher in the background looks whether it has been brought to the foreground.
constexpr int kBackgroundPauseMs = 500;

bool is_in_background() {
  return isatty(STDIN_FILENO) == 1 && tcgetpgrp(STDIN_FILENO) != getpgrp();
}

}  // namespace

// Shared with the thread, which may sit in a read that somebody else's read has made blocking; the
// launcher ends without it then.
struct InputReader::State {
  std::mutex mutex;
  std::condition_variable changed;
  bool is_wanted = false;
  bool is_over = false;
  asio::io_context* io = nullptr;
  std::function<void(std::string)> on_bytes;
  internal::UniqueFd wake;

  bool wait_until_wanted() {
    std::unique_lock<std::mutex> lock(mutex);
    changed.wait(lock, [this] { return is_wanted || is_over; });
    is_wanted = false;
    return !is_over;
  }

  // True when a read finds something, false when it is over.
  bool wait_until_readable() {
    while (true) {
      const bool background = is_in_background();
      std::array<pollfd, 2> fds = {
          {{wake.get(), POLLIN, 0}, {background ? -1 : STDIN_FILENO, POLLIN, 0}}};
      poll(fds.data(), fds.size(), background ? kBackgroundPauseMs : -1);
      if (fds[0].revents != 0) return false;
      if (!background && fds[1].revents != 0 && !is_in_background()) return true;
    }
  }

  std::string read_piece() {
    std::string piece(kPieceBytes, '\0');
    while (wait_until_readable()) {
      const ssize_t count = ::read(STDIN_FILENO, piece.data(), piece.size());
      if (count < 0 && (errno == EINTR || errno == EAGAIN)) continue;
      // EIO in the background: put there between the look and the read.
      if (count < 0 && errno == EIO && is_in_background()) continue;
      piece.resize(count > 0 ? static_cast<std::size_t>(count) : 0);
      return piece;
    }
    return {};
  }

  void run(const std::shared_ptr<State>& self) {
    while (wait_until_wanted()) {
      std::string piece = read_piece();
      const bool is_end = piece.empty();
      const std::lock_guard<std::mutex> lock(mutex);
      if (is_over) return;
      asio::post(*io, [self, piece = std::move(piece)]() mutable {
        if (!self->is_over) self->on_bytes(std::move(piece));
      });
      if (is_end) return;
    }
  }
};

InputReader::InputReader(asio::io_context& io, std::function<void(std::string)> on_bytes)
    : state_(std::make_shared<State>()) {
  state_->io = &io;
  state_->on_bytes = std::move(on_bytes);
  state_->wake.reset(eventfd(0, EFD_CLOEXEC));
  if (!state_->wake.is_open()) throw system_error("cannot make an eventfd");
  const SignalsBlocked blocked;
  std::thread([state = state_] { state->run(state); }).detach();
}

InputReader::~InputReader() {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  state_->is_over = true;
  state_->changed.notify_all();
  eventfd_write(state_->wake.get(), 1);
}

void InputReader::read_on() {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  state_->is_wanted = true;
  state_->changed.notify_all();
}

bool InputReader::is_worthwhile() {
  struct stat input {};
  struct stat null {};
  if (fstat(STDIN_FILENO, &input) != 0) return false;
  const int mode = fcntl(STDIN_FILENO, F_GETFL) & O_ACCMODE;
  if (mode == O_WRONLY) return false;
  const bool is_null =
      stat("/dev/null", &null) == 0 && S_ISCHR(input.st_mode) && input.st_rdev == null.st_rdev;
  return !is_null;
}

RankInput::RankInput(asio::io_context& io, std::vector<std::uint32_t> targets, Send send)
    : targets_(targets.begin(), targets.end()),
      send_(std::move(send)),
      reader_(io, [this](const std::string& bytes) { deliver(bytes); }) {
  reader_.read_on();
}

void RankInput::deliver(const std::string& bytes) {
  is_reading_ = false;
  is_over_ = bytes.empty();
  waiting_for_ = targets_;
  // send_ may answer at once.
  for (const std::uint32_t rank : std::set<std::uint32_t>(targets_)) send_(rank, bytes);
  go_on();
}

void RankInput::on_taken(std::uint32_t rank) {
  waiting_for_.erase(rank);
  go_on();
}

void RankInput::on_gone(std::uint32_t rank) {
  targets_.erase(rank);
  on_taken(rank);
}

void RankInput::go_on() {
  if (is_reading_ || is_over_ || targets_.empty() || !waiting_for_.empty()) return;
  is_reading_ = true;
  reader_.read_on();
}

}  // namespace chainmail::launch
