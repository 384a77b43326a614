// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/hosts/core_count.h"

#include <charconv>
#include <deque>
#include <memory>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

#include "base/error.h"
#include "launcher/hosts/command_output.h"
#include "launcher/hosts/host_source.h"
#include "launcher/remote/rsh_command.h"
#include "launcher/remote/start_failure.h"

namespace chainmail::launch {
namespace {

constexpr std::string_view kMark = "chainmail-cores=";
// nproc would count OpenMP's threads instead where these are set. Start-up files may print before.
constexpr const char* kScript =
    "unset OMP_NUM_THREADS OMP_THREAD_LIMIT\n"
    "echo chainmail-cores=`nproc 2>/dev/null || getconf _NPROCESSORS_ONLN`\n"
    "exit\n";
constexpr std::size_t kMostBytes = std::size_t{1} << 20;
// Before a busy host is asked again; the others answer meanwhile.
constexpr std::chrono::milliseconds kPause{300};

// Each takes three open files and, through a jump host, a login there.
constexpr std::size_t kMostAtOnce = 32;

// Why the cores of hosts are not known.
class Unknown {
 public:
  void add(const Host& host, const std::string& reason) {
    if (first_.empty()) {
      first_ = "host " + host.name + ":* means all cores of the host, but their number cannot " +
               "be had: " + reason + "; write it, as in " + host.name + ":8";
      return;
    }
    others_ += (others_.empty() ? "" : ", ") + host.name + ":* (" + reason + ")";
  }
  void throw_if_any() const {
    if (first_.empty()) return;
    throw HostsError(first_ + (others_.empty() ? "" : "; the same for " + others_));
  }

 private:
  std::string first_;
  std::string others_;
};

// Nothing, and the reason added, where they are not told.
std::optional<int> cores_in(const Host& host, const CommandOutput& output, Unknown& unknown) {
  const std::size_t mark = output.out.find(kMark);
  if (mark == std::string::npos) {
    const std::string said = output.err.substr(0, output.err.find('\n'));
    unknown.add(host, "the remote shell " +
                          (output.failure.empty() ? "said nothing of them" : output.failure) +
                          (said.empty() ? "" : " (" + printable(said) + ")"));
    return std::nullopt;
  }
  int cores = 0;
  const char* begin = output.out.data() + mark + kMark.size();
  const auto [stop, error] = std::from_chars(begin, output.out.data() + output.out.size(), cores);
  if (error != std::errc() || cores < 1 || cores > kMaxSlotsPerHost) {
    unknown.add(host, "it says " + in_quotes(output.out.substr(mark)));
    return std::nullopt;
  }
  return cores;
}

struct Question {
  Host* host;
  int tries;
  std::unique_ptr<RunningCommand> command;
};

}  // namespace

void count_cores(const std::vector<std::string>& remote_shell, std::vector<Host>& hosts,
                 std::chrono::milliseconds limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  std::vector<Host*> waiting;
  for (Host& host : hosts) {
    if (!host.all_cores) continue;
    host.all_cores = false;
    if (is_this_machine(host)) {
      host.slots = localhost_source()->hosts()->hosts.front().slots;
    } else {
      waiting.push_back(&host);
    }
  }
  Unknown unknown;
  const auto ask = [&](Host* host, int tries) {
    try {
      return Question{
          host, tries,
          std::make_unique<RunningCommand>(remote_shell_command(remote_shell, *host), kScript)};
    } catch (const SystemError& error) {
      unknown.add(*host, error.what());
      unknown.throw_if_any();
      throw;
    }
  };
  std::deque<Question> asked;
  auto next = waiting.begin();
  while (next != waiting.end() || !asked.empty()) {
    while (next != waiting.end() && asked.size() < kMostAtOnce) asked.push_back(ask(*next++, 1));
    const Question question = std::move(asked.front());
    asked.pop_front();
    const CommandOutput output = question.command->finish(deadline, kMostBytes);
    const bool is_told = output.out.find(kMark) != std::string::npos;
    if (!is_told && question.tries < worthwhile_tries(output.err) &&
        std::chrono::steady_clock::now() + kPause < deadline) {
      std::this_thread::sleep_for(kPause);
      asked.push_back(ask(question.host, question.tries + 1));
    } else if (const auto cores = cores_in(*question.host, output, unknown)) {
      question.host->slots = *cores;
    }
  }
  unknown.throw_if_any();
}

}  // namespace chainmail::launch
