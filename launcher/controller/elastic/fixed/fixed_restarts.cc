// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/controller/elastic/fixed/fixed_restarts.h"

#include <algorithm>
#include <filesystem>
#include <stdexcept>
#include <utility>

#include "launcher/files/text_file.h"
#include "launcher/files/watched_folder.h"
#include "launcher/hosts/watched_hosts.h"

namespace chainmail::launch {

std::string FixedRestarts::refusal(bool is_failure, Time begun, Time now) {
  const auto& most = options_.elastic.max_changes;
  if (most && changes_ >= *most) {
    return "no change is left of --max-changes " + std::to_string(*most);
  }
  ++changes_;
  if (!is_failure) return "";
  failures_ = now - begun < kCalm ? failures_ + 1 : 1;
  if (failures_ < kMostFailures) return "";
  return "that was the failure number " + std::to_string(failures_) + " in a row, each within " +
         std::to_string(kCalm.count()) + " minutes";
}

Options FixedRestarts::next_options() const {
  Options next = options_;
  next.elastic.is_fixed = true;
  if (next.elastic.max_changes) *next.elastic.max_changes -= changes_;
  return next;
}

std::string FixedRestarts::words() const {
  return "all ranks are started anew (failure " + std::to_string(failures_) + "; " +
         std::to_string(kMostFailures) + " in a row end the job)";
}

void leave_out(const std::vector<std::string>& names, const membership::SizeRange& sizes,
               std::vector<Host>& hosts) {
  std::vector<Host> others;
  std::uint32_t slots = 0;
  for (const Host& host : hosts) {
    if (std::find(names.begin(), names.end(), host.name) != names.end()) continue;
    others.push_back(host);
    slots += static_cast<std::uint32_t>(host.slots);
  }
  if (sizes.fit(slots) > 0) hosts = std::move(others);
}

HostSet hosts_now(HostSet latest) {
  if (latest.file.empty()) return latest;
  try {
    const auto age = std::filesystem::file_time_type::clock::now() -
                     std::filesystem::last_write_time(latest.file);
    // Somebody may be writing it.
    if (age >= age.zero() && age < WatchedFolder::kSettle) return latest;
    std::string text = read_host_text(latest.file, "hosts file", Pipes::kRefuse);
    std::vector<Host> hosts = parse_watched_hosts(text, latest.file);
    if (hosts.empty()) return latest;
    latest.hosts = std::move(hosts);
    latest.text = std::move(text);
  } catch (const std::runtime_error&) {
    // Whoever watches the file says so.
  }
  return latest;
}

}  // namespace chainmail::launch
