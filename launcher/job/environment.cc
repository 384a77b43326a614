// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/job/environment.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <system_error>

#include "launcher/job/text.h"

namespace chainmail::launch {

Environment current_environment() {
  Environment variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text(*entry);
    const std::size_t equals = text.find('=');
    if (equals != std::string::npos) variables[text.substr(0, equals)] = text.substr(equals + 1);
  }
  return variables;
}

std::vector<std::string> entries_of(const Environment& variables) {
  std::vector<std::string> entries;
  for (const auto& [name, value] : variables) entries.push_back(name + "=" + value);
  return entries;
}

std::optional<std::string> value_of(const Environment& variables, const std::string& name) {
  const auto found = variables.find(name);
  if (found == variables.end() || found->second.empty()) return std::nullopt;
  return found->second;
}

std::vector<std::string> files_in_path(const std::string& path, const std::string& name) {
  std::vector<std::string> files;
  for (const std::string& folder : split(path, ':')) {
    files.push_back((folder.empty() ? "." : folder) + "/" + name);
  }
  return files;
}

std::string current_directory() {
  const char* shown = getenv("PWD");
  struct stat by_name {};
  struct stat real {};
  if (shown != nullptr && shown[0] == '/' && stat(shown, &by_name) == 0 && stat(".", &real) == 0 &&
      by_name.st_dev == real.st_dev && by_name.st_ino == real.st_ino) {
    return shown;
  }
  std::error_code error;
  const auto path = std::filesystem::current_path(error);
  if (error) {
    throw UsageError("the working directory cannot be found (" + error.message() +
                     "); change into one that exists, or name one by --wdir");
  }
  return path.string();
}

Environment exported_environment(const Environment& own,
                                 const std::vector<ExportedVariable>& exported,
                                 std::vector<std::string>& missing) {
  Environment variables;
  for (const auto& [name, value] : own) {
    for (const char* prefix : {"CHAINMAIL_", "OMP_", "NCCL_", "OMPI_MCA_"}) {
      if (name.rfind(prefix, 0) == 0) variables[name] = value;
    }
  }
  // A launcher inside a rank of another job must not pass that job's socket on.
  variables.erase("CHAINMAIL_JOB_FD");
  variables.erase("CHAINMAIL_GENERATION");
  variables.erase("CHAINMAIL_ELASTIC");
  variables.erase("CHAINMAIL_JOB_TEMP");
  // The label of this node would make all nodes look like one.
  variables.erase("CHAINMAIL_NODE_ID");
  for (const ExportedVariable& variable : exported) {
    const auto found = own.find(variable.name);
    if (variable.value) {
      variables[variable.name] = *variable.value;
    } else if (found != own.end()) {
      variables[variable.name] = found->second;
    } else {
      missing.push_back(variable.name);
    }
  }
  return variables;
}

void add_variables_of(const Host& host, Environment& variables) {
  if (host.chosen_slots.empty()) return;
  variables.emplace("CUDA_VISIBLE_DEVICES", joined(host.chosen_slots, ","));
}

}  // namespace chainmail::launch
