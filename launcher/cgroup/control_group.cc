// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/cgroup/control_group.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <exception>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <thread>
#include <vector>

#include "launcher/job/text.h"
#include "launcher/process/children.h"
#include "launcher/process/owner_tag.h"

namespace chainmail::launch {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPrefix = "chainmail.";

// Of v2, whatever other hierarchies there are.
std::string own_group() {
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    if (!line.starts_with("0::")) continue;
    return find_memory_group(line, read_file("/proc/self/mountinfo")).folder;
  }
  return {};
}

// systemd marks what it leaves to others; everything else of the tree is its own, also where root
// could write to it.
bool is_delegated(const std::string& group) {
  if (access((group + "/cgroup.procs").c_str(), W_OK) != 0 || access(group.c_str(), W_OK) != 0) {
    return false;
  }
  if (geteuid() != 0 || access("/run/systemd/system", F_OK) != 0) return true;
  for (const char* name : {"trusted.delegate", "user.delegate"}) {
    char value = 0;
    if (getxattr(group.c_str(), name, &value, 1) == 1 && value == '1') return true;
  }
  return false;
}

// A group that hands controllers on may not hold processes beside its children, and shares out
// processors among these.
bool can_be_divided(const std::string& group) {
  std::string type = read_file(group + "/cgroup.type");  // the root has none
  while (!type.empty() && type.back() == '\n') type.pop_back();
  const std::string handed_on = read_file(group + "/cgroup.subtree_control");
  return (type.empty() || type == "domain") &&
         handed_on.find_first_not_of(" \n") == std::string::npos;
}

// The groups that processes made below this one.
std::vector<std::string> groups_below(const std::string& path) {
  std::vector<std::string> found;
  std::error_code error;
  for (fs::directory_iterator entry(path, error), end; !error && entry != end;
       entry.increment(error)) {
    if (entry->is_directory(error) && !entry->is_symlink(error)) found.push_back(entry->path());
  }
  return found;
}

void kill_group(const std::string& path) {
  const internal::UniqueFd fd(::open((path + "/cgroup.kill").c_str(), O_WRONLY | O_CLOEXEC));
  if (fd.is_open() && ::write(fd.get(), "1", 1) == 1) return;  // those below, too
  // Before Linux 5.14. Whoever forks while this goes on is found by the next look.
  for (const std::string& below : groups_below(path)) kill_group(below);
  for (int look = 0; look < 10; ++look) {
    std::ifstream processes(path + "/cgroup.procs");
    bool is_empty = true;
    for (pid_t pid = 0; processes >> pid;) {
      if (pid > 0) kill(pid, SIGKILL);
      is_empty = false;
    }
    if (is_empty) return;
  }
}

internal::UniqueFd open_group(const std::string& path) {
  return internal::UniqueFd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
}

// The owner may be gone a moment before the others, which then end the group's processes in order.
bool is_looked_after(const std::string& path) {
  const internal::UniqueFd group = open_group(path);
  return group.is_open() && flock(group.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

bool is_old(const std::string& path) {
  constexpr time_t kOldSeconds = 60;
  struct stat status {};
  return stat(path.c_str(), &status) == 0 && time(nullptr) - status.st_mtime > kOldSeconds;
}

void remove_group(const std::string& path) {
  for (const std::string& below : groups_below(path)) remove_group(below);
  for (int look = 0; look < 20; ++look) {
    if (rmdir(path.c_str()) == 0 || errno != EBUSY) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
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
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::vector<std::string> names = split(controllers, ',');
    const bool has_memory = std::find(names.begin(), names.end(), "memory") != names.end();
    if (!has_memory && (!controllers.empty() || is_found)) continue;
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

ControlGroup ControlGroup::make_below_own() {
  ControlGroup made;
  const std::string own = own_group();
  const std::string tag = own_tag();
  if (own.empty() || tag.empty() || !is_delegated(own) || !can_be_divided(own)) return made;
  const std::string path = own + "/" + kPrefix + tag;
  if (mkdir(path.c_str(), 0755) != 0) return made;
  made.folder_.reset(::open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (made.folder_.is_open()) {
    made.path_ = path;
    made.lock_ = open_group(path);
    if (made.lock_.is_open()) (void)flock(made.lock_.get(), LOCK_SH | LOCK_NB);
  } else {
    (void)rmdir(path.c_str());
  }
  return made;
}

void ControlGroup::kill_all() const noexcept {
  if (!exists()) return;
  try {
    kill_group(path_);
  } catch (const std::exception&) {
    // No memory: what is left ends as without a group.
  }
}

void ControlGroup::remove() const noexcept {
  if (!exists()) return;
  try {
    remove_group(path_);
  } catch (const std::exception&) {
    // The next launcher on this host removes it.
  }
}

void end_stale_groups() noexcept {
  try {
    const std::string own = own_group();
    if (own.empty()) return;
    for (const auto& entry : fs::directory_iterator(own)) {
      const std::string name = entry.path().filename();
      if (!name.starts_with(kPrefix)) continue;
      const Owner owner = owner_of(name);
      if (owner == Owner::kGone) {
        if (is_looked_after(entry.path())) continue;
        kill_group(entry.path());
        remove_group(entry.path());
      } else if (owner != Owner::kAlive && is_old(entry.path())) {
        // Of a container, perhaps. Only an empty one goes, and whoever misses it does without.
        (void)rmdir(entry.path().c_str());
      }
    }
  } catch (const std::exception&) {
    // Not ours to read.
  }
}

}  // namespace chainmail::launch
