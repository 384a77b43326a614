// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/files/text_file.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "base/unique_fd.h"
#include "launcher/job/options.h"

namespace chainmail::launch {
namespace {

namespace fs = std::filesystem;

// A named pipe that nobody writes into would hold up the launcher for ever; -H <(command) is one
// that somebody does. What it says is read by who waited for it: it says it once.
internal::UniqueFd open_host_text(const std::string& path, const std::string& what, Pipes pipes) {
  constexpr int kMostSeconds = 30;
  internal::UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.is_open()) return file;
  // Of what is open: the name may be another thing's by now.
  struct stat status {};
  const bool is_pipe = fstat(file.get(), &status) == 0 && S_ISFIFO(status.st_mode);
  if (is_pipe && pipes == Pipes::kRefuse) throw UsageError(what + " " + path + " is not a file");
  pollfd readable{file.get(), POLLIN, 0};
  if (is_pipe && poll(&readable, 1, kMostSeconds * 1000) == 0) {
    throw UsageError("cannot read " + what + " " + path + ": it is a pipe into which nobody has " +
                     "written for " + std::to_string(kMostSeconds) + " s");
  }
  const int flags = fcntl(file.get(), F_GETFL);
  (void)fcntl(file.get(), F_SETFL, flags & ~O_NONBLOCK);
  return file;
}

}  // namespace

std::string read_host_text(const std::string& path, const std::string& what, Pipes pipes,
                           std::size_t most) {
  const auto refuse = [&](const std::string& verb, const std::string& reason) -> UsageError {
    return UsageError("cannot " + verb + " " + what + " " + path + ": " + reason);
  };
  std::error_code error;
  if (fs::is_directory(path, error)) throw UsageError(what + " " + path + " is a directory");
  const internal::UniqueFd file = open_host_text(path, what, pipes);
  if (!file.is_open()) throw refuse("open", std::strerror(errno));
  std::string text;
  std::string block(65536, '\0');  // not on the stack, which schedulers limit
  while (true) {
    const ssize_t count = read(file.get(), block.data(), block.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw refuse("read", std::strerror(errno));
    if (count == 0) break;
    text.append(block.data(), static_cast<std::size_t>(count));
    if (text.size() > most) {
      throw refuse("use", "it is longer than " + std::to_string(most >> 20) + " MiB");
    }
  }
  return text;
}

}  // namespace chainmail::launch
