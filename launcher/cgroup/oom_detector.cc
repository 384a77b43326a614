// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/cgroup/oom_detector.h"

#include <unistd.h>

#include <charconv>
#include <sstream>

#include "launcher/process/children.h"

namespace chainmail::launch {
namespace {

// A limit of this size is none: v1 writes the largest multiple of a page.
constexpr std::int64_t kNoLimit = std::int64_t{1} << 60;

// The number after `name` at the beginning of a line: "oom_kill 3", "MemTotal:   123 kB".
std::int64_t number_after(const std::string& text, const std::string& name) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string first;
    std::int64_t number = 0;
    if (words >> first >> number && first == name) return number;
  }
  return 0;
}

std::int64_t kills_of(const MemoryGroup& group) {
  const char* file = group.is_unified ? "/memory.events" : "/memory.oom_control";
  return group.folder.empty() ? 0 : number_after(read_file(group.folder + file), "oom_kill");
}

struct Limit {
  std::int64_t bytes = kNoLimit;
  std::string group;
};

// The smallest of the group and those above it, which limit it, too.
Limit limit_of(const MemoryGroup& group) {
  Limit limit;
  const char* file = group.is_unified ? "/memory.max" : "/memory.limit_in_bytes";
  std::string name = group.name;
  while (!group.folder.empty()) {
    const std::string text = read_file(group.mount + name + file);
    std::int64_t bytes = kNoLimit;
    // v2 writes "max" where there is none.
    std::from_chars(text.data(), text.data() + text.size(), bytes);
    if (bytes < limit.bytes) limit = {bytes, name.empty() ? "/" : name};
    if (name.empty() || name == "/") break;
    name.erase(name.rfind('/'));
  }
  return limit;
}

std::string mebibytes(std::int64_t kibibytes) { return std::to_string(kibibytes / 1024) + " MiB"; }

}  // namespace

OomDetector::OomDetector() : mounts_(read_file("/proc/self/mountinfo")) { look_at_machine(); }

OomDetector::Seen OomDetector::counters_of(const std::string& process) {
  std::string file = read_file("/proc/" + process + "/cgroup");
  if (file != known_file_) {
    known_group_ = find_memory_group(file, mounts_);
    // A group that was made for processes only has no limits; those above it count.
    std::string& name = known_group_.name;
    while (known_group_.is_unified && name.size() > 1 &&
           access((known_group_.folder + "/memory.events").c_str(), F_OK) != 0) {
      name.erase(name.rfind('/'));
      known_group_.folder = known_group_.mount + name;
    }
    known_file_ = std::move(file);
  }
  return {known_group_, kills_of(known_group_)};
}

void OomDetector::look_at_own_group() { own_ = counters_of("self"); }

void OomDetector::look(pid_t pid) { ranks_[pid] = counters_of(std::to_string(pid)); }

void OomDetector::look_at_machine() {
  machine_kills_ = number_after(read_file("/proc/vmstat"), "oom_kill");
  const std::string memory = read_file("/proc/meminfo");
  available_kib_ = number_after(memory, "MemAvailable:");
  total_kib_ = number_after(memory, "MemTotal:");
}

KillReport OomDetector::explain(pid_t pid, std::int64_t peak_kib) const {
  const std::string used = "it had used up to " + mebibytes(peak_kib);
  const std::string left = mebibytes(available_kib_) + " of the machine's " +
                           mebibytes(total_kib_) + " were free a moment before";
  const auto found = ranks_.find(pid);
  if (found != ranks_.end() && kills_of(found->second.group) > found->second.kills) {
    const Limit limit = limit_of(found->second.group);
    std::string text = used;
    if (limit.bytes < kNoLimit) {
      text +=
          "; its control group " + limit.group + " is limited to " + mebibytes(limit.bytes / 1024);
    }
    return {true, text + "; " + left};
  }
  if (number_after(read_file("/proc/vmstat"), "oom_kill") > machine_kills_) {
    return {true, used + "; " + left};
  }
  return {false,
          "the launcher did not send it, and the kernel counts no out-of-memory kill: somebody "
          "else, the batch system or a memory guard such as earlyoom did; " +
              used + ", " + left};
}

}  // namespace chainmail::launch
