// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/process/owner_tag.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <vector>

#include "launcher/job/text.h"
#include "launcher/process/children.h"

namespace chainmail::launch {
namespace {

// Begins every tag: what others have called "chainmail-" with numbers behind is theirs.
constexpr std::string_view kMark = "owner";
constexpr std::size_t kBootDigits = 8;

struct Tag {
  std::string boot;
  std::string pid_namespace;
  std::string pid;
  std::string start;
};

bool is_number(std::string_view text) {
  return !text.empty() && text.size() < 21 &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

bool is_boot(std::string_view text) {
  return text.size() == kBootDigits && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

std::string boot_of_this_machine() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  file >> id;
  return id.substr(0, kBootDigits);
}

// "pid:[4026531836]"
std::string own_pid_namespace() {
  std::array<char, 64> text{};
  const ssize_t length = readlink("/proc/self/ns/pid", text.data(), text.size() - 1);
  if (length <= 0) return {};
  const std::string_view name(text.data(), static_cast<std::size_t>(length));
  const std::size_t open = name.find('[');
  const std::size_t close = name.find(']');
  if (open == std::string_view::npos || close == std::string_view::npos) return {};
  return std::string(name.substr(open + 1, close - open - 1));
}

struct Process {
  bool has_ended = false;            ///< or only waits to be reaped
  std::optional<std::string> start;  ///< in ticks since the boot; nothing where it is hidden
};

Process look_at(const std::string& pid) {
  constexpr std::size_t kStart = 19;
  const std::vector<std::string> stat = stat_fields(pid);
  if (stat.empty()) {
    // Mounted with hidepid, /proc hides processes that must not be traced: ours, which know the
    // job's secret.
    const auto number = static_cast<pid_t>(std::strtol(pid.c_str(), nullptr, 10));
    return {number > 0 && kill(number, 0) != 0 && errno == ESRCH, std::nullopt};
  }
  if (stat.size() <= kStart) return {};
  return {stat[0] == "Z" || stat[0] == "X", stat[kStart]};
}

// False where /proc is that of another namespace.
bool is_proc_ours() {
  std::array<char, 32> text{};
  const ssize_t length = readlink("/proc/self", text.data(), text.size() - 1);
  return length > 0 && std::to_string(getpid()) == text.data();
}

std::optional<Tag> parse(std::string_view name) {
  for (const std::string& part : split(name, '.')) {
    const std::vector<std::string> fields = split(part, '-');
    if (fields.size() == 5 && fields[0] == kMark && is_boot(fields[1]) &&
        std::all_of(fields.begin() + 2, fields.end(), is_number)) {
      return Tag{fields[1], fields[2], fields[3], fields[4]};
    }
  }
  return std::nullopt;
}

}  // namespace

std::string own_tag() {
  const std::string pid = std::to_string(getpid());
  const std::string boot = boot_of_this_machine();
  const std::string pid_namespace = own_pid_namespace();
  if (boot.size() != kBootDigits || pid_namespace.empty() || !is_proc_ours()) return {};
  const auto start = look_at(pid).start;
  if (!start) return {};
  return std::string(kMark) + "-" + boot + "-" + pid_namespace + "-" + pid + "-" + *start;
}

Owner owner_of(std::string_view name) {
  const auto tag = parse(name);
  const std::string boot = boot_of_this_machine();
  if (!tag || boot.size() != kBootDigits) return Owner::kUnknown;
  if (tag->boot != boot) return Owner::kEarlierBoot;
  if (tag->pid_namespace != own_pid_namespace() || !is_proc_ours()) return Owner::kUnknown;
  const Process process = look_at(tag->pid);
  if (process.has_ended) return Owner::kGone;
  if (!process.start) return Owner::kUnknown;
  return *process.start == tag->start ? Owner::kAlive : Owner::kGone;
}

}  // namespace chainmail::launch
