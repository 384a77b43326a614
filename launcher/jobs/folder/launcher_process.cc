// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/jobs/folder/launcher_process.h"

#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <limits>
#include <vector>

#include "base/unique_fd.h"
#include "launcher/hosts/this_machine.h"
#include "launcher/job/text.h"
#include "launcher/process/children.h"

namespace chainmail::launch {
namespace {

std::string own_boot_id() {
  std::string text = read_file("/proc/sys/kernel/random/boot_id");
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

// In ticks since the boot; 0 of a process that has ended, and of one that is nobody's any more.
std::uint64_t start_time_of(pid_t pid) {
  constexpr std::size_t kStartTime = 19;  // among the fields behind the name
  const std::vector<std::string> stat = stat_fields(std::to_string(pid));
  if (stat.size() <= kStartTime || stat.front() == "Z" || stat.front() == "X") return 0;
  return whole_number<std::uint64_t>(stat[kStartTime]).value_or(0);
}

bool is_running_here(const JobRecord::Launcher& launcher) {
  if (launcher.pid <= 0 || launcher.pid > std::numeric_limits<pid_t>::max()) return false;
  const std::uint64_t start_time = start_time_of(static_cast<pid_t>(launcher.pid));
  return start_time != 0 && start_time == launcher.start_time;
}

bool is_of_this_boot(const JobRecord::Launcher& launcher) {
  return !launcher.boot_id.empty() && launcher.boot_id == own_boot_id();
}

}  // namespace

JobRecord::Launcher this_launcher() {
  return {own_host_name(), own_boot_id(), getpid(), start_time_of(getpid())};
}

LauncherTrace trace_of(const JobRecord::Launcher& launcher) {
  if (is_of_this_boot(launcher)) {
    return is_running_here(launcher) ? LauncherTrace::kAlive : LauncherTrace::kGone;
  }
  // Two machines may have one name; what is said of them then is true of neither less than of both.
  return launcher.host == own_host_name() ? LauncherTrace::kRebooted : LauncherTrace::kElsewhere;
}

bool signal_launcher(const JobRecord::Launcher& launcher, int number) {
  if (!is_of_this_boot(launcher)) return false;
  const auto pid = static_cast<pid_t>(launcher.pid);
  // What it stands for does not change, whatever the number comes to stand for.
  const internal::UniqueFd process(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (!is_running_here(launcher)) return false;
  if (process.is_open()) {
    return syscall(SYS_pidfd_send_signal, process.get(), number, nullptr, 0) == 0;
  }
  return kill(pid, number) == 0;
}

}  // namespace chainmail::launch
