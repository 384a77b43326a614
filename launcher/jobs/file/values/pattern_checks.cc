// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/jobs/file/values/pattern_checks.h"

#include <algorithm>
#include <array>
#include <map>
#include <span>
#include <string_view>

#include "launcher/job/expansion.h"
#include "launcher/jobs/file/text/object_reader.h"
#include "launcher/jobs/file/text/shell_words.h"

namespace chainmail::launch {
namespace {

constexpr std::string_view kBatchAi = "AZ_BATCHAI_";

// Behind the prefix, besides INPUT_ and OUTPUT_.
constexpr std::array<const char*, 12> kBatchAiNames = {
    "JOB_TEMP",   "JOB_TEMP_DIR",   "SHARED_JOB_TEMP", "STDOUTERR_DIR",
    "MOUNT_ROOT", "JOB_MOUNT_ROOT", "MPI_HOST_FILE",   "NUM_GPUS",
    "TASK_INDEX", "WORKER_HOSTS",   "JOB_NAME",        "PYTORCH_INIT_METHOD"};
constexpr std::array<std::string_view, 6> kRankNames = {
    "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "OMP_NUM_THREADS"};
constexpr std::array<std::string_view, 5> kEverywhere = {"HOME", "USER", "LOGNAME", "PATH",
                                                         "SHELL"};
constexpr std::array<std::string_view, 3> kPrefixes = {"OMPI_COMM_WORLD_", "PMIX_", "PMI_"};
// Those of the launcher's environment travel to all ranks.
constexpr std::string_view kOurs = "CHAINMAIL_";

bool is_one_of(std::string_view name, std::span<const std::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::vector<std::string> known_batch_ai_names(const JobSpec& spec) {
  std::vector<std::string> names;
  for (const char* name : kBatchAiNames) names.push_back(std::string(kBatchAi) + name);
  for (const JobSpec::Folder& input : spec.inputs) {
    names.push_back(variable_of("input." + input.id));
  }
  for (const JobSpec::Folder& output : spec.outputs) {
    names.push_back(variable_of("output." + output.id));
  }
  return names;
}

// Names that somebody gives a value to.
std::set<std::string> given_names(const JobReading& reading, const JobSpec& spec) {
  std::set<std::string> names;
  for (const auto& [name, value] : reading.settings.environment) names.insert(name);
  for (const JobSpec::Variable& variable : spec.environment) names.insert(variable.name);
  for (const JobSpec::Secret& secret : spec.secrets) names.insert(secret.name);
  for (const JobSpec::Option& option : spec.options) {
    if (option.flag == "torchrun-env") names.insert({"MASTER_ADDR", "MASTER_PORT"});
  }
  return names;
}

// A secret for each name whose value has one in it: its own, and what variables of the file that
// name it bring along.
std::map<std::string, std::string> secrets_behind_names(const JobSpec& spec) {
  std::map<std::string, std::string> secrets;
  std::vector<std::string> ahead;
  const auto reach = [&](const std::string& name, const std::string& secret) {
    if (secrets.try_emplace(name, secret).second) ahead.push_back(name);
  };
  for (const JobSpec::Secret& secret : spec.secrets) reach(secret.name, secret.name);
  if (ahead.empty()) return secrets;
  std::multimap<std::string, std::string> users;
  for (const JobSpec::Variable& variable : spec.environment) {
    for (NamedVariable& named : pattern_variables(variable.value.value_or(""))) {
      users.emplace(std::move(named.name), variable.name);
    }
  }
  while (!ahead.empty()) {
    const std::string name = std::move(ahead.back());
    ahead.pop_back();
    const auto [begin, end] = users.equal_range(name);
    for (auto user = begin; user != end; ++user) reach(user->second, secrets.at(name));
  }
  return secrets;
}

class NameCheck {
 public:
  NameCheck(const JobReading& reading, const JobSpec& spec)
      : mistakes_(reading.mistakes),
        secrets_(secrets_behind_names(spec)),
        is_complete_(reading.settings.is_complete),
        batch_ai_(known_batch_ai_names(spec)),
        given_(given_names(reading, spec)) {}

  void check(const JsonNode& at, const std::string& name, PatternUse use) {
    const std::string variable = variable_of(name);
    const auto secret = secrets_.find(name);
    const bool is_in_sight = use != PatternUse::kValue && use != PatternUse::kShellLine;
    if (is_in_sight && secret != secrets_.end()) mistakes_.add(at, secret_in_sight(secret->second));
    if (is_batch_ai_name(variable)) {
      check_batch_ai(at, name, variable, use);
    } else if (use == PatternUse::kJob || use == PatternUse::kHost) {
      if (is_rank_variable(name)) {
        mistakes_.add(at, "$" + name + " has another value on each rank, and this folder is one");
      } else if (use == PatternUse::kHost || !is_complete_) {  // PlaceValues looks for others
        warn_if_unknown(at, name);
      }
    } else if (use != PatternUse::kShellLine && !is_rank_variable(name)) {
      warn_if_unknown(at, name);
    }
  }

 private:
  void check_batch_ai(const JsonNode& at, const std::string& name, const std::string& variable,
                      PatternUse use) {
    if (variable == "AZ_BATCHAI_PS_HOSTS") {
      mistakes_.add(at, "$" + name +
                            ": there are no parameter servers here; let the ranks "
                            "average their gradients");
      return;
    }
    if (std::find(batch_ai_.begin(), batch_ai_.end(), variable) == batch_ai_.end()) {
      mistakes_.add(at, "$" + name + " is not known" + advice(variable));
      return;
    }
    const bool is_of_host =
        variable == "AZ_BATCHAI_JOB_TEMP" || variable == "AZ_BATCHAI_JOB_TEMP_DIR";
    const bool is_allowed = use == PatternUse::kRank || use == PatternUse::kValue ||
                            use == PatternUse::kShellLine || is_mount_root(variable) ||
                            (use == PatternUse::kHost && is_of_host);
    if (!is_allowed) {
      mistakes_.add(at, "$" + name + " has no value yet where this folder is looked for");
    }
  }

  std::string advice(const std::string& variable) const {
    if (const std::string meant = did_you_mean(variable, batch_ai_); !meant.empty()) return meant;
    if (variable.starts_with("AZ_BATCHAI_INPUT_")) return ": no input has this id";
    if (variable.starts_with("AZ_BATCHAI_OUTPUT_")) return ": no output has this id";
    return "";
  }

  void warn_if_unknown(const JsonNode& at, const std::string& name) {
    if (given_.contains(name) || is_one_of(name, kEverywhere) || name.starts_with(kOurs)) return;
    mistakes_.warn(at, "$" + name +
                           " is empty on hosts that do not have it; give it in the "
                           "environment");
  }

  Mistakes& mistakes_;
  const std::map<std::string, std::string> secrets_;
  const bool is_complete_;
  std::vector<std::string> batch_ai_;
  std::set<std::string> given_;
};

}  // namespace

bool is_batch_ai_name(const std::string& name) { return name.starts_with(kBatchAi); }

bool is_secret(const JobSpec& spec, const std::string& name) {
  return std::any_of(spec.secrets.begin(), spec.secrets.end(),
                     [&](const JobSpec::Secret& secret) { return secret.name == name; });
}

std::string secret_in_sight(const std::string& name) {
  return "the secret " + name +
         " would be seen by everybody who lists processes or folders; let the program read it from "
         "its environment";
}

// Of MPI's libraries as well.
bool is_rank_variable(const std::string& name) {
  return is_one_of(name, kRankNames) ||
         std::any_of(kPrefixes.begin(), kPrefixes.end(),
                     [&](std::string_view prefix) { return name.starts_with(prefix); });
}

JsonNode PatternChecks::node_of(const JsonNode& at) { return node_at(at, JsonNode::Kind::kNull); }

void PatternChecks::run(const JobReading& reading, const JobSpec& spec, MountTable& mounts) const {
  NameCheck names(reading, spec);
  for (const Entry& entry : entries_) {
    const bool is_line = entry.use == PatternUse::kShellLine;
    try {
      const auto found = is_line ? std::vector<std::string>() : names_in(entry.pattern);
      for (const std::string& name : found) names.check(entry.at, name, entry.use);
    } catch (const UsageError& error) {
      reading.mistakes.add(entry.at, error.what());
    }
    for (const NamedVariable& variable :
         is_line ? shell_variables(entry.pattern) : pattern_variables(entry.pattern)) {
      if (is_line) names.check(entry.at, variable.name, entry.use);
      mounts.mention(entry.at, variable.name, variable.behind);
    }
  }
}

}  // namespace chainmail::launch
