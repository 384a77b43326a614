// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/controller/ending/container_cleanup.h"

#include <algorithm>
#include <chrono>
#include <memory>

#include "base/error.h"
#include "launcher/command_line/parse.h"
#include "launcher/hosts/this_machine.h"
#include "launcher/job/text.h"
#include "launcher/process/command_output.h"
#include "launcher/remote/container_script.h"
#include "launcher/remote/rsh_command.h"

namespace chainmail::launch {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kRemovalTime{10};
// Each takes three open files, and a process.
constexpr std::size_t kMostAtOnce = 64;
constexpr std::size_t kMostOutput = 64 << 10;

struct Removal {
  std::string host;
  std::unique_ptr<RunningCommand> command;
};

Removal begin(const Options& options, const std::string& script, const Host& host) {
  const std::vector<std::string> words = is_this_machine(host)
                                             ? std::vector<std::string>{"/bin/sh"}
                                             : remote_shell_command(remote_shell_of(options), host);
  return {host.name, std::make_unique<RunningCommand>(words, script)};
}

std::string line_about(const Removal& removal) {
  const auto count = whole_number<int>(split(removal.command->output().out, '\n').front());
  if (!count || *count == 0) return "";
  return "launcher: " + std::to_string(*count) +
         (*count == 1 ? " container that was" : " containers that were") + " left on host " +
         removal.host + (*count == 1 ? " has been removed" : " have been removed");
}

}  // namespace

std::vector<std::string> remove_containers(const Options& options, const std::string& label,
                                           const std::vector<Host>& hosts) {
  const std::string script = removal_script(options.container, label);
  const auto end = Clock::now() + kRemovalTime;
  std::vector<std::string> lines;
  std::vector<Removal> running;
  std::size_t next = 0;
  while ((next < hosts.size() || !running.empty()) && Clock::now() < end) {
    while (next < hosts.size() && running.size() < kMostAtOnce) {
      try {
        running.push_back(begin(options, script, hosts[next++]));
      } catch (const SystemError&) {
        // No remote shell can be run: then none has started a container.
      }
    }
    std::erase_if(running, [&lines](const Removal& removal) {
      if (!removal.command->advance(kMostOutput)) return false;
      if (std::string line = line_about(removal); !line.empty()) lines.push_back(std::move(line));
      return true;
    });
    std::vector<RunningCommand*> commands;
    for (const Removal& removal : running) commands.push_back(removal.command.get());
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now());
    if (!commands.empty() && left.count() > 0) RunningCommand::wait_for_any(commands, left);
  }
  return lines;
}

}  // namespace chainmail::launch
