// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/hosts/host_discovery.h"

#include <sstream>

#include "base/error.h"
#include "launcher/hosts/command_output.h"

namespace chainmail::launch {
namespace {

class DiscoverySource final : public HostSource {
 public:
  DiscoverySource(std::vector<std::string> command, HostfileRules rules,
                  std::chrono::milliseconds limit)
      : command_(std::move(command)), rules_(rules), limit_(limit) {}

  std::optional<HostSet> hosts() const override {
    const CommandOutput output = run();
    if (!output.failure.empty()) throw failure(output);
    HostSet set;
    set.source = "host discovery by " + command_.front();
    set.hosts = parse_hostfile(output.out, "output of " + command_.front(), rules_);
    return set;
  }

 private:
  HostsError failure(const CommandOutput& output) const {
    std::string message = "--host-discovery " + command_.front() + " " + output.failure +
                          "; it must print lines such as 'node1 slots=4' and exit with 0 within " +
                          std::to_string(limit_.count()) + " ms";
    std::istringstream lines(output.err.empty() ? output.out : output.err);
    int count = 0;
    for (std::string line; std::getline(lines, line) && count < 10; ++count) {
      message += "\n  | " + printable(line);
    }
    return HostsError(message);
  }

  CommandOutput run() const {
    try {
      return RunningCommand(command_, "")
          .finish(std::chrono::steady_clock::now() + limit_, kMaxHostTextBytes);
    } catch (const SystemError& error) {
      throw HostsError("--host-discovery: " + std::string(error.what()) +
                       "; it must be executable, and its first line name an interpreter");
    }
  }

  std::vector<std::string> command_;
  HostfileRules rules_;
  std::chrono::milliseconds limit_;
};

}  // namespace

std::unique_ptr<HostSource> discovery_source(std::vector<std::string> command,
                                             const HostfileRules& rules,
                                             std::chrono::milliseconds limit) {
  return std::make_unique<DiscoverySource>(std::move(command), rules, limit);
}

}  // namespace chainmail::launch
