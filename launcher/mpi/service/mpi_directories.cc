// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/mpi/service/mpi_directories.h"

#include <cerrno>
#include <cstring>

#include "launcher/files/agent_folders.h"
#include "launcher/files/trusted_path.h"

namespace chainmail::launch {
namespace {

// In the first of `parents` that takes it; otherwise empty, and `why` says why not.
std::string make_below(const std::vector<std::string>& parents, const std::string& marker,
                       std::string& why) {
  for (const std::string& parent : parents) {
    const TrustedPath folder = trusted_folder(parent);
    if (!folder.path.empty()) {
      std::string path = make_agent_folder(folder.path, marker, kMpiFolder);
      if (!path.empty()) return path;
    }
    why += why.empty() ? "" : ", ";
    why += folder.path.empty() ? folder.why : folder.path + ": " + std::strerror(errno);
  }
  return {};
}

}  // namespace

MpiDirectories::MpiDirectories(const std::string& marker)
    : session_(make_below(temporary_folders(), marker, why_no_session_)) {
  std::string why;
  memory_ = make_below({"/dev/shm"}, marker, why);
  if (memory_.empty()) memory_ = session_;
}

MpiDirectories::~MpiDirectories() {
  remove_folder(session_);
  remove_folder(memory_);
}

}  // namespace chainmail::launch
