// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/run/job_file/job_variables.h"

#include <algorithm>
#include <filesystem>

#include "launcher/job/expansion.h"
#include "launcher/job/text.h"
#include "launcher/remote/bootstrap.h"

namespace chainmail::launch {
namespace {

// Below CHAINMAIL_JOB_TEMP, the agent's folder for the job, which goes with it.
constexpr const char* kJobTemp = "$CHAINMAIL_JOB_TEMP";
constexpr const char* kMountLinks = "$CHAINMAIL_JOB_TEMP/mounts";
constexpr const char* kHostList = "$CHAINMAIL_JOB_TEMP/hosts";
constexpr const char* kLogsLink = "$CHAINMAIL_JOB_TEMP/stdouterr";

std::string names_of(const std::vector<Host>& hosts) {
  std::vector<std::string> names;
  for (const Host& host : hosts) names.push_back(host.name);
  return joined(names, ",");
}

std::string with_names_of_folders(std::string pattern) {
  // "$${input.X}" is text.
  std::string out;
  for (std::size_t at = 0; at < pattern.size();) {
    if (pattern.compare(at, 2, "$$") == 0) {
      out += "$$";
      at += 2;
    } else if (pattern.compare(at, 8, "${input.") == 0) {
      out += "${AZ_BATCHAI_INPUT_";
      at += 8;
    } else if (pattern.compare(at, 9, "${output.") == 0) {
      out += "${AZ_BATCHAI_OUTPUT_";
      at += 9;
    } else {
      out += pattern[at++];
    }
  }
  return out;
}

// What is no pattern any more, or cannot be more than one here.
std::string shown_path(const std::string& pattern) {
  return names_in(pattern).empty() ? expanded(pattern, Environment()) : pattern;
}

// Words of a shell, each expanded to itself by the agent, but for the last.
std::vector<std::string> shell_words(const std::string& script, const std::string& directory) {
  return {"/bin/sh", "-c", as_pattern(script), "chainmail-prepare", directory};
}

constexpr const char* kFailFunction = "cm_fail() { echo \"chainmail: $*\" >&2; exit 125; }\n";

// Its id, its pattern if that has variables, and what it is here.
constexpr const char* kInputFunction = R"sh(cm_input() {
  case $3 in
    /*) ;;
    *) cm_fail "input $1: $2 is '$3' on this host, which is no absolute path" ;;
  esac
  [ -e "$3" ] || cm_fail "input $1: there is no $3 on this host${2:+ ($2)}"
}
)sh";

// The job's folder is there where this host shares the launcher's home; elsewhere, and inside a
// container, a folder of the host's own takes its place.
std::string logs_link_lines(const std::string& job_folder) {
  const std::string folder = shell_quoted(job_folder);
  return "cm_logs=$CHAINMAIL_JOB_TEMP/stdouterr\nif [ -d " + folder + " ] && [ -w " + folder +
         " ]; then\n  ln -sfn " + folder + " \"$cm_logs\" || exit 125\nfi\n" +
         "mkdir -p \"$cm_logs/temp\" || exit 125\n";
}

std::string in_mounts(const std::string& name) { return "\"$cm_mounts\"/" + shell_quoted(name); }

}  // namespace

std::string run_folder(const std::string& path, const std::string& name, const std::string& uuid) {
  return path + (path.empty() || path.back() != '/' ? "/" : "") + "jobs/" + name + "/" + uuid;
}

JobPlaces places_of(const JobSpec& spec, const std::string& job_folder, const std::string& uuid) {
  JobPlaces places;
  places.stdouterr =
      spec.logs.path.empty() ? job_folder : run_folder(shown_path(spec.logs.path), spec.name, uuid);
  for (JobSpec::Folder input : spec.inputs) {
    input.path = shown_path(input.path);
    places.inputs.push_back(input);
  }
  for (JobSpec::Folder output : spec.outputs) {
    output.path = run_folder(shown_path(output.path), spec.name, uuid);
    if (!output.suffix.empty()) output.path += "/" + output.suffix;
    places.outputs.push_back(output);
  }
  return places;
}

bool mentions(const JobSpec& spec, const std::string& name) {
  const auto has_it = [&name](const std::string& text) { return text.find(name) != text.npos; };
  return has_it(spec.prepare.command) ||
         std::any_of(spec.program.begin(), spec.program.end(), has_it) ||
         std::any_of(spec.environment.begin(), spec.environment.end(),
                     [&](const JobSpec::Variable& variable) {
                       return has_it(variable.value.value_or(""));
                     });
}

std::vector<std::string> absent_in_elastic_jobs(const JobSpec& spec) {
  std::vector<std::string> names = {"AZ_BATCHAI_SHARED_JOB_TEMP", "AZ_BATCHAI_MOUNT_ROOT",
                                    "AZ_BATCHAI_JOB_MOUNT_ROOT", "AZ_BATCHAI_MPI_HOST_FILE"};
  if (spec.logs.path.empty()) names.emplace_back("AZ_BATCHAI_STDOUTERR_DIR");
  return names;
}

std::vector<ExportedVariable> job_variables(const JobSpec& spec, const JobPlaces& places,
                                            const std::vector<Host>& hosts, bool is_elastic) {
  const std::string logs = spec.logs.path.empty() ? kLogsLink : as_pattern(places.stdouterr);
  std::vector<ExportedVariable> variables = {
      {"AZ_BATCHAI_JOB_NAME", as_pattern(spec.name)},
      {"AZ_BATCHAI_JOB_TEMP", kJobTemp},
      {"AZ_BATCHAI_JOB_TEMP_DIR", kJobTemp},
      {"AZ_BATCHAI_SHARED_JOB_TEMP", logs + "/temp"},
      {"AZ_BATCHAI_STDOUTERR_DIR", logs},
      {"AZ_BATCHAI_MOUNT_ROOT", kMountLinks},
      {"AZ_BATCHAI_JOB_MOUNT_ROOT", kMountLinks},
      {"AZ_BATCHAI_MPI_HOST_FILE", kHostList},
      {"AZ_BATCHAI_TASK_INDEX", "$NODE_RANK"},
      {"AZ_BATCHAI_NUM_GPUS", "$CHAINMAIL_NODE_GPUS"},
      {"AZ_BATCHAI_WORKER_HOSTS", as_pattern(names_of(hosts))},
  };
  for (const std::string& name :
       is_elastic ? absent_in_elastic_jobs(spec) : std::vector<std::string>()) {
    std::erase_if(variables, [&name](const auto& variable) { return variable.name == name; });
  }
  if (mentions(spec, kPytorchInitMethod)) {
    variables.push_back({kPytorchInitMethod, "tcp://$MASTER_ADDR:$MASTER_PORT"});
  }
  for (const JobSpec::Folder& input : spec.inputs) {
    variables.push_back({"AZ_BATCHAI_INPUT_" + input.id, input.path});
  }
  for (const JobSpec::Folder& output : places.outputs) {
    variables.push_back({"AZ_BATCHAI_OUTPUT_" + output.id, as_pattern(output.path)});
  }
  for (const JobSpec::Variable& variable : spec.environment) {
    if (variable.value) {
      variables.push_back({variable.name, with_names_of_folders(*variable.value)});
    } else {
      variables.push_back({variable.name, std::nullopt});
    }
  }
  for (const JobSpec::Secret& secret : spec.secrets) {
    variables.push_back({secret.name, as_pattern(secret.value)});
  }
  return variables;
}

std::vector<std::string> job_program(const JobSpec& spec) {
  std::vector<std::string> words;
  for (const std::string& word : spec.program) words.push_back(with_names_of_folders(word));
  return words;
}

std::vector<std::string> first_words(const JobSpec& spec, const JobPlaces& places) {
  std::vector<std::string> folders;
  if (!spec.logs.path.empty()) folders.push_back(places.stdouterr + "/temp");
  for (const JobSpec::Folder& output : places.outputs) folders.push_back(output.path);
  if (folders.empty()) return {};
  std::string script = kFailFunction;
  for (const std::string& folder : folders) {
    script += "mkdir -p -- " + shell_quoted(folder) + " || cm_fail " +
              shell_quoted("cannot make the folder " + folder) + "\n";
  }
  return shell_words(script, "/");
}

namespace {

std::string check_lines(const JobSpec& spec, const JobPlaces& places) {
  std::string script = kFailFunction;
  if (!spec.inputs.empty()) script += kInputFunction;
  for (const JobSpec::Folder& input : spec.inputs) {
    const std::string pattern = names_in(input.path).empty() ? "" : input.path;
    script += "cm_input " + input.id + " " + shell_quoted(pattern) + " \"$AZ_BATCHAI_INPUT_" +
              input.id + "\"\n";
  }
  for (const JobSpec::Folder& output : places.outputs) {
    script += "[ -d " + shell_quoted(output.path) + " ] || cm_fail " +
              shell_quoted("output " + output.id + ": the job has made " + output.path +
                           ", which this host does not see: it must be on storage that all hosts "
                           "share") +
              "\n";
  }
  return script;
}

std::string mount_lines(const JobSpec& spec) {
  std::string script =
      "cm_mounts=$CHAINMAIL_JOB_TEMP/mounts\nmkdir -p \"$cm_mounts\" || exit 125\n";
  for (const JobSpec::Mount& mount : spec.mounts) {
    const std::size_t slash = mount.name.rfind('/');
    if (slash != std::string::npos) {
      script += "mkdir -p " + in_mounts(mount.name.substr(0, slash)) + " || exit 125\n";
    }
    script += "[ -d " + shell_quoted(mount.folder) + " ] || cm_fail " +
              shell_quoted("mount " + mount.name + ": there is no folder " + mount.folder +
                           " on this host") +
              "\nln -sfn " + shell_quoted(mount.folder) + " " + in_mounts(mount.name) +
              " || exit 125\n";
  }
  return script;
}

std::string host_list_lines(const std::vector<Host>& hosts) {
  std::string list;
  for (const Host& host : hosts) list += host.name + " slots=" + std::to_string(host.slots) + "\n";
  return "printf '%s' " + shell_quoted(list) + " >\"$CHAINMAIL_JOB_TEMP\"/hosts || exit 125\n";
}

}  // namespace

std::vector<std::string> preparation_words(const JobSpec& spec, const JobPlaces& places,
                                           const std::vector<Host>& hosts,
                                           const std::string& directory, bool is_elastic) {
  std::string script = check_lines(spec, places);
  if (!is_elastic) {
    script += mount_lines(spec) + host_list_lines(hosts);
    if (spec.logs.path.empty()) script += logs_link_lines(places.stdouterr);
  }
  if (!spec.prepare.command.empty()) {
    // The directory may be what the command makes.
    script +=
        "CDPATH= cd -- \"$1\" 2>/dev/null || cd -- \"$CHAINMAIL_JOB_TEMP\" || exit 125\n"
        "exec /bin/sh -c " +
        shell_quoted(spec.prepare.command) + "\n";
  }
  return shell_words(script, directory);
}

}  // namespace chainmail::launch
