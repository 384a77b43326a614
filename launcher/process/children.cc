// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/process/children.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>
#include <thread>

#include "launcher/process/fork_exec.h"

namespace chainmail::launch {
namespace {

bool is_in_uninterruptible_sleep(pid_t pid) {
  constexpr unsigned long kExiting = 0x4;  // PF_EXITING
  const std::vector<std::string> stat = stat_fields(std::to_string(pid));
  return !stat.empty() && stat.front() == "D" && (flags_in(stat) & kExiting) == 0;
}

}  // namespace

std::string read_file(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<std::string> stat_fields(const std::string& pid) {
  const std::string text = read_file("/proc/" + pid + "/stat");
  const std::size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return {};
  std::istringstream fields(text.substr(name_end + 1));
  return {std::istream_iterator<std::string>(fields), {}};
}

unsigned long flags_in(const std::vector<std::string>& stat) {
  constexpr std::size_t kFlags = 6;
  return stat.size() > kFlags ? std::strtoul(stat[kFlags].c_str(), nullptr, 10) : 0;
}

bool has_ended(pid_t pid) {
  if (pid <= 0) return false;
  const std::vector<std::string> stat = stat_fields(std::to_string(pid));
  if (stat.empty()) return kill(pid, 0) != 0 && errno == ESRCH;
  return stat.front() == "Z" || stat.front() == "X";
}

bool is_at_work(pid_t pid) {
  const std::vector<std::string> stat = stat_fields(std::to_string(pid));
  return !stat.empty() && std::string("RSDI").find(stat.front()) != std::string::npos;
}

void adopt_orphans() { prctl(PR_SET_CHILD_SUBREAPER, 1); }

void reap_orphans() {
  for (const pid_t child : children_of_this_process()) {
    if (!is_own_child(child)) waitpid(child, nullptr, WNOHANG);
  }
}

std::vector<pid_t> children_of_this_process() {
  const std::string own = std::to_string(getpid());
  // Only the main thread makes children; orphans are given to it as well.
  std::ifstream list("/proc/" + own + "/task/" + own + "/children");
  std::vector<pid_t> children;
  for (pid_t child = 0; list >> child;) children.push_back(child);
  return children;
}

std::vector<pid_t> end_all_children(internal::Deadline deadline) {
  while (true) {
    const std::vector<pid_t> children = children_of_this_process();
    for (const pid_t child : children) kill(child, SIGKILL);
    pid_t reaped = 0;
    do {
      reaped = waitpid(-1, nullptr, WNOHANG);
    } while (reaped > 0);
    // The list can miss children while others come and go, and one that died a moment ago may
    // just have handed its own to us; only the kernel's "no child" is certain.
    if (reaped < 0 && errno == ECHILD) return {};
    if (deadline.has_passed()) {
      std::vector<pid_t> left = children_of_this_process();
      std::erase_if(left, [](pid_t pid) { return waitpid(pid, nullptr, WNOHANG) == pid; });
      return left;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

void end_slow_children() {
  const auto last = internal::Deadline::after(std::chrono::seconds(10));
  while (!last.has_passed()) {
    const std::vector<pid_t> left =
        end_all_children(internal::Deadline::after(std::chrono::milliseconds(1000)));
    if (std::all_of(left.begin(), left.end(), [](pid_t pid) { return !why_left(pid).empty(); })) {
      return;
    }
  }
}

std::string why_left(pid_t pid) {
  const std::string text = "process " + std::to_string(pid);
  if (kill(pid, 0) != 0 && errno == EPERM) {
    return text +
           " belongs to another user (a setuid program?) and cannot be ended from here; "
           "root on this host can: kill -9 " +
           std::to_string(pid);
  }
  // One that ends may sleep in the same way, for a moment or two.
  for (int look = 0; look < 3; ++look) {
    if (look > 0) std::this_thread::sleep_for(std::chrono::milliseconds(30));
    if (!is_in_uninterruptible_sleep(pid)) return {};
  }
  return text +
         " is in uninterruptible sleep, mostly for a file system that does not answer, and ends "
         "when it wakes";
}

}  // namespace chainmail::launch
