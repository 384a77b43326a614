// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <iostream>
#include <set>

#include "base/error.h"
#include "launcher/job/environment.h"
#include "launcher/job/exit_code.h"
#include "launcher/jobs/commands/shown_text.h"
#include "launcher/jobs/commands/verb_call.h"
#include "launcher/jobs/folder/job_folder.h"
#include "launcher/remote/rsh_command.h"

namespace chainmail::launch {
namespace {

struct VerbRunner {
  const char* name;
  int (*run)(const VerbCall& call);
};
constexpr VerbRunner kVerbRunners[] = {
    {"ps", run_ps}, {"show", run_show}, {"logs", run_logs}, {"attach", run_attach}, {"ls", run_ls},
    {"cp", run_cp}, {"wait", run_wait}, {"stop", run_stop}, {"rm", run_rm},
};

bool asks_for_help(std::span<const std::string> words) {
  const auto end = std::find(words.begin(), words.end(), "--");
  return std::any_of(words.begin(), end,
                     [](const std::string& word) { return word == "--help" || word == "-h"; });
}

// Who wrote `launcher ls /tmp` may have meant the program.
std::string hint_of_program(const std::string& verb) {
  return is_in_path(verb) ? "; the program " + verb + " is run by: launcher -- " + verb : "";
}

// What a handler may use.
std::array<char, 512> interrupt_text{};
std::size_t interrupt_bytes = 0;

void on_interrupt(int) {
  [[maybe_unused]] const auto written =
      ::write(STDERR_FILENO, interrupt_text.data(), interrupt_bytes);
  _exit(exit_code::kSignalBase + SIGINT);
}

}  // namespace

std::optional<int> run_verb(std::span<const std::string> arguments) {
  if (arguments.empty()) return std::nullopt;
  const std::string& name = arguments.front();
  const auto* const runner =
      std::find_if(std::begin(kVerbRunners), std::end(kVerbRunners),
                   [&name](const VerbRunner& known) { return name == known.name; });
  if (runner == std::end(kVerbRunners)) return std::nullopt;
  const JobVerb& verb = *find_verb(name);
  try {
    if (asks_for_help(arguments.subspan(1))) {
      print_text(help_of(verb));
      return 0;
    }
    const VerbWords words(verb, arguments.subspan(1));
    return runner->run({words, state_root(current_environment())});
  } catch (const UsageError& error) {
    say(error.what() + hint_of_program(name));
    return exit_code::kUsage;
  } catch (const Error& error) {
    // Names in it come from files that programs write.
    say(error.what());
    return exit_code::kLauncherError;
  }
}

FoundJob VerbCall::job(std::size_t index) const { return launch::find_job(root, operand(index)); }

std::vector<FoundJob> VerbCall::jobs() const {
  std::vector<FoundJob> found;
  std::set<std::string> folders;
  for (const std::string& name : words.operands()) {
    FoundJob job = launch::find_job(root, name);
    if (folders.insert(job.folder).second) found.push_back(std::move(job));
  }
  return found;
}

void print_text(const std::string& text) {
  std::cout << text << std::flush;
  if (!std::cout) throw system_error("cannot write standard output");
}

void say(const std::string& message) {
  std::cerr << "launcher: " + shown_text(message) + "\n" << std::flush;
}

int code_of(const JobRecord& record) {
  if (record.phase == JobPhase::kLost) return exit_code::kLauncherError;
  return record.exit_code.value_or(
      record.phase == JobPhase::kSucceeded ? 0 : exit_code::kLauncherError);
}

void check_owner(const std::string& folder, const std::string& id) {
  struct stat status {};
  if (lstat(folder.c_str(), &status) != 0) throw system_error("cannot use " + folder);
  if (status.st_uid == geteuid()) return;
  throw SystemError(id + " is the job of uid " + std::to_string(status.st_uid) + ", in " + folder +
                        ": only that user may do this",
                    EPERM);
}

void exit_on_interrupt(const std::string& message) {
  struct sigaction before {};
  if (sigaction(SIGINT, nullptr, &before) == 0 && before.sa_handler == SIG_IGN) return;
  // Behind the "^C" of a terminal.
  const std::string text = "\nlauncher: " + shown_text(message);
  interrupt_bytes = text.copy(interrupt_text.data(), interrupt_text.size() - 1);
  interrupt_text[interrupt_bytes++] = '\n';
  struct sigaction handler {};
  handler.sa_handler = on_interrupt;
  sigaction(SIGINT, &handler, nullptr);
}

}  // namespace chainmail::launch
