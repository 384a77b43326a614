// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/command_line/parse.h"

#include <algorithm>
#include <utility>

#include "launcher/command_line/elastic.h"
#include "launcher/command_line/flags.h"

namespace chainmail::launch {
namespace {

using Words = std::span<const std::string>;

// Heartbeats come once a second, and one may be late.
constexpr std::chrono::milliseconds kShortestLease{2500};

[[noreturn]] void refuse(const std::string& name, Words arguments) {
  if (const auto advice = foreign_option(name, arguments)) throw UsageError(*advice);
  std::string text = "unknown option '" + arguments.front() + "'";
  const std::string nearest = nearest_flag(name);
  if (!nearest.empty()) text += ", did you mean " + nearest + "?";
  throw UsageError(text + (nearest.empty() ? ";" : "") +
                   " options of the program come after the program's name");
}

// "-n4" as srun has it; the words of it.
std::optional<std::vector<std::string>> split_short_count(const std::string& argument) {
  const std::size_t digits = argument.find_first_of("0123456789");
  const std::string name = argument.substr(0, digits);
  if (digits == std::string::npos || (name != "-n" && name != "-np" && name != "-N")) {
    return std::nullopt;
  }
  return std::vector<std::string>{name, argument.substr(digits)};
}

// One option; how many words it took.
std::size_t read_flag(Words arguments, FlagTarget target) {
  if (const auto split = split_short_count(arguments.front())) {
    FlagWords words(*split);
    find_flag(words.name())->apply(target, words);
    return 1;
  }
  FlagWords words(arguments);
  const Flag* flag = find_flag(words.name());
  if (flag == nullptr) refuse(words.name(), arguments);
  flag->apply(target, words);
  return words.used();
}

// The options of one program, up to its name; what is left begins with the name. True when "--"
// said that nothing more is an option, ':' included.
bool read_flags(Words& arguments, FlagTarget target) {
  while (!arguments.empty()) {
    const std::string& argument = arguments.front();
    if (argument == "--") {
      arguments = arguments.subspan(1);
      return true;
    }
    if (argument.size() < 2 || argument.front() != '-') return false;
    arguments = arguments.subspan(read_flag(arguments, target));
  }
  return false;
}

void check_program(const std::vector<std::string>& program) {
  if (!program.empty() && program.front().empty()) throw UsageError("the program's name is empty");
}

void check_application(const Application& application) {
  if (!application.hosts.empty() && !application.hostfile.empty()) {
    throw UsageError("-H and --hostfile exclude each other; give one of them");
  }
}

// With several programs nobody can guess who gets how many of the slots.
void check_several(const std::vector<Application>& applications) {
  for (const Application& application : applications) {
    if (application.program.empty()) {
      throw UsageError(
          "a program is missing beside ':'; if ':' is an argument of the program, put '--' before "
          "the program's name");
    }
    const bool has_hosts = !application.hosts.empty() || !application.hostfile.empty();
    if (!application.ranks && !application.per_node && !has_hosts) {
      throw UsageError("with ':' every program needs its own number of ranks: -n 1 ./a : -n 3 ./b" +
                       std::string("; ") + application.program.front() + " has none");
    }
  }
}

// The flags are for all ranks: one program that says something else would send in the clear what
// the others seal, or divide a step otherwise.
void set_for_all(Options& options, const std::string& flags, const std::string& name,
                 const std::string& value) {
  std::vector<ExportedVariable> given = options.common_variables;
  for (const Application& application : applications_of(options)) {
    given.insert(given.end(), application.variables.begin(), application.variables.end());
  }
  for (const ExportedVariable& variable : given) {
    if (variable.name != name) continue;
    throw UsageError(flags + " " + name + " for all ranks; leave the option or the variable out");
  }
  options.common_variables.push_back({name, value});
}

// As with timeout(1): none.
void drop_zero_limits(Options& options) {
  for (auto* limit : {&options.timeout, &options.stall_timeout}) {
    if (*limit && limit->value().count() == 0) limit->reset();
  }
}

void check_job_file(const Options& options) {
  const JobFileOptions& job = options.job;
  if (!job.is_on()) {
    if (!job.name && job.sets.empty() && job.mounts.empty() && job.secrets.empty() &&
        !job.is_detached && !job.has_no_wait) {
      return;
    }
    throw UsageError("--name, --set, --mount, --secret, --detach and --no-wait go with --job FILE");
  }
  if (job.has_no_wait && !job.is_detached) throw UsageError("--no-wait goes with --detach");
  if (!options.output_dir.empty()) {
    throw UsageError(
        "--output: what a job of --job prints is in its folder, and where logs.path of "
        "its file says");
  }
  if (!options.elastic.prepare.empty()) {
    throw UsageError(
        "--prepare: jobs of --job have prepare.command, as in --set prepare.command=./prepare.sh");
  }
  if (options.max_restarts > 0) {
    throw UsageError(
        "--max-restarts: jobs of --job have retry.failures and retry.losses, as in "
        "--set retry.failures=3");
  }
}

void check_together(const Options& options) {
  if (options.help || options.help_all || options.version) return;
  const Application& first = options;
  if (!options.host_discovery.empty() && !(first.hosts.empty() && first.hostfile.empty())) {
    throw UsageError("--host-discovery and " +
                     std::string(first.hosts.empty() ? "--hostfile" : "-H") +
                     " exclude each other; give one of them");
  }
  if (options.lease && *options.lease < kShortestLease) {
    throw UsageError("--lease: heartbeats come once a second, and one may be late: 2.5 s at least");
  }
  check_job_file(options);
  if (options.json && !options.dry_run) throw UsageError("--json goes with --dry-run");
  if (!options.more_applications.empty()) return check_several(applications_of(options));
  if (options.program.empty() && !options.dry_run && !options.job.is_on()) {
    throw UsageError("no program given; try: launcher -n 2 ./program");
  }
}

}  // namespace

Options parse_options(std::span<const std::string> arguments) {
  Options options;
  Application* application = &options;
  while (true) {
    const bool is_all_program = read_flags(arguments, {options, *application});
    const auto colon =
        is_all_program ? arguments.end() : std::find(arguments.begin(), arguments.end(), ":");
    application->program.assign(arguments.begin(), colon);
    check_program(application->program);
    check_application(*application);
    if (colon == arguments.end()) break;
    arguments = arguments.subspan(static_cast<std::size_t>(colon - arguments.begin()) + 1);
    application = &options.more_applications.emplace_back();
  }
  options.binding.overload = options.binding.overload || options.oversubscribe;
  drop_zero_limits(options);
  check_together(options);
  complete_elastic(options);
  if (!options.encryption.empty()) {
    set_for_all(options, "--encrypt and --authenticate set", "CHAINMAIL_ENCRYPT",
                options.encryption);
  }
  if (options.shards) {
    set_for_all(options, "--shards sets", "CHAINMAIL_SHARDS", std::to_string(*options.shards));
  }
  return options;
}

std::vector<std::string> split_command(const std::string& text, const std::string& flag) {
  std::vector<std::string> words;
  std::string word;
  bool in_word = false;
  char quote = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quote == 0 && (c == ' ' || c == '\t')) {
      if (in_word) words.push_back(std::exchange(word, {}));
      in_word = false;
      continue;
    }
    in_word = true;
    if (c == quote) {
      quote = 0;
    } else if (quote == 0 && (c == '\'' || c == '"')) {
      quote = c;
    } else if (c == '\\' && quote != '\'' && i + 1 < text.size()) {
      word += text[++i];
    } else {
      word += c;
    }
  }
  if (quote != 0) throw UsageError(flag + " '" + text + "' has a quote that is not closed");
  if (in_word) words.push_back(word);
  if (words.empty()) throw UsageError(flag + " names no command");
  return words;
}

std::vector<std::string> remote_shell_of(const Options& options) {
  const std::string& shell = options.remote_shell;
  std::vector<std::string> words = split_command(shell.empty() ? "ssh" : shell);
  if (options.remote_shell_arguments.empty()) return words;
  if (shell.find("%h") != std::string::npos) {
    throw UsageError("--rsh-args goes before the host, whose place --rsh fixes by '%h'; write '" +
                     options.remote_shell_arguments + "' into --rsh itself");
  }
  const auto more = split_command(options.remote_shell_arguments, "--rsh-args");
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

}  // namespace chainmail::launch
