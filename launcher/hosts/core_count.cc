// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/hosts/core_count.h"

#include <charconv>
#include <memory>
#include <string_view>

#include "base/error.h"
#include "launcher/hosts/command_output.h"
#include "launcher/hosts/host_source.h"
#include "launcher/remote/rsh_command.h"

namespace chainmail::launch {
namespace {

constexpr std::string_view kMark = "chainmail-cores=";
// nproc would count OpenMP's threads instead where these are set. Start-up files may print before.
constexpr const char* kScript =
    "unset OMP_NUM_THREADS OMP_THREAD_LIMIT\n"
    "echo chainmail-cores=`nproc 2>/dev/null || getconf _NPROCESSORS_ONLN`\n"
    "exit\n";
constexpr std::size_t kMostBytes = std::size_t{1} << 20;

[[noreturn]] void refuse(const Host& host, const std::string& reason) {
  throw HostsError("host " + host.name +
                   ":* means all cores of the host, but their number cannot " +
                   "be had: " + reason + "; write it, as in " + host.name + ":8");
}

int cores_in(const Host& host, const CommandOutput& output) {
  const std::size_t mark = output.out.find(kMark);
  if (mark == std::string::npos) {
    const std::string said = output.err.substr(0, output.err.find('\n'));
    refuse(host, "the remote shell " +
                     (output.failure.empty() ? "said nothing of them" : output.failure) +
                     (said.empty() ? "" : " (" + printable(said) + ")"));
  }
  int cores = 0;
  const char* begin = output.out.data() + mark + kMark.size();
  const auto [stop, error] = std::from_chars(begin, output.out.data() + output.out.size(), cores);
  if (error != std::errc() || cores < 1 || cores > kMaxSlotsPerHost) {
    refuse(host, "it says " + in_quotes(output.out.substr(mark)));
  }
  return cores;
}

struct Question {
  Host* host;
  std::unique_ptr<RunningCommand> command;
};

}  // namespace

void count_cores(const std::vector<std::string>& remote_shell, std::vector<Host>& hosts,
                 std::chrono::milliseconds limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  std::vector<Question> questions;
  for (Host& host : hosts) {
    if (!host.all_cores) continue;
    if (is_this_machine(host)) {
      host.slots = localhost_source()->hosts()->hosts.front().slots;
      host.all_cores = false;
      continue;
    }
    try {
      questions.push_back({&host, std::make_unique<RunningCommand>(
                                      remote_shell_command(remote_shell, host), kScript)});
    } catch (const SystemError& error) {
      refuse(host, error.what());
    }
  }
  for (const Question& question : questions) {
    question.host->slots = cores_in(*question.host, question.command->finish(deadline, kMostBytes));
    question.host->all_cores = false;
  }
}

}  // namespace chainmail::launch
