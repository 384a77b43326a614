// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/files/agent_folders.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <exception>
#include <filesystem>
#include <unordered_set>

#include "launcher/files/trusted_path.h"
#include "launcher/process/owner_tag.h"

namespace chainmail::launch {
namespace {

namespace fs = std::filesystem;

bool is_own_folder(const fs::path& path) {
  struct stat status {};
  return lstat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == geteuid();
}

}  // namespace

std::string make_agent_folder(const std::string& parent, const std::string& marker,
                              const std::string& kind) {
  std::string path = parent + "/" + marker + kind + own_tag() + ".XXXXXX";
  return mkdtemp(path.data()) != nullptr ? path : "";
}

void remove_folder(const std::string& path) noexcept {
  std::error_code ignored;
  // Nearly always it is empty.
  if (!path.empty() && rmdir(path.c_str()) != 0) fs::remove_all(path, ignored);
}

void remove_agent_folders(const std::string& parent, const std::string& kind,
                          const std::vector<std::string>& markers) noexcept {
  try {
    const TrustedPath folder = trusted_folder(parent);
    if (folder.path.empty()) return;
    const std::unordered_set<std::string> known(markers.begin(), markers.end());
    for (const auto& entry : fs::directory_iterator(folder.path)) {
      const std::string name = entry.path().filename();
      const std::size_t end = name.find(kind);
      if (end == std::string::npos || !known.contains(name.substr(0, end))) continue;
      std::error_code ignored;
      if (is_own_folder(entry.path())) fs::remove_all(entry.path(), ignored);
    }
  } catch (const std::exception&) {
    // No such folder here, or not ours to read: then nothing of ours is in it.
  }
}

}  // namespace chainmail::launch
