// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/command_line/verbs.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

#include "launcher/job/nearest.h"
#include "launcher/job/options.h"

namespace chainmail::launch {
namespace {

constexpr std::size_t kMany = std::numeric_limits<std::size_t>::max();

const VerbOption kJson = {{"--json"}, "", "print JSON"};

std::vector<JobVerb> looking_verbs() {
  return {
      {"ps",
       "",
       "list jobs that run, and those that were lost",
       {{{"-a", "--all"}, "", "list those that have ended as well"},
        {{"-q", "--quiet"}, "", "print their ids alone"},
        kJson},
       0,
       0},
      {"show", "JOB", "print all that is known of a job", {kJson}, 1, 1},
      {"logs",
       "JOB",
       "print what the ranks of a job have printed",
       {{{"-f", "--follow"}, "", "go on with what they print, until the job has ended"},
        {{"-n", "--lines"}, "N", "begin with the last N lines of what there is"},
        {{"--stderr"}, "", "their standard error instead of their standard output"},
        {{"--rank"}, "R", "that of one rank alone"},
        {{"--prepare"}, "", "what the preparation of the hosts has printed"},
        {{"--events"}, "", "what has happened to the job, a line of JSON each"}},
       1,
       1},
      {"attach", "JOB", "print a job's output as it comes, and exit with its code", {}, 1, 1},
      {"ls",
       "JOB [ID [PATH]]",
       "list the outputs of a job, or the files of one of them",
       {{{"-l"}, "", "with sizes, and how old they are"}, kJson},
       1,
       3},
      {"cp",
       "JOB ID:PATH DEST",
       "copy a file or folder of an output, also from the launcher's host",
       {},
       3,
       3},
  };
}

std::vector<JobVerb> ending_verbs() {
  return {
      {"wait",
       "JOB...",
       "wait for the end of jobs, and exit with the code of the first that failed",
       {{{"--timeout"}, "TIME", "wait no longer, and exit with 124 then; 0: look once"}},
       1,
       kMany},
      {"stop",
       "JOB...",
       "end jobs, and wait for that: SIGTERM, --grace, SIGKILL",
       {{{"--now"}, "", "without waiting for --grace"}},
       1,
       kMany},
      {"rm",
       "JOB...",
       "remove jobs that have ended",
       {{{"--outputs"}, "", "remove the folders of their outputs and logs as well"}},
       1,
       kMany},
  };
}

std::vector<JobVerb> file_verbs() {
  return {
      {"job",
       "check|convert|schema|export [FILE]",
       "check a job file; print it in another form, or the form's JSON Schema",
       {{{"--to"}, "SYSTEM", "of export: slurm, mpijob, trainjob or jobset"},
        {{"--mount"}, "NAME=DIR", "and --name, --set, --secret, as with --job"}},
       1,
       2},
  };
}

std::vector<JobVerb> elastic_verbs() {
  return {
      {"status", "[JOB]", "tell what elastic jobs of this machine do", {kJson}, 0, 1, true},
      {"add", "JOB HOST...", "give an elastic job hosts", {}, 2, kMany, true},
      {"drain", "JOB HOST...", "take hosts from an elastic job", {}, 2, kMany, true},
  };
}

std::vector<JobVerb> all_verbs() {
  std::vector<JobVerb> verbs = looking_verbs();
  for (auto* const make : {&ending_verbs, &file_verbs, &elastic_verbs}) {
    std::vector<JobVerb> more = make();
    std::move(more.begin(), more.end(), std::back_inserter(verbs));
  }
  return verbs;
}

}  // namespace

const std::vector<JobVerb>& job_verbs() {
  static const std::vector<JobVerb> verbs = all_verbs();
  return verbs;
}

const JobVerb* find_verb(const std::string& name) {
  for (const JobVerb& verb : job_verbs()) {
    if (verb.name == name) return &verb;
  }
  return nullptr;
}

std::string synopsis_of(const JobVerb& verb) {
  std::string text = verb.name;
  for (const VerbOption& option : verb.options) {
    text += " [" + option.names.front() + (option.value.empty() ? "]" : " " + option.value + "]");
  }
  return verb.operands.empty() ? text : text + " " + verb.operands;
}

std::string help_of(const JobVerb& verb) {
  constexpr std::size_t kHelpColumn = 20;
  std::string text = "launcher " + synopsis_of(verb) + "\n\n" + verb.help + "\n";
  for (const char* before = "\n"; const VerbOption& option : verb.options) {
    std::string line = "  ";
    for (const char* between = ""; const std::string& name : option.names) {
      line += std::exchange(between, ", ") + name;
    }
    if (!option.value.empty()) line += " " + option.value;
    line.append(line.size() < kHelpColumn ? kHelpColumn - line.size() : 2, ' ');
    text += std::exchange(before, "") + line + option.help + "\n";
  }
  if (verb.operands.find("JOB") == std::string::npos || verb.is_elastic) return text;
  return text + "\nJOB: " + kWhatJobIs + "\n";
}

VerbWords::VerbWords(const JobVerb& verb, std::span<const std::string> arguments) : verb_(verb) {
  for (bool are_options = true; !arguments.empty();) {
    const std::string& word = arguments.front();
    arguments = arguments.subspan(1);
    if (are_options && word == "--") {
      are_options = false;
    } else if (are_options && word.starts_with("--")) {
      read_long(word, arguments);
    } else if (are_options && word.size() > 1 && word.front() == '-') {
      read_short(word, arguments);
    } else {
      operands_.push_back(word);
    }
  }
  if (operands_.size() < verb.least_operands) refuse("something is missing");
  if (operands_.size() > verb.most_operands) {
    refuse("'" + operands_[verb.most_operands] + "' is too much");
  }
}

std::optional<std::string> VerbWords::value_of(const std::string& option) const {
  const auto found = options_.find(option);
  return found == options_.end() ? std::nullopt : std::optional(found->second);
}

void VerbWords::read_long(const std::string& word, std::span<const std::string>& rest) {
  const std::size_t equals = word.find('=');
  std::string name = word.substr(0, equals);
  std::replace(name.begin(), name.end(), '_', '-');
  const VerbOption* const option = find(name);
  if (option == nullptr) {
    std::vector<std::string> known;
    for (const VerbOption& one : verb_.options) {
      known.insert(known.end(), one.names.begin(), one.names.end());
    }
    const std::string nearest = nearest_of(name, known);
    refuse("unknown option '" + name +
           (nearest.empty() ? "'" : "', did you mean " + nearest + "?"));
  }
  take(*option, equals == std::string::npos ? std::nullopt : std::optional(word.substr(equals + 1)),
       rest);
}

// "-aq", "-n5"; "-json", too, as options of the launcher may be written.
void VerbWords::read_short(const std::string& word, std::span<const std::string>& rest) {
  if (find("-" + word.substr(0, word.find('='))) != nullptr) return read_long("-" + word, rest);
  for (std::size_t at = 1; at < word.size(); ++at) {
    const std::string name = std::string("-") + word[at];
    const VerbOption* const option = find(name);
    if (option == nullptr) refuse("unknown option '" + name + "'");
    const bool has_more = at + 1 < word.size();
    if (option->value.empty() || !has_more) {
      take(*option, std::nullopt, rest);
      continue;
    }
    return take(*option, word.substr(at + 1), rest);
  }
}

void VerbWords::take(const VerbOption& option, std::optional<std::string> inline_value,
                     std::span<const std::string>& rest) {
  const std::string& name = option.names.front();
  if (option.value.empty()) {
    if (inline_value) refuse(name + " takes no value");
    options_[name] = "";
    return;
  }
  if (!inline_value) {
    if (rest.empty()) refuse(name + " needs a value");
    inline_value = rest.front();
    rest = rest.subspan(1);
  }
  options_[name] = *inline_value;
}

const VerbOption* VerbWords::find(const std::string& name) const {
  for (const VerbOption& option : verb_.options) {
    if (std::find(option.names.begin(), option.names.end(), name) != option.names.end()) {
      return &option;
    }
  }
  return nullptr;
}

void VerbWords::refuse(const std::string& why) const {
  throw UsageError("launcher " + verb_.name + ": " + why + "; usage: launcher " +
                   synopsis_of(verb_));
}

}  // namespace chainmail::launch
