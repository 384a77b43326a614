// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/options.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <utility>

namespace chainmail::launch {
namespace {

constexpr int kMaxRanks = 65536;

int parse_count(const std::string& flag, const std::string& text) {
  int value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (text.empty() || stop != end || error != std::errc() || value < 1 || value > kMaxRanks) {
    throw UsageError(flag + " must be a number from 1 to " + std::to_string(kMaxRanks) + ", not '" +
                     text + "'");
  }
  return value;
}

// "30", "1.5", "90s", "10m", "2h".
std::chrono::milliseconds parse_duration(const std::string& flag, const std::string& text) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  const std::string unit(stop, end);
  double seconds = -1;
  if (unit.empty() || unit == "s") seconds = value;
  if (unit == "m") seconds = value * 60;
  if (unit == "h") seconds = value * 3600;
  constexpr double kYear = 365.0 * 24 * 3600;
  if (text.empty() || error != std::errc() || !std::isfinite(value) || seconds < 0 ||
      seconds > kYear) {
    throw UsageError(flag + " must be a time in seconds such as 30, 1.5, 10m or 2h, not '" + text +
                     "'");
  }
  return std::chrono::milliseconds(std::llround(seconds * 1000));
}

ExportedVariable parse_variable(const std::string& text) {
  const std::size_t equals = text.find('=');
  ExportedVariable variable{text.substr(0, equals), std::nullopt};
  if (equals != std::string::npos) variable.value = text.substr(equals + 1);
  const auto is_name_character = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  };
  if (variable.name.empty() ||
      !std::all_of(variable.name.begin(), variable.name.end(), is_name_character)) {
    throw UsageError("-x wants NAME or NAME=value, not '" + text + "'");
  }
  return variable;
}

MpiMode parse_mpi(const std::string& flag, const std::string& text) {
  if (text == "auto") return MpiMode::kAuto;
  if (text == "pmix") return MpiMode::kPmix;
  if (text == "pmi1") return MpiMode::kPmi1;
  if (text == "none") return MpiMode::kNone;
  throw UsageError(flag + " is auto, pmix (Open MPI), pmi1 (MPICH) or none, not '" + text + "'");
}

struct Flag {
  std::vector<std::string> names;  // without dashes; '_' written as '-'
  bool takes_value = true;
  std::function<void(Options&, const std::string& flag, const std::string& value)> apply;
};

Flag text_flag(std::vector<std::string> names, std::string Options::*member) {
  return {std::move(names), true,
          [member](Options& options, const std::string& flag, const std::string& value) {
            if (value.empty()) throw UsageError(flag + " has an empty value");
            options.*member = value;
          }};
}

Flag switch_flag(std::vector<std::string> names, bool Options::*member) {
  return {std::move(names), false,
          [member](Options& options, const auto&, const auto&) { options.*member = true; }};
}

Flag count_flag(std::vector<std::string> names, std::optional<int> Options::*member) {
  return {std::move(names), true,
          [member](Options& options, const std::string& flag, const std::string& value) {
            options.*member = parse_count(flag, value);
          }};
}

Flag time_flag(std::string name, std::optional<std::chrono::milliseconds> Options::*member) {
  return {{std::move(name)},
          true,
          [member](Options& options, const std::string& flag, const std::string& value) {
            options.*member = parse_duration(flag, value);
          }};
}

std::vector<Flag> known_flags() {
  return {
      text_flag({"H", "host", "hosts"}, &Options::hosts),
      text_flag({"hostfile", "machinefile", "f"}, &Options::hostfile),
      text_flag({"host-discovery", "host-discovery-script"}, &Options::host_discovery),
      text_flag({"include", "i"}, &Options::include),
      text_flag({"exclude", "e"}, &Options::exclude),
      switch_flag({"hostfile-strict"}, &Options::hostfile_strict),
      count_flag({"n", "np"}, &Options::ranks),
      count_flag({"per-node", "N", "npernode", "ppn"}, &Options::per_node),
      {{"x"},
       true,
       [](Options& options, const auto&, const std::string& value) {
         options.variables.push_back(parse_variable(value));
       }},
      {{"mpi"},
       true,
       [](Options& options, const std::string& flag, const std::string& value) {
         options.mpi = parse_mpi(flag, value);
       }},
      text_flag({"rsh"}, &Options::remote_shell),
      text_flag({"output"}, &Options::output_dir),
      time_flag("timeout", &Options::timeout),
      time_flag("grace", &Options::grace),
      switch_flag({"oversubscribe"}, &Options::oversubscribe),
      switch_flag({"tag-output"}, &Options::tag_output),
      switch_flag({"dry-run"}, &Options::dry_run),
      switch_flag({"json"}, &Options::json),
      switch_flag({"torchrun-env"}, &Options::torchrun_env),
      switch_flag({"help", "h"}, &Options::help),
      switch_flag({"version"}, &Options::version),
  };
}

// "--per_node" and "-per-node" are "per-node".
std::string normalised(const std::string& argument, std::size_t name_end) {
  const std::size_t begin = argument.compare(0, 2, "--") == 0 ? 2 : 1;
  std::string name = argument.substr(begin, name_end - begin);
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

const Flag& find_flag(const std::vector<Flag>& flags, const std::string& name,
                      const std::string& argument) {
  for (const Flag& flag : flags) {
    if (std::find(flag.names.begin(), flag.names.end(), name) != flag.names.end()) return flag;
  }
  throw UsageError("unknown option '" + argument +
                   "'; options of the program come after the program's name");
}

void check_together(const Options& options) {
  if (options.help || options.version) return;
  if (!options.hosts.empty() && !options.hostfile.empty()) {
    throw UsageError("-H and --hostfile exclude each other; give one of them");
  }
  if (!options.host_discovery.empty() && !(options.hosts.empty() && options.hostfile.empty())) {
    throw UsageError("--host-discovery and " +
                     std::string(options.hosts.empty() ? "--hostfile" : "-H") +
                     " exclude each other; give one of them");
  }
  if (options.json && !options.dry_run) throw UsageError("--json goes with --dry-run");
  if (options.program.empty() && !options.dry_run) {
    throw UsageError("no program given; try: launcher -n 2 ./program");
  }
}

}  // namespace

Options parse_options(std::span<const std::string> arguments) {
  const std::vector<Flag> flags = known_flags();
  Options options;
  std::size_t i = 0;
  for (; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (argument == "--") {
      ++i;
      break;
    }
    if (argument.size() < 2 || argument.front() != '-') break;
    const std::size_t equals = std::min(argument.find('='), argument.size());
    const Flag& flag = find_flag(flags, normalised(argument, equals), argument);
    const std::string name = argument.substr(0, equals);
    std::string value;
    if (equals < argument.size()) {
      if (!flag.takes_value) throw UsageError(name + " takes no value");
      value = argument.substr(equals + 1);
    } else if (flag.takes_value) {
      if (++i == arguments.size()) throw UsageError(name + " needs a value");
      value = arguments[i];
    }
    flag.apply(options, name, value);
  }
  options.program.assign(arguments.begin() + static_cast<std::ptrdiff_t>(i), arguments.end());
  if (!options.program.empty() && options.program.front().empty()) {
    throw UsageError("the program's name is empty");
  }
  check_together(options);
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

std::string usage_text() {
  return R"(launcher [options] program [arguments]

Starts a program on this machine or on the hosts of a list, one process per rank.

  -H LIST|FILE         hosts: h1:4,h2:4, or a file when the value contains '/' or names one
  --hostfile FILE      hosts from a file: 'name slots=4', one per line
  --host-discovery CMD a program that prints the lines of a hostfile
  --include, --exclude only these hosts and slots, or all but these: h1@h2:0,2
  --hostfile-strict    refuse a hostfile that names a host twice
  -n, -np N            number of ranks (default: one per slot)
  --per-node N         ranks on each host (also -N, -npernode)
  -x NAME[=VALUE]      give a variable to the ranks on other hosts; may be repeated
  --rsh COMMAND        remote shell (default: ssh); '%h' in it stands for the host
  --mpi MODE           how MPI_Init finds its job: auto, pmix, pmi1 or none (default: auto)
  --oversubscribe      allow more ranks than slots
  --tag-output         begin every line with [host/rank]
  --output DIR         also write DIR/rank.<r>/stdout and stderr
  --timeout TIME       end the job after TIME (seconds, or 10m, 2h): exit code 124
  --grace TIME         time between SIGTERM and SIGKILL on a signal (default: 30 s, Ctrl-C 5 s)
  --torchrun-env       also set MASTER_ADDR and MASTER_PORT
  --dry-run [--json]   print the plan and start nothing
  --help, --version

Exit code: 0 if every rank ended with 0, else the code of the first rank that failed (128 + signal
for a signal); 2 bad usage, 124 time limit, 125 launcher's own error, 126 program cannot be run,
127 program not found. docs/launcher.md has the details.
)";
}

}  // namespace chainmail::launch
