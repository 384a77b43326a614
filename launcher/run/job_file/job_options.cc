// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/run/job_file/job_options.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "launcher/command_line/parse.h"
#include "launcher/job/expansion.h"
#include "launcher/remote/container_script.h"
#include "launcher/run/job_file/job_variables.h"

namespace chainmail::launch {
namespace {

using Milliseconds = std::chrono::milliseconds;

void add_time(std::vector<std::string>& words, const char* flag,
              const std::optional<Milliseconds>& time) {
  if (!time) return;
  const std::string digits = std::to_string(time->count() % 1000 + 1000).substr(1);
  words.insert(words.end(), {flag, std::to_string(time->count() / 1000) + "." + digits});
}

template <typename Number>
void add_number(std::vector<std::string>& words, const char* flag,
                const std::optional<Number>& number) {
  if (number) words.insert(words.end(), {flag, std::to_string(*number)});
}

}  // namespace

std::vector<std::string> option_words(const JobSpec& spec, const Options& typed) {
  std::vector<std::string> words;
  const bool names_hosts =
      !typed.hosts.empty() || !typed.hostfile.empty() || !typed.host_discovery.empty();
  if (!names_hosts && !spec.hosts.from.empty()) {
    words.insert(words.end(), {"-H", spec.hosts.from});
  }
  add_number(words, "-n", spec.ranks);
  add_number(words, "--per-node", spec.per_node);
  if (spec.elastic.max > 0) {
    words.insert(words.end(), {"--elastic", std::to_string(spec.elastic.min) + ":" +
                                                std::to_string(spec.elastic.max)});
  }
  add_time(words, "--timeout", spec.limits.time);
  add_time(words, "--stall-timeout", spec.limits.stall);
  add_time(words, "--grace", spec.limits.grace);
  if (spec.logs.tag) words.push_back("--tag-output");
  for (const JobSpec::Option& option : spec.options) {
    words.push_back("--" + option.flag);
    if (option.value) words.push_back(*option.value);
  }
  return words;
}

namespace {

// An agent of an elastic job comes for each change, and one more prepares its host: what one of
// them makes, the others have not.
void check_elastic(const JobSpec& spec, const Options& options) {
  if (!options.elastic.is_on()) return;
  if (!spec.mounts.empty()) {
    throw UsageError(
        "mounts: hosts of an elastic job have no folder of links; name the folders themselves in "
        "inputs, outputs and environment");
  }
  if (!spec.container.image.empty()) {
    throw UsageError("container: an elastic job cannot run in containers yet");
  }
  for (const std::string& name : absent_in_elastic_jobs(spec)) {
    if (!mentions(spec, name)) continue;
    throw UsageError("an elastic job has no $" + name + ", which this one uses" +
                     (name.ends_with("STDOUTERR_DIR") ? "; logs.path would give it one" : ""));
  }
}

// What the start would refuse.
void check_container_of(const JobSpec& spec, const std::string& directory) {
  const Container container =
      container_of(spec, places_of(spec, "/JOB", "UUID"), "UUID", directory);
  if (!container.is_on()) return;
  check_container(container);
  if (container.engine != "apptainer") return;
  for (const std::string& mount : container.mounts) {
    if (mount.find(',') == std::string::npos) continue;
    throw UsageError("container: apptainer would take the ',' in '" + mount +
                     "' for the end of a mount");
  }
}

}  // namespace

Options job_options(const JobSpec& spec, std::span<const std::string> arguments) {
  const Options typed = parse_options(arguments);
  std::vector<std::string> words = option_words(spec, typed);
  words.insert(words.end(), arguments.begin(), arguments.end());
  Options options = parse_options(words);
  options.program = job_program(spec);
  options.working_directory =
      options.working_directory.empty() ? spec.directory : as_pattern(options.working_directory);
  check_elastic(spec, options);
  check_container_of(spec, options.working_directory);
  return options;
}

void complete_for_hosts(const JobSpec& spec, const JobPlaces& places,
                        const std::vector<Host>& hosts, Options& options) {
  const bool is_elastic = options.elastic.is_on();
  // Those of the file are patterns, and those that were typed mean what they say.
  const std::vector<ExportedVariable> typed =
      std::exchange(options.variables, job_variables(spec, places, hosts, is_elastic));
  for (ExportedVariable variable : typed) {
    std::erase_if(options.variables,
                  [&variable](const auto& other) { return other.name == variable.name; });
    if (variable.value) variable.value = as_pattern(*variable.value);
    options.variables.push_back(std::move(variable));
  }
  for (const JobSpec::Secret& secret : spec.secrets) {
    options.hidden.push_back({secret.name, secret.value});
  }
  options.expands = true;
  options.has_job_temp = true;
  options.torchrun_env = options.torchrun_env || mentions(spec, kPytorchInitMethod);
  Preparation& preparation = options.preparation;
  preparation.words = preparation_words(spec, places, hosts, options.working_directory, is_elastic);
  preparation.directory = "/";
  if (!is_elastic) {
    preparation.first_words = first_words(spec, places);
    preparation.timeout = spec.prepare.timeout;
    return;
  }
  // The gate is there for them; what runs in it stands in the preparation.
  if (!spec.inputs.empty() || !spec.prepare.command.empty()) options.elastic.prepare = "/bin/sh";
  if (!spec.prepare.timeout) return;
  const bool has_limit = spec.prepare.timeout->count() > 0;
  options.elastic.prepare_timeout =
      has_limit ? *spec.prepare.timeout : std::chrono::hours(24 * 365);
}

Options with_hidden_secrets(const JobSpec& spec, Options options) {
  const auto is_secret = [&spec](const ExportedVariable& variable) {
    return std::any_of(
        spec.secrets.begin(), spec.secrets.end(),
        [&variable](const JobSpec::Secret& secret) { return secret.name == variable.name; });
  };
  for (auto* variables : {&options.variables, &options.common_variables}) {
    for (ExportedVariable& variable : *variables) {
      if (is_secret(variable)) variable.value = "[" + variable.name + "]";
    }
  }
  return options;
}

Container container_of(const JobSpec& spec, const JobPlaces& places, const std::string& uuid,
                       const std::string& directory) {
  Container container;
  if (spec.container.image.empty()) return container;
  container.engine = spec.container.engine;
  container.image = spec.container.image;
  container.gpus = spec.container.gpus;
  container.shm_size = spec.container.shm_size;
  container.name_prefix = "chainmail-" + uuid;
  container.label = "chainmail.job=" + uuid;
  container.mounts = spec.container.mounts;
  std::vector<std::string> folders;
  // The job's own folder need not be on every host.
  if (!spec.logs.path.empty()) folders.push_back(places.stdouterr);
  if (names_in(directory).empty()) folders.push_back(expanded(directory, Environment()));
  for (const auto* some : {&places.inputs, &places.outputs}) {
    for (const JobSpec::Folder& folder : *some) folders.push_back(folder.path);
  }
  for (const JobSpec::Mount& mount : spec.mounts) folders.push_back(mount.folder);
  for (const std::string& folder : folders) {
    const std::string mount = folder + ":" + folder;
    const auto is_there = [&folder](const std::string& other) {
      return other.find(":" + folder + ":") != std::string::npos || other.ends_with(":" + folder);
    };
    if (std::none_of(container.mounts.begin(), container.mounts.end(), is_there)) {
      container.mounts.push_back(mount);
    }
  }
  return container;
}

}  // namespace chainmail::launch
