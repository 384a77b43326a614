// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/jobs/file/export/shell_job.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "launcher/job/expansion.h"
#include "launcher/jobs/file/text/durations.h"
#include "launcher/jobs/file/text/shell_words.h"

namespace chainmail::launch {
namespace {

constexpr std::array<std::string_view, 4> kOnlyHere = {
    "AZ_BATCHAI_MPI_HOST_FILE", "AZ_BATCHAI_NUM_GPUS", "AZ_BATCHAI_WORKER_HOSTS",
    "AZ_BATCHAI_PYTORCH_INIT_METHOD"};
constexpr const char* kSegment = "\"/$segment\"";

// All names of variables in what ranks and preparations see.
std::vector<std::string> used_names(const JobSpec& spec) {
  std::vector<std::string> names;
  const auto add_line = [&](std::string_view line) {
    for (const NamedVariable& variable : shell_variables(line)) names.push_back(variable.name);
  };
  for (const std::string& word : spec.program) {
    for (const std::string& name : names_in(word)) names.push_back(variable_of(name));
  }
  if (spec.program.size() > 2) add_line(expanded(spec.program[2], Environment()));
  add_line(spec.prepare.command);
  for (const JobSpec::Variable& variable : spec.environment) {
    if (!variable.value) continue;
    for (const std::string& name : names_in(*variable.value)) names.push_back(variable_of(name));
  }
  return names;
}

std::string exported(const std::string& name, const std::string& word) {
  return "export " + name + "=" + word + "\n";
}

// The launcher's options, but for the ranks'.
std::string option_words(const JobSpec& spec) {
  std::string words;
  if (spec.limits.stall) words += " --stall-timeout " + duration_text(*spec.limits.stall);
  if (spec.limits.grace) words += " --grace " + duration_text(*spec.limits.grace);
  if (spec.retry.failures > 0) words += " --max-restarts " + std::to_string(spec.retry.failures);
  if (spec.logs.tag) words += " --tag-output";
  for (const JobSpec::Option& option : spec.options) {
    words += " --" + option.flag + (option.value ? "=" + shell_word(*option.value) : "");
  }
  return words;
}

// "/data" + "jobs/NAME/ID" + "models" as one word of sh.
std::string folder_word(const JobSpec::Folder& output) {
  const std::string suffix = output.suffix.empty() ? "" : "/" + shell_word(output.suffix);
  return shell_word_of_pattern(output.path) + kSegment + suffix;
}

std::string logs_pattern(const JobSpec& spec) {
  return spec.logs.path.empty() ? spec.directory : spec.logs.path;
}

// What each host has for itself; a launcher's ranks find it there by themselves.
std::string host_lines(const JobSpec& spec, const ShellJobTarget& target) {
  return exported("AZ_BATCHAI_TASK_INDEX", "\"" + target.node_index + "\"") +
         exported("AZ_BATCHAI_JOB_TEMP",
                  "\"${TMPDIR:-/tmp}/" + spec.name + "-${AZ_BATCHAI_STDOUTERR_DIR##*/}\"") +
         exported("AZ_BATCHAI_JOB_TEMP_DIR", "\"$AZ_BATCHAI_JOB_TEMP\"") +
         "mkdir -p -m 700 \"$AZ_BATCHAI_JOB_TEMP\"\n";
}

std::string program_words(const JobSpec& spec) {
  std::string words;
  for (const std::string& word : spec.program) words += " " + shell_word_of_pattern(word);
  return words;
}

bool needs_host(const JobSpec& spec) {
  const std::vector<std::string> names = used_names(spec);
  const bool has_names =
      std::any_of(spec.program.begin(), spec.program.end(),
                  [](const std::string& word) { return !names_in(word).empty(); });
  return has_names || std::any_of(names.begin(), names.end(), [](const std::string& name) {
           return name == "AZ_BATCHAI_TASK_INDEX" || name.starts_with("AZ_BATCHAI_JOB_TEMP");
         });
}

std::vector<std::string> variables_of_job(const JobSpec& spec) {
  std::vector<std::string> names = {"AZ_BATCHAI_JOB_NAME", "AZ_BATCHAI_STDOUTERR_DIR",
                                    "AZ_BATCHAI_SHARED_JOB_TEMP"};
  for (const JobSpec::Folder& input : spec.inputs) {
    names.push_back(variable_of("input." + input.id));
  }
  for (const JobSpec::Folder& output : spec.outputs) {
    names.push_back(variable_of("output." + output.id));
  }
  if (!spec.mounts.empty()) {
    names.insert(names.end(), {"AZ_BATCHAI_JOB_MOUNT_ROOT", "AZ_BATCHAI_MOUNT_ROOT"});
  }
  for (const JobSpec::Variable& variable : spec.environment) names.push_back(variable.name);
  for (const JobSpec::Secret& secret : spec.secrets) names.push_back(secret.name);
  return names;
}

std::string launcher_words(const JobSpec& spec) {
  std::string words = "launcher";
  for (const std::string& name : variables_of_job(spec)) words += " -x " + name;
  return words;
}

std::string folder_lines(const JobSpec& spec) {
  std::string made = "mkdir -p \"$AZ_BATCHAI_STDOUTERR_DIR\" \"$AZ_BATCHAI_SHARED_JOB_TEMP\"";
  std::string lines;
  for (const JobSpec::Folder& input : spec.inputs) {
    lines += exported(variable_of("input." + input.id), shell_word_of_pattern(input.path));
  }
  for (const JobSpec::Folder& output : spec.outputs) {
    const std::string name = variable_of("output." + output.id);
    lines += exported(name, folder_word(output));
    made += " \"$" + name + "\"";
  }
  lines += made + "\n";
  if (spec.mounts.empty()) return lines;
  lines += exported("AZ_BATCHAI_JOB_MOUNT_ROOT", "\"$AZ_BATCHAI_STDOUTERR_DIR/mounts\"") +
           exported("AZ_BATCHAI_MOUNT_ROOT", "\"$AZ_BATCHAI_JOB_MOUNT_ROOT\"");
  for (const JobSpec::Mount& mount : spec.mounts) {
    const std::string link = "\"$AZ_BATCHAI_JOB_MOUNT_ROOT\"/" + shell_word(mount.name);
    lines += "mkdir -p \"$(dirname " + link + ")\"\n" + "ln -sfn " + shell_word(mount.folder) +
             " " + link + "\n";
  }
  return lines;
}

std::string job_lines(const JobSpec& spec, const ShellJobTarget& target) {
  std::string lines = "set -e\n";
  for (const std::string& name : variables_from_outside(spec)) {
    lines += ": \"${" + name + "?has no value}\"\n";
  }
  lines +=
      "segment=\"jobs/" + spec.name + "/" + target.run_id + "\"\n" +
      exported("AZ_BATCHAI_JOB_NAME", shell_word(spec.name)) +
      exported("AZ_BATCHAI_STDOUTERR_DIR", shell_word_of_pattern(logs_pattern(spec)) + kSegment) +
      exported("AZ_BATCHAI_SHARED_JOB_TEMP", "\"$AZ_BATCHAI_STDOUTERR_DIR/tmp\"") +
      folder_lines(spec);
  if (!target.has_launcher) lines += host_lines(spec, target);
  for (const JobSpec::Variable& variable : spec.environment) {
    if (variable.value) lines += exported(variable.name, shell_word_of_pattern(*variable.value));
  }
  return lines + "cd " + shell_word_of_pattern(spec.directory) + "\n";
}

}  // namespace

JobSize size_of(const JobSpec& spec) {
  JobSize size;
  const auto share = [](std::uint32_t all, std::uint32_t part) { return (all + part - 1) / part; };
  if (!spec.ranks && !spec.hosts.count) {
    throw UsageError(
        "other systems want to know how many hosts there are: add 'hosts.count' or "
        "'ranks' to the job file");
  }
  size.per_host = spec.per_node.value_or(
      spec.ranks && spec.hosts.count ? share(*spec.ranks, *spec.hosts.count) : 1);
  size.hosts = spec.hosts.count ? *spec.hosts.count : share(*spec.ranks, size.per_host);
  size.ranks = spec.ranks.value_or(size.hosts * size.per_host);
  return size;
}

void check_export(const JobSpec& spec, const ShellJobTarget& target) {
  const std::string where = "a job for " + target.name;
  for (const std::string& name : used_names(spec)) {
    if (std::find(kOnlyHere.begin(), kOnlyHere.end(), name) == kOnlyHere.end()) continue;
    throw UsageError(where + " has no $" + name + ", which this one uses");
  }
  for (const JobSpec::Mount& mount : spec.mounts) {
    if (!mount.folder.empty()) continue;
    throw UsageError(where + " needs the folder of mount '" + mount.name + "': add --mount " +
                     mount.name + "=DIR");
  }
  if (spec.elastic.max > 0) {
    throw UsageError(where + " has a fixed number of hosts; take 'elastic' out of the job file");
  }
}

std::vector<std::string> variables_from_outside(const JobSpec& spec) {
  std::vector<std::string> names;
  for (const JobSpec::Secret& secret : spec.secrets) names.push_back(secret.name);
  for (const JobSpec::Variable& variable : spec.environment) {
    if (!variable.value) names.push_back(variable.name);
  }
  return names;
}

std::string shell_preparation(const JobSpec& spec, const ShellJobTarget& target) {
  const std::string command = "/bin/sh -c " + shell_word(spec.prepare.command);
  if (!target.has_launcher) return job_lines(spec, target) + "exec " + command + "\n";
  const std::string limit =
      spec.prepare.timeout ? " --timeout " + duration_text(*spec.prepare.timeout) : "";
  return launcher_words(spec) + " --per-node 1" + limit + " -- /bin/sh -c " +
         shell_word(host_lines(spec, target) + spec.prepare.command) + "\n";
}

std::string shell_job(const JobSpec& spec, const ShellJobTarget& target) {
  std::string lines = job_lines(spec, target);
  if (!target.has_launcher) return lines + "exec" + program_words(spec) + "\n";
  if (!spec.prepare.command.empty()) lines += shell_preparation(spec, target);
  const JobSize size = size_of(spec);
  lines += "exec " + launcher_words(spec) + " -n " + std::to_string(size.ranks) + " --per-node " +
           std::to_string(size.per_host) + option_words(spec) + " --";
  if (!needs_host(spec)) return lines + program_words(spec) + "\n";
  return lines + " /bin/sh -c " +
         shell_word(host_lines(spec, target) + "exec" + program_words(spec)) + "\n";
}

}  // namespace chainmail::launch
