// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/jobs/file/export/shell_job.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>
#include <utility>

#include "launcher/job/expansion.h"
#include "launcher/jobs/file/export/shell_variables.h"
#include "launcher/jobs/file/text/durations.h"
#include "launcher/jobs/file/text/shell_words.h"
#include "launcher/jobs/file/values/pattern_checks.h"

namespace chainmail::launch {
namespace {

constexpr std::array<std::string_view, 4> kOnlyHere = {
    "AZ_BATCHAI_MPI_HOST_FILE", "AZ_BATCHAI_NUM_GPUS", "AZ_BATCHAI_WORKER_HOSTS",
    "AZ_BATCHAI_PYTORCH_INIT_METHOD"};
constexpr const char* kTempName = "AZ_BATCHAI_JOB_TEMP";
constexpr const char* kSegment = "\"/$chainmail_run\"";

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

std::string patience_words(const JobSpec& spec, const ShellJobTarget& target) {
  const bool waits = target.has_late_hosts && spec.hosts.wait.count() > 0;
  return waits ? " --wait-hosts " + duration_text(spec.hosts.wait) : "";
}

// The launcher's options, but for the ranks'.
std::string option_words(const JobSpec& spec, const ShellJobTarget& target) {
  std::string words;
  if (spec.limits.stall) words += " --stall-timeout " + duration_text(*spec.limits.stall);
  if (spec.limits.grace) words += " --grace " + duration_text(*spec.limits.grace);
  if (spec.retry.failures > 0 && !target.tries_again)
    words += " --max-restarts " + std::to_string(spec.retry.failures);
  if (spec.logs.tag) words += " --tag-output";
  for (const JobSpec::Option& option : spec.options) {
    words += " --" + option.flag + (option.value ? "=" + shell_word(*option.value) : "");
  }
  return words;
}

// Without a folder for logs there is one beside what the job does, or beside its file.
std::string logs_pattern(const JobSpec& spec) {
  if (!spec.logs.path.empty()) return spec.logs.path;
  if (names_in(spec.directory).empty()) return spec.directory;
  return as_pattern(std::filesystem::path(spec.file).parent_path().string());
}

std::vector<ShellVariable> variables_of(const JobSpec& spec, const ShellJobTarget& target) {
  std::vector<ShellVariable> variables;
  const auto put = [&](const std::string& name, const std::string& pattern,
                       const std::string& behind = "") {
    variables.push_back({name, shell_word_of_pattern(pattern) + behind, variables_in(pattern)});
  };
  const auto put_word = [&](const char* name, const std::string& word, const char* named) {
    variables.push_back({name, word, {named}});
  };
  put("AZ_BATCHAI_JOB_NAME", spec.name);
  put("AZ_BATCHAI_STDOUTERR_DIR", logs_pattern(spec), kSegment);
  put_word("AZ_BATCHAI_SHARED_JOB_TEMP", "\"$AZ_BATCHAI_STDOUTERR_DIR/tmp\"",
           "AZ_BATCHAI_STDOUTERR_DIR");
  for (const JobSpec::Folder& input : spec.inputs)
    put(variable_of("input." + input.id), input.path);
  for (const JobSpec::Folder& output : spec.outputs) {
    const std::string suffix = output.suffix.empty() ? "" : "/" + shell_word(output.suffix);
    put(variable_of("output." + output.id), output.path, kSegment + suffix);
  }
  if (!spec.mounts.empty()) {
    put_word("AZ_BATCHAI_JOB_MOUNT_ROOT", "\"$AZ_BATCHAI_STDOUTERR_DIR/mounts\"",
             "AZ_BATCHAI_STDOUTERR_DIR");
    put_word("AZ_BATCHAI_MOUNT_ROOT", "\"$AZ_BATCHAI_JOB_MOUNT_ROOT\"",
             "AZ_BATCHAI_JOB_MOUNT_ROOT");
  }
  // What each host has for itself; a launcher's ranks find it there by themselves.
  const auto put_of_host = [&](const char* name, const std::string& word, const char* named) {
    put_word(name, word, named);
    variables.back().is_of_host = true;
  };
  put_of_host("AZ_BATCHAI_TASK_INDEX", "\"" + target.node_index + "\"", "NODE_RANK");
  put_of_host(kTempName, "\"${TMPDIR:-/tmp}/" + spec.name + "-${AZ_BATCHAI_STDOUTERR_DIR##*/}\"",
              "AZ_BATCHAI_STDOUTERR_DIR");
  put_of_host("AZ_BATCHAI_JOB_TEMP_DIR", "\"$AZ_BATCHAI_JOB_TEMP\"", kTempName);
  for (const JobSpec::Variable& variable : spec.environment) {
    if (variable.value) put(variable.name, *variable.value);
  }
  return in_order(std::move(variables));
}

// A job as a script sees it.
struct ShellParts {
  std::vector<ShellVariable> variables;
  bool has_host_directory = false;  // which the ranks' hosts know only
};

ShellParts parts_of(const JobSpec& spec, const ShellJobTarget& target) {
  ShellParts parts{variables_of(spec, target)};
  parts.has_host_directory = is_of_host(variables_in(spec.directory), parts.variables);
  for (const ShellVariable& variable : parts.variables) {
    const bool is_one = variable.name == "AZ_BATCHAI_STDOUTERR_DIR" ||
                        variable.name.starts_with("AZ_BATCHAI_OUTPUT_");
    if (!is_one || !variable.is_of_host) continue;
    throw UsageError("a job for " + target.name + " has one folder $" + variable.name +
                     ", and this one's is another on each host or rank");
  }
  return parts;
}

std::string enter_directory(const JobSpec& spec) {
  return "cd " + shell_word_of_pattern(spec.directory) + " || exit 125\n";
}

// Which may have to make it.
std::string enter_for_preparation(const JobSpec& spec) {
  return "cd " + shell_word_of_pattern(spec.directory) +
         " 2>/dev/null || cd \"$AZ_BATCHAI_JOB_TEMP\" || exit 125\n";
}

std::string host_lines(const ShellParts& parts) {
  std::string lines;
  for (const ShellVariable& variable : parts.variables) {
    if (variable.is_of_host) lines += exported(variable.name, variable.word);
  }
  return lines + "mkdir -p -m 700 \"$AZ_BATCHAI_JOB_TEMP\"\n";
}

std::string program_words(const JobSpec& spec) {
  std::string words;
  for (const std::string& word : spec.program) words += " " + shell_word_of_pattern(word);
  return words;
}

// A program that reads its variables by itself does not name them in the file: one for Batch AI
// may have come to rely on any of them.
bool needs_host(const JobSpec& spec, const ShellParts& parts) {
  const std::vector<std::string> names = used_names(spec);
  const bool has_names =
      std::any_of(spec.program.begin(), spec.program.end(),
                  [](const std::string& word) { return !names_in(word).empty(); });
  const bool has_values = std::any_of(
      parts.variables.begin(), parts.variables.end(), [](const ShellVariable& variable) {
        return variable.is_of_host && !is_batch_ai_name(variable.name);
      });
  return spec.is_batch_ai || has_names || has_values || parts.has_host_directory ||
         is_of_host(names, parts.variables);
}

std::string launcher_words(const JobSpec& spec, const ShellParts& parts) {
  std::string words = "launcher";
  for (const ShellVariable& variable : parts.variables) {
    if (!variable.is_of_host) words += " -x " + variable.name;
  }
  for (const std::string& name : variables_from_outside(spec)) words += " -x " + name;
  return words;
}

std::string folder_lines(const JobSpec& spec) {
  std::string lines = "mkdir -p \"$AZ_BATCHAI_STDOUTERR_DIR\" \"$AZ_BATCHAI_SHARED_JOB_TEMP\"";
  for (const JobSpec::Folder& output : spec.outputs) {
    lines += " \"$" + variable_of("output." + output.id) + "\"";
  }
  lines += "\n";
  for (const JobSpec::Mount& mount : spec.mounts) {
    const std::string link = "\"$AZ_BATCHAI_JOB_MOUNT_ROOT\"/" + shell_word(mount.name);
    lines += "mkdir -p \"$(dirname " + link + ")\"\n" + "ln -sfn " + shell_word(mount.folder) +
             " " + link + "\n";
  }
  return lines;
}

std::string job_lines(const JobSpec& spec, const ShellJobTarget& target, const ShellParts& parts) {
  std::string lines = "set -e\n";
  for (const std::string& name : variables_from_outside(spec)) {
    lines += ": \"${" + name + "?has no value}\"\n";
  }
  lines += "chainmail_run=\"jobs/" + spec.name + "/" + target.run_id + "\"\n";
  for (const ShellVariable& variable : parts.variables) {
    if (!variable.is_of_host) lines += exported(variable.name, variable.word);
  }
  lines += folder_lines(spec);
  // Without a launcher the script runs on the host.
  return target.has_launcher ? lines : lines + host_lines(parts);
}

std::string preparation(const JobSpec& spec, const ShellJobTarget& target,
                        const ShellParts& parts) {
  const std::string limit =
      spec.prepare.timeout ? " --timeout " + duration_text(*spec.prepare.timeout) : "";
  return launcher_words(spec, parts) + " --per-node 1" + patience_words(spec, target) + limit +
         " -- /bin/sh -c " +
         shell_word(host_lines(parts) + enter_for_preparation(spec) + spec.prepare.command) + "\n";
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
  const ShellParts parts = parts_of(spec, target);
  if (target.has_launcher) return preparation(spec, target, parts);
  return job_lines(spec, target, parts) + enter_for_preparation(spec) + "exec /bin/sh -c " +
         shell_word(spec.prepare.command) + "\n";
}

std::string shell_job(const JobSpec& spec, const ShellJobTarget& target) {
  const ShellParts parts = parts_of(spec, target);
  std::string lines = job_lines(spec, target, parts);
  if (!target.has_launcher)
    return lines + enter_directory(spec) + "exec" + program_words(spec) + "\n";
  if (!spec.prepare.command.empty()) lines += preparation(spec, target, parts);
  if (!parts.has_host_directory) lines += enter_directory(spec);
  const JobSize size = size_of(spec);
  lines += "exec " + launcher_words(spec, parts) + " -n " + std::to_string(size.ranks) +
           " --per-node " + std::to_string(size.per_host) + patience_words(spec, target) +
           option_words(spec, target) + " --";
  if (!needs_host(spec, parts)) return lines + program_words(spec) + "\n";
  return lines + " /bin/sh -c " +
         shell_word(host_lines(parts) + (parts.has_host_directory ? enter_directory(spec) : "") +
                    "exec" + program_words(spec)) +
         "\n";
}

}  // namespace chainmail::launch
