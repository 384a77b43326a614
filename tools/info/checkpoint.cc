// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "tools/info/checkpoint.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <ostream>
#include <vector>

#include "base/error.h"
#include "plugin/checkpoint/store/generations.h"
#include "plugin/checkpoint/store/parts.h"

namespace chainmail::info {
namespace {

using internal::Generation;
using internal::ManifestFile;

struct Finding {
  std::vector<std::string> problems;
  std::uint64_t bytes = 0;
  std::size_t elsewhere = 0;  ///< files that lie in the folders of other nodes
};

Finding inspect(const Generation& generation) {
  Finding finding;
  if (!generation.manifest) {
    finding.problems.push_back(generation.problem);
    return finding;
  }
  for (const ManifestFile& file : generation.manifest->files) {
    if (!file.is_here) {
      ++finding.elsewhere;
      continue;
    }
    finding.bytes += file.bytes;
    try {
      (void)internal::read_generation_file(generation, file);
    } catch (const Error& error) {
      finding.problems.emplace_back(error.what());
    }
  }
  if (!finding.problems.empty()) return finding;
  try {
    internal::check_tiles_here(generation);
  } catch (const Error& error) {
    finding.problems.emplace_back(error.what());
  }
  return finding;
}

void print_generation(const Generation& generation, const Finding& finding, std::ostream& out) {
  out << "  iteration " << generation.iteration << ": "
      << (finding.problems.empty() ? "whole" : "damaged");
  if (generation.manifest) {
    out << ", by " << generation.manifest->world_size << " ranks, "
        << generation.manifest->files.size() - finding.elsewhere << " files of " << finding.bytes
        << " bytes";
    if (finding.elsewhere != 0) out << ", " << finding.elsewhere << " more files on other nodes";
  }
  out << "\n";
  for (const std::string& problem : finding.problems) out << "    " << problem << "\n";
}

bool check_run(const std::string& folder, const std::vector<Generation>& generations,
               std::ostream& out) {
  out << folder << "\n";
  std::optional<std::int64_t> newest;
  for (const Generation& generation : generations) {
    const Finding finding = inspect(generation);
    print_generation(generation, finding, out);
    if (finding.problems.empty() && !newest) newest = generation.iteration;
  }
  if (newest) {
    out << "  resumes at iteration " << *newest << "\n";
  } else {
    out << "  nothing to resume from\n";
  }
  return newest.has_value();
}

}  // namespace

int check_checkpoints(const std::string& folder, std::ostream& out) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (!fs::is_directory(folder, error)) {
    out << folder << ": no such folder\n";
    return 1;
  }
  std::vector<std::string> runs = {folder};
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (entry.is_directory(error)) runs.push_back(entry.path().string());
  }
  std::sort(runs.begin(), runs.end());
  bool has_runs = false;
  bool are_whole = true;
  for (const std::string& run : runs) {
    const std::vector<Generation> generations = internal::list_generations(run);
    if (generations.empty()) continue;
    has_runs = true;
    are_whole = check_run(run, generations, out) && are_whole;
  }
  if (!has_runs) out << folder << ": no checkpoints, neither here nor one folder below\n";
  return has_runs && are_whole ? 0 : 1;
}

}  // namespace chainmail::info
