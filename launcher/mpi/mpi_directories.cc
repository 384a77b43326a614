// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/mpi/mpi_directories.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <exception>
#include <filesystem>

namespace chainmail::launch {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMemory = "/dev/shm";

std::string temporary() {
  const char* chosen = std::getenv("TMPDIR");
  return chosen != nullptr && *chosen == '/' ? chosen : "/tmp";
}

std::string make_below(const std::string& folder, const std::string& marker) {
  std::string path = folder + "/" + marker + ".mpi.XXXXXX";
  return mkdtemp(path.data()) == nullptr ? std::string() : path;
}

void remove_tree(const std::string& path) noexcept {
  std::error_code ignored;
  if (!path.empty()) fs::remove_all(path, ignored);
}

bool is_own_folder(const fs::path& path) {
  struct stat status {};
  return lstat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == getuid();
}

void remove_marked(const std::string& folder, const std::string& marker) {
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename();
    if (name.rfind(marker + ".mpi.", 0) == 0 && is_own_folder(entry.path())) {
      remove_tree(entry.path());
    }
  }
}

}  // namespace

MpiDirectories::MpiDirectories(const std::string& marker)
    : session_(make_below(temporary(), marker)), memory_(make_below(kMemory, marker)) {}

MpiDirectories::~MpiDirectories() {
  for (const std::string& path : {session_, memory_}) {
    // Nearly always they are empty: no program of the job used MPI.
    if (!path.empty() && rmdir(path.c_str()) != 0) remove_tree(path);
  }
}

void remove_mpi_directories(const std::string& marker) noexcept {
  for (const std::string& folder : {temporary(), std::string(kMemory)}) {
    try {
      remove_marked(folder, marker);
    } catch (const std::exception&) {
      // No such folder here, or not ours to read: then nothing of ours is in it.
    }
  }
}

}  // namespace chainmail::launch
