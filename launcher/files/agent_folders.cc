// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/files/agent_folders.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <exception>
#include <filesystem>
#include <unordered_set>

#include "base/error.h"
#include "base/unique_fd.h"
#include "launcher/files/trusted_path.h"
#include "launcher/process/owner_tag.h"

namespace chainmail::launch {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPrefix = "chainmail-";

// No other machine sees it.
bool is_local(const std::string& folder) {
  constexpr std::uint64_t kXfs = 0x58465342;
  constexpr std::uint64_t kZfs = 0x2fc12fc1;
  struct statfs status {};
  if (statfs(folder.c_str(), &status) != 0) return false;
  switch (static_cast<std::uint64_t>(status.f_type)) {
    case TMPFS_MAGIC:
    case EXT4_SUPER_MAGIC:
    case BTRFS_SUPER_MAGIC:
    case OVERLAYFS_SUPER_MAGIC:
    case F2FS_SUPER_MAGIC:
    case kXfs:
    case kZfs:
      return true;
    default:
      return false;
  }
}

// Of what is there itself, a link too; nobody's where there is nothing.
struct stat status_of(const fs::path& path) {
  struct stat status {};
  (void)lstat(path.c_str(), &status);
  return status;
}

bool is_own_folder(const struct stat& status) {
  return S_ISDIR(status.st_mode) && status.st_uid == geteuid();
}

// Containers may have boots of their own, as they say.
bool is_older_than_the_kernel(const struct stat& status) {
  timespec up{};
  return clock_gettime(CLOCK_BOOTTIME, &up) == 0 && status.st_ctime < time(nullptr) - up.tv_sec - 1;
}

}  // namespace

std::string make_agent_folder(const std::string& parent, const std::string& marker,
                              const std::string& kind) {
  std::string path = parent + "/" + marker + kind + own_tag() + ".XXXXXX";
  return mkdtemp(path.data()) != nullptr ? path : "";
}

AgentFolder::AgentFolder(const std::string& marker, const std::string& kind) {
  std::string why;
  int error = ENOENT;
  for (const std::string& parent : agent_folder_parents()) {
    const TrustedPath folder = trusted_folder(parent);
    if (!folder.path.empty()) path_ = make_agent_folder(folder.path, marker, kind);
    if (!path_.empty()) return;
    if (!folder.path.empty()) error = errno;
    why +=
        (why.empty() ? "" : ", ") + parent + " " +
        (folder.path.empty() ? "is not to be trusted (" + folder.why + ")" : std::strerror(error));
  }
  throw SystemError("no folder for temporary files can be made: " + why +
                        "; set TMPDIR there to a folder that can be written",
                    error);
}

AgentFolder::~AgentFolder() { remove_folder(path_); }

void remove_folder(const std::string& path) noexcept {
  std::error_code ignored;
  // Nearly always it is empty.
  if (!path.empty() && rmdir(path.c_str()) != 0) fs::remove_all(path, ignored);
}

std::vector<std::string> agent_folder_parents() {
  std::vector<std::string> folders = scratch_folders();
  if (const char* home = std::getenv("HOME"); home != nullptr && *home != '\0') {
    folders.emplace_back(home);
  }
  return folders;
}

void remove_agent_folders(const std::vector<std::string>& markers) noexcept {
  try {
    const std::unordered_set<std::string> known(markers.begin(), markers.end());
    for (const std::string& parent : agent_folder_parents()) {
      const TrustedPath folder = trusted_folder(parent);
      std::error_code error;  // of no such folder, or one that is not ours to read
      for (fs::directory_iterator at(folder.path, error), end; !error && at != end;
           at.increment(error)) {
        const std::string name = at->path().filename();
        const std::size_t kind =
            std::min({name.find(kMpiFolder), name.find(kPreloadFolder), name.find(kTempFolder)});
        if (kind == std::string::npos || !known.contains(name.substr(0, kind))) continue;
        std::error_code ignored;
        if (is_own_folder(status_of(at->path()))) fs::remove_all(at->path(), ignored);
      }
    }
  } catch (const std::exception&) {
    // They stay.
  }
}

void remove_stale_folders(const std::string& parent) noexcept {
  try {
    const internal::UniqueFd turn(
        ::open(parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NONBLOCK));
    if (!turn.is_open() || flock(turn.get(), LOCK_EX | LOCK_NB) != 0) return;
    const bool is_of_this_machine = is_local(parent);
    for (const auto& entry : fs::directory_iterator(parent)) {
      const std::string name = entry.path().filename();
      const struct stat status = status_of(entry.path());
      if (!name.starts_with(kPrefix) || !is_own_folder(status)) continue;
      const Owner owner = owner_of(name);
      const bool is_left =
          owner == Owner::kGone ||
          (owner == Owner::kEarlierBoot && is_of_this_machine && is_older_than_the_kernel(status));
      std::error_code ignored;
      if (is_left) fs::remove_all(entry.path(), ignored);
    }
  } catch (const std::exception&) {
    // No such folder, or not ours to read: then nothing of ours is in it.
  }
}

void remove_stale_folders() noexcept {
  try {
    for (const std::string& place : scratch_folders()) {
      if (place.front() == '/') remove_stale_folders(place);
    }
  } catch (const std::exception&) {
    // They stay.
  }
}

}  // namespace chainmail::launch
