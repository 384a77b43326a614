// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/output/job_directory.h"

#include <limits.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <utility>

#include "launcher/files/agent_folders.h"
#include "launcher/files/trusted_path.h"
#include "launcher/process/fork_exec.h"
#include "launcher/process/owner_tag.h"
#include "launcher/process/reaper.h"

namespace chainmail::launch {

std::string JobDirectory::parent() {
  for (const std::string& folder : temporary_folders()) {
    TrustedPath trusted = trusted_folder(folder);
    if (!trusted.path.empty()) return trusted.path;
  }
  return {};
}

const std::string& JobDirectory::make() {
  if (std::exchange(has_tried_, true)) return path_;
  const std::string parent = JobDirectory::parent();
  if (parent.empty()) return path_;
  Pipe pipe;
  alive_ = std::move(pipe.write_end);
  std::string path =
      parent + "/" + kPrefix + std::to_string(getpid()) + "." + own_tag() + ".XXXXXX";
  if (path.size() > PIPE_BUF || mkdtemp(path.data()) == nullptr) return path_;
  const auto length = static_cast<ssize_t>(path.size());
  const bool is_told = ::write(alive_.get(), path.data(), path.size()) == length;
  remover_ = is_told ? start_reaper({kReaperName, "--outlive"}, pipe.read_end.get()) : -1;
  if (remover_ < 0) {
    remove_folder(path);
  } else {
    path_ = std::move(path);
  }
  return path_;
}

JobDirectory::~JobDirectory() {
  if (path_.empty()) return;
  remove_folder(path_);
  // Where a lost agent's orphans had to be ended, it has gone with them, and its number may be
  // another's.
  if (waitpid(remover_, nullptr, WNOHANG) != 0) return;
  kill(remover_, SIGKILL);
  waitpid(remover_, nullptr, 0);
}

void outlive_launcher() {
  be_reaper();
  remove_stale_folders();
  std::string path;
  std::array<char, PIPE_BUF> piece{};
  while (true) {
    const ssize_t count = ::read(STDIN_FILENO, piece.data(), piece.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    path.append(piece.data(), static_cast<std::size_t>(count));
  }
  if (path.rfind(JobDirectory::kPrefix) != std::string::npos) remove_folder(path);
}

}  // namespace chainmail::launch
