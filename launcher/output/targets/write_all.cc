// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/output/targets/write_all.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

namespace chainmail::launch {

int write_all(int fd, std::string_view text) noexcept {
  while (!text.empty()) {
    const ssize_t count = ::write(fd, text.data(), text.size());
    if (count > 0) {
      text.remove_prefix(static_cast<std::size_t>(count));
    } else if (count < 0 && errno == EAGAIN) {
      // Somebody gave us a non-blocking one; wait for it without burning a core.
      pollfd ready{fd, POLLOUT, 0};
      poll(&ready, 1, 1000);
    } else if (count < 0 && errno != EINTR) {
      return errno;
    }
  }
  return 0;
}

std::string name_of_open_file(int fd, const std::string& otherwise) {
  std::error_code error;
  const std::string link = "/proc/self/fd/" + std::to_string(fd);
  const std::string path = std::filesystem::read_symlink(link, error).string();
  return error || !path.starts_with('/') ? otherwise : path;
}

}  // namespace chainmail::launch
