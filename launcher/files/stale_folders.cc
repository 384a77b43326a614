// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/files/stale_folders.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <ctime>
#include <exception>
#include <filesystem>

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

bool is_own_folder(const struct stat& status) {
  return S_ISDIR(status.st_mode) && status.st_uid == geteuid();
}

// Containers may have boots of their own, as they say.
bool is_older_than_the_kernel(const struct stat& status) {
  timespec up{};
  return clock_gettime(CLOCK_BOOTTIME, &up) == 0 && status.st_ctime < time(nullptr) - up.tv_sec - 1;
}

}  // namespace

void remove_stale_folders(const std::string& parent) noexcept {
  try {
    const internal::UniqueFd turn(
        ::open(parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NONBLOCK));
    if (!turn.is_open() || flock(turn.get(), LOCK_EX | LOCK_NB) != 0) return;
    const bool is_of_this_machine = is_local(parent);
    for (const auto& entry : fs::directory_iterator(parent)) {
      const std::string name = entry.path().filename();
      struct stat status {};
      if (!name.starts_with(kPrefix) || lstat(entry.path().c_str(), &status) != 0 ||
          !is_own_folder(status)) {
        continue;
      }
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
