// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/mpi/mpi_directories.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "launcher/leftovers/owner_tag.h"
#include "launcher/marked_folders.h"

namespace chainmail::launch {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMemory = "/dev/shm";
constexpr const char* kKind = ".mpi.";

std::string temporary() {
  const char* chosen = std::getenv("TMPDIR");
  return chosen != nullptr && *chosen == '/' ? chosen : "/tmp";
}

std::string make_below(const std::string& folder, const std::string& marker) {
  std::string path = folder + "/" + marker + kKind + own_tag() + ".XXXXXX";
  return mkdtemp(path.data()) == nullptr ? std::string() : path;
}

void remove_tree(const std::string& path) noexcept {
  std::error_code ignored;
  if (!path.empty()) fs::remove_all(path, ignored);
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

void remove_mpi_directories(const std::vector<std::string>& markers) noexcept {
  remove_marked_folders(temporary(), kKind, markers);
  remove_marked_folders(kMemory, kKind, markers);
}

}  // namespace chainmail::launch
