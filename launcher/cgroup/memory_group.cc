// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/cgroup/memory_group.h"

#include <algorithm>
#include <sstream>
#include <vector>

namespace chainmail::launch {
namespace {

std::vector<std::string> split(std::string_view line, char separator) {
  std::vector<std::string> parts;
  std::string part;
  std::istringstream stream{std::string(line)};
  while (std::getline(stream, part, separator)) parts.push_back(part);
  return parts;
}

}  // namespace

MemoryGroup find_memory_group(std::string_view cgroup_file, std::string_view mount_file) {
  // "4:memory:/job" in v1, "0::/job" in v2; where memory has a v1 hierarchy, v2 does not know it.
  MemoryGroup group;
  bool is_found = false;
  for (const std::string& line : split(cgroup_file, '\n')) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::vector<std::string> names = split(line.substr(first + 1, second - first - 1), ',');
    const bool has_memory = std::find(names.begin(), names.end(), "memory") != names.end();
    if (!has_memory && (!names.empty() || is_found)) continue;
    group.name = line.substr(second + 1);
    group.is_unified = !has_memory;
    is_found = true;
    if (has_memory) break;
  }
  if (!is_found) return {};
  // "35 31 0:32 /root /mount/point options - cgroup cgroup rw,memory"
  for (const std::string& line : split(mount_file, '\n')) {
    const std::size_t dash = line.find(" - ");
    if (dash == std::string::npos) continue;
    const std::vector<std::string> place = split(line.substr(0, dash), ' ');
    const std::vector<std::string> kind = split(line.substr(dash + 3), ' ');
    if (place.size() < 5 || kind.size() < 3) continue;
    const std::vector<std::string> options = split(kind[2], ',');
    const bool is_memory = std::find(options.begin(), options.end(), "memory") != options.end();
    if (group.is_unified ? kind[0] != "cgroup2" : kind[0] != "cgroup" || !is_memory) continue;
    // A container sees the part below `root` only.
    const std::string& root = place[3];
    if (root != "/" && group.name.rfind(root, 0) == 0) group.name.erase(0, root.size());
    group.mount = place[4];
    group.folder = group.mount + group.name;
    return group;
  }
  return {};
}

}  // namespace chainmail::launch
