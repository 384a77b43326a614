// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/output/job_directory.h"

#include <limits.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <exception>
#include <utility>

#include "launcher/files/agent_folders.h"
#include "launcher/files/trusted_path.h"
#include "launcher/process/owner_tag.h"

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
  std::string path =
      parent + "/" + kPrefix + std::to_string(getpid()) + "." + own_tag() + ".XXXXXX";
  if (path.size() > PIPE_BUF || mkdtemp(path.data()) == nullptr) return path_;
  try {
    if (remover_.start({kReaperName, "--outlive"}, path)) return path_ = std::move(path);
  } catch (const std::exception&) {
    remove_folder(path);
    throw;
  }
  remove_folder(path);
  return path_;
}

JobDirectory::~JobDirectory() {
  if (!path_.empty()) remove_folder(path_);
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
