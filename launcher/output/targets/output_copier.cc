// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/output/targets/output_copier.h"

#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "launcher/output/targets/line_prefix.h"
#include "launcher/output/targets/write_all.h"

namespace chainmail::launch {

OutputCopier::OutputCopier(const OutputCopies& copies,
                           std::function<void(const std::string& why)> tell_loss)
    : streams_{Copy{copies.stdout_fd, "the copy of standard output"},
               Copy{copies.stderr_fd, "the copy of standard error"}},
      log_{copies.log_fd, "the launcher's log"},
      tell_loss_(std::move(tell_loss)) {}

// Where both streams go to one terminal, a line of the one may have ended a line of the other there
// but not here.
void OutputCopier::write(std::int64_t rank, int stream, const std::string& prefix,
                         const std::string& text) {
  Copy& copy = streams_.at(static_cast<std::size_t>(stream - 1));
  if (copy.fd < 0 || text.empty()) return;
  const bool breaks = copy.open_rank && copy.open_rank != rank;
  const bool continues = copy.open_rank == rank && !copy.has_returned;
  put(copy, (breaks ? "\n" : "") + (prefix.empty() ? text : with_prefix(prefix, text, continues)));
  copy.open_rank = text.back() == '\n' ? std::nullopt : std::optional(rank);
  copy.has_returned = text.back() == '\r';
}

void OutputCopier::log(const std::string& line) {
  if (log_.fd >= 0) put(log_, time_prefix() + line);
}

void OutputCopier::finish() {
  for (Copy* const copy : {&streams_[0], &streams_[1], &log_}) {
    if (copy->fd < 0 || fsync(copy->fd) == 0) continue;
    // Of pipes and terminals.
    if (errno != EINVAL && errno != EROFS && errno != ENOTSUP) report(*copy, errno);
  }
}

void OutputCopier::put(Copy& copy, const std::string& text) {
  if (const int error = write_all(copy.fd, text); error != 0) report(copy, error);
}

void OutputCopier::report(Copy& copy, int error) {
  if (std::exchange(copy.has_failed, true)) return;
  tell_loss_("cannot write " + name_of_open_file(copy.fd, copy.name) + ": " +
             std::generic_category().message(error));
}

}  // namespace chainmail::launch
