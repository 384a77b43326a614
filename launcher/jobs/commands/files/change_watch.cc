// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/jobs/commands/files/change_watch.h"

#include <poll.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <array>

namespace chainmail::launch {

ChangeWatch::ChangeWatch() : events_(inotify_init1(IN_CLOEXEC | IN_NONBLOCK)) {}

void ChangeWatch::add(const std::string& folder) {
  constexpr std::uint32_t kChanges = IN_MODIFY | IN_CREATE | IN_MOVED_TO;
  if (!events_.is_open() || folders_.contains(folder)) return;
  if (inotify_add_watch(events_.get(), folder.c_str(), kChanges) >= 0) folders_.insert(folder);
}

void ChangeWatch::wait(std::chrono::milliseconds time) {
  pollfd changed{events_.get(), POLLIN, 0};
  // A descriptor below 0 is none.
  (void)::poll(&changed, 1, static_cast<int>(time.count()));
  if ((changed.revents & POLLIN) == 0) return;
  // That there were some is enough.
  std::array<char, 4096> block{};
  while (::read(events_.get(), block.data(), block.size()) > 0) {
  }
}

bool ChangeWatch::is_reader_gone(int out) {
  pollfd stream{out, 0, 0};
  return ::poll(&stream, 1, 0) > 0 && (stream.revents & POLLERR) != 0;
}

}  // namespace chainmail::launch
