// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/allocation/core_count.h"

#include <algorithm>
#include <charconv>
#include <deque>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "launcher/hosts/host_text.h"
#include "launcher/hosts/this_machine.h"
#include "launcher/process/command_output.h"
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
  /// `host` is one of those that count_cores() was given.
  void add(const Host& host, std::string reason) { reasons_[&host] = std::move(reason); }
  void throw_if_any() const {
    if (reasons_.empty()) return;
    const auto& [first, reason] = *reasons_.begin();
    std::string text = "host " + first->name + ":* means all cores of the host, but their number " +
                       "cannot be had: " + reason + "; write it, as in " + first->name + ":8";
    const char* separator = "; the same for ";
    for (auto other = std::next(reasons_.begin()); other != reasons_.end(); ++other) {
      text += separator + other->first->name + ":* (" + other->second + ")";
      separator = ", ";
    }
    throw HostsError(text);
  }

 private:
  std::map<const Host*, std::string> reasons_;  // in the order of the hosts, whoever failed first
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

// Of all hosts at once, some after the other: one that hangs keeps nobody waiting.
class Questions {
 public:
  using Clock = std::chrono::steady_clock;

  Questions(const std::vector<std::string>& remote_shell, std::chrono::milliseconds limit)
      : remote_shell_(remote_shell), limit_(limit) {}

  void add(Host& host) { waiting_.push_back({&host, 1, Clock::now()}); }
  /// Gives all hosts their slots; throws HostsError for those that do not tell.
  void ask() {
    end_ = Clock::now() + 2 * limit_;
    while (!waiting_.empty() || !asked_.empty()) {
      ask_next();
      take_answers();
      wait();
    }
    unknown_.throw_if_any();
  }

 private:
  struct Waiting {
    Host* host;
    int tries;
    Clock::time_point begin;  ///< not before
  };
  struct Asked {
    Waiting question;
    Clock::time_point deadline;
    std::unique_ptr<RunningCommand> command;
  };

  void ask_next() {
    while (!waiting_.empty() && asked_.size() < kMostAtOnce &&
           waiting_.front().begin <= Clock::now()) {
      const Waiting next = waiting_.front();
      waiting_.pop_front();
      if (Clock::now() >= end_) {
        unknown_.add(*next.host, "others took the time");
        continue;
      }
      try {
        asked_.push_back({next, std::min(Clock::now() + limit_, end_),
                          std::make_unique<RunningCommand>(
                              remote_shell_command(remote_shell_, *next.host), kScript)});
      } catch (const SystemError& error) {
        unknown_.add(*next.host, error.what());
        unknown_.throw_if_any();
      }
    }
  }

  void take_answers() {
    std::erase_if(asked_, [this](Asked& asked) {
      if (!asked.command->advance(kMostBytes)) {
        if (Clock::now() < asked.deadline) return false;
        asked.command->give_up();
      }
      take(asked.question, asked.command->output());
      return true;
    });
  }

  void take(const Waiting& question, const CommandOutput& output) {
    const bool is_told = output.out.find(kMark) != std::string::npos;
    if (!is_told && question.tries < worthwhile_tries(output.err)) {
      waiting_.push_back({question.host, question.tries + 1, Clock::now() + kPause});
    } else if (const auto cores = cores_in(*question.host, output, unknown_)) {
      question.host->slots = *cores;
    }
  }

  void wait() const {
    auto until = Clock::now() + limit_;
    std::vector<RunningCommand*> commands;
    for (const Asked& asked : asked_) {
      commands.push_back(asked.command.get());
      until = std::min(until, asked.deadline);
    }
    if (!waiting_.empty() && asked_.size() < kMostAtOnce) {
      until = std::min(until, waiting_.front().begin);
    } else if (asked_.empty()) {
      return;
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now());
    RunningCommand::wait_for_any(commands, std::max(left, std::chrono::milliseconds(0)));
  }

  const std::vector<std::string>& remote_shell_;
  const std::chrono::milliseconds limit_;  // of each; all together have twice as long
  Clock::time_point end_;
  std::deque<Waiting> waiting_;
  std::vector<Asked> asked_;
  Unknown unknown_;
};

}  // namespace

void count_cores(const std::vector<std::string>& remote_shell, std::vector<Host>& hosts,
                 std::chrono::milliseconds limit) {
  Questions questions(remote_shell, limit);
  for (Host& host : hosts) {
    if (!host.all_cores) continue;
    host.all_cores = false;
    if (is_this_machine(host)) {
      host.slots = usable_processors();
    } else {
      questions.add(host);
    }
  }
  questions.ask();
}

}  // namespace chainmail::launch
