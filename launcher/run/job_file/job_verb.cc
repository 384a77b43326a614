// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/run/job_file/job_verb.h"

#include <algorithm>
#include <iostream>
#include <iterator>
#include <vector>

#include "launcher/command_line/parse.h"
#include "launcher/command_line/verbs.h"
#include "launcher/job/environment.h"
#include "launcher/job/nearest.h"
#include "launcher/run/job_file/job_options.h"

namespace chainmail::launch {
namespace {

using Arguments = std::span<const std::string>;

constexpr const char* kJobVerb = "job";

[[noreturn]] void refuse_job_verb(const std::string& why) {
  throw UsageError(why + ": launcher job check FILE | convert FILE | schema | export FILE --to " +
                   "slurm|mpijob|trainjob|jobset; a program of that name is ./job");
}

// --to and its value are taken out.
std::string take_target(std::vector<std::string>& words) {
  for (auto word = words.begin(); word != words.end(); ++word) {
    if (word->starts_with("--to=")) {
      const std::string target = word->substr(5);
      words.erase(word);
      return target;
    }
    if (*word == "--to" && std::next(word) != words.end()) {
      const std::string target = *std::next(word);
      words.erase(word, word + 2);
      return target;
    }
  }
  refuse_job_verb("launcher job export needs --to");
}

// The file is the word that is no option's.
Options options_of(const std::string& action, std::vector<std::string> words) {
  if (words.empty() || words.front().starts_with("-")) {
    refuse_job_verb("launcher job " + action + " needs a file before its options");
  }
  words.insert(words.begin(), "--job");
  const Options typed = parse_options(words);
  if (!typed.program.empty()) {
    refuse_job_verb("launcher job " + action + " takes one file, not '" + typed.program.front() +
                    "' as well");
  }
  return typed;
}

void show_warnings(const JobSpec& spec) {
  for (const std::string& warning : spec.warnings) std::cerr << "launcher: " << warning << "\n";
}

JobSpec read_for(const Options& typed, bool is_complete) {
  JobFileSettings settings = job_file_settings(typed.job);
  settings.is_complete = is_complete;
  JobSpec spec = read_job_file(typed.job.file, settings);
  show_warnings(spec);
  return spec;
}

}  // namespace

JobFileSettings job_file_settings(const JobFileOptions& typed) {
  JobFileSettings settings;
  settings.name = typed.name;
  settings.sets = typed.sets;
  settings.mounts = typed.mounts;
  settings.secrets = typed.secrets;
  settings.environment = current_environment();
  const auto config = value_of(settings.environment, "XDG_CONFIG_HOME");
  const auto home = value_of(settings.environment, "HOME");
  if (config) {
    settings.mounts_file = *config + "/chainmail/mounts.json";
  } else if (home) {
    settings.mounts_file = *home + "/.config/chainmail/mounts.json";
  }
  return settings;
}

std::optional<std::string> job_verb_text(Arguments arguments) {
  if (arguments.empty() || arguments.front() != kJobVerb) return std::nullopt;
  if (arguments.size() < 2) refuse_job_verb("launcher job needs to be told what to do");
  const std::string& action = arguments[1];
  const auto asks_for_help = [](const std::string& word) {
    return word == "--help" || word == "-h";
  };
  if (std::any_of(arguments.begin(), arguments.end(), asks_for_help)) {
    return help_of(*find_verb(kJobVerb));
  }
  std::vector<std::string> words(arguments.begin() + 2, arguments.end());
  if (action == "schema") {
    if (!words.empty()) refuse_job_verb("launcher job schema takes nothing more");
    return job_schema();
  }
  if (action == "check") {
    const Options typed = options_of(action, words);
    const JobSpec spec = read_for(typed, true);
    words.insert(words.begin(), "--job");
    (void)job_options(spec, words);  // what the launcher's own options refuse
    return "";
  }
  if (action == "convert") return modern_text(read_for(options_of(action, words), false));
  if (action == "export") {
    const std::string target = take_target(words);
    return export_job(read_for(options_of(action, words), false), target);
  }
  const std::vector<std::string> known = {"check", "convert", "schema", "export"};
  const std::string nearest = nearest_of(action, known);
  refuse_job_verb("launcher job knows no '" + action + "'" +
                  (nearest.empty() ? "" : ", did you mean '" + nearest + "'?"));
}

}  // namespace chainmail::launch
