// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/jobs/folder/disk/ended_jobs.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "base/unique_fd.h"

namespace chainmail::launch {
namespace {

std::string ended_folder(const std::string& root) { return root + "/ended"; }

}  // namespace

void note_ended(const std::string& root, const std::string& id) noexcept {
  const std::string folder = ended_folder(root);
  if (mkdir(folder.c_str(), 0700) == 0) (void)chmod(folder.c_str(), 0700);
  const internal::UniqueFd file(
      open((folder + "/" + id).c_str(), O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (file.is_open()) (void)fchmod(file.get(), 0600);
}

void forget_ended(const std::string& root, const std::string& id) noexcept {
  (void)unlink((ended_folder(root) + "/" + id).c_str());
}

std::unordered_set<std::string> noted_as_ended(const std::string& root) {
  std::unordered_set<std::string> ids;
  std::error_code error;
  std::filesystem::directory_iterator entries(ended_folder(root), error);
  for (; !error && entries != std::filesystem::directory_iterator(); entries.increment(error)) {
    ids.insert(entries->path().filename().string());
  }
  return ids;
}

}  // namespace chainmail::launch
