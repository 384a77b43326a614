// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/checkpoint/store/lone_save.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <random>

#include "base/error.h"
#include "plugin/checkpoint/store/generations.h"

namespace chainmail::internal {
namespace {

std::string own_folder(const std::string& run_folder) {
  std::array<char, 256> host{};
  if (gethostname(host.data(), host.size() - 1) != 0) host[0] = '\0';
  return run_folder + '/' + kWillPrefix + host.data() + "-" + std::to_string(getpid());
}

bool is_saved(const std::string& run_folder, std::int64_t iteration) {
  const auto generations = list_generations(run_folder);
  return std::ranges::any_of(generations, [&](const Generation& generation) {
    return generation.iteration == iteration && generation.manifest;
  });
}

std::uint64_t random_id() {
  std::random_device random;
  return (static_cast<std::uint64_t>(random()) << 32) | random();
}

/// What is left of it goes with the scope.
class OwnFolder {
 public:
  explicit OwnFolder(std::string path) : path_(std::move(path)) { remove(); }
  OwnFolder(const OwnFolder&) = delete;
  OwnFolder& operator=(const OwnFolder&) = delete;
  ~OwnFolder() { remove(); }
  [[nodiscard]] const std::string& path() const noexcept { return path_; }

 private:
  void remove() const noexcept {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::string path_;
};

}  // namespace

void save_alone(FileSystem& files, const std::string& run_folder, std::int64_t iteration,
                FileImage& image) {
  make_folders(files, run_folder);
  if (is_saved(run_folder, iteration)) return;
  const OwnFolder own(own_folder(run_folder));
  prepare_generation(files, own.path(), iteration);
  Manifest manifest{iteration, random_id(), 1, 1, {}};
  manifest.files.push_back(
      write_generation_file(files, own.path(), iteration, set_file_name(0), image));
  publish_generation(files, own.path(), manifest);
  const std::string name = generation_name(iteration);
  try {
    files.rename(own.path() + '/' + name, run_folder + '/' + name);
  } catch (const SystemError&) {
    // A folder cannot be renamed onto another's.
    if (!is_saved(run_folder, iteration)) throw;
  }
  files.sync_folder(run_folder);
}

}  // namespace chainmail::internal
