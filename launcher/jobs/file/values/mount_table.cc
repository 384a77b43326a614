// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/jobs/file/values/mount_table.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "launcher/files/text_file.h"
#include "launcher/hosts/host_text.h"
#include "launcher/job/expansion.h"
#include "launcher/job/text.h"
#include "launcher/jobs/file/text/object_reader.h"
#include "launcher/jobs/file/text/shell_words.h"

namespace chainmail::launch {
namespace {

constexpr const char* kVariable = "CHAINMAIL_MOUNTS";
// Each is compared with all others.
constexpr std::size_t kMostMounts = 1025;

bool is_in_mount_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-' || c == '.' || c == '/';
}

bool is_mount_name(const std::string& name) {
  const std::vector<std::string> parts = split(name, '/');
  return std::all_of(name.begin(), name.end(), is_in_mount_name) &&
         std::none_of(parts.begin(), parts.end(), [](const std::string& part) {
           return part.empty() || part == "." || part == "..";
         });
}

bool is_folder(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_directory(path, error);
}

bool is_at_or_below(std::string_view path, std::string_view folder) {
  return path.starts_with(folder) && (path.size() == folder.size() || path[folder.size()] == '/');
}

// "/logs/x" behind a root: "logs/x", up to what can be no part of a name.
std::string_view path_behind_root(std::string_view behind) {
  const auto end = std::find_if_not(behind.begin(), behind.end(), is_in_mount_name);
  std::string_view path = behind.substr(0, static_cast<std::size_t>(end - behind.begin()));
  while (path.starts_with('/')) path.remove_prefix(1);
  // A name that a variable goes on with is not known here.
  const bool is_cut = end != behind.end() && *end == '$' && path.find('/') == path.npos;
  return is_cut ? std::string_view() : path;
}

}  // namespace

bool is_mount_root(std::string_view variable) {
  return variable == "AZ_BATCHAI_MOUNT_ROOT" || variable == "AZ_BATCHAI_JOB_MOUNT_ROOT";
}

MountTable::MountTable(const JobReading& reading) : reading_(reading) {
  for (const auto& [name, folder] : reading.settings.mounts) {
    JsonNode at;
    at.option = "--mount " + printable(name);
    know(name, {folder, at.option});
    if (known_.contains(name)) used_.push_back({name, at});
  }
}

// Whoever names no mount is not told what is wrong with them.
void MountTable::load() {
  if (std::exchange(has_loaded_, true)) return;
  read_variable();
  try {
    read_file();
  } catch (const UsageError& error) {
    reading_.mistakes.add("--mount", printable(error.what()));
  }
}

void MountTable::know(const std::string& name, Known known) {
  const std::string where = known.source;
  if (!is_mount_name(name)) {
    reading_.mistakes.add(where, "the name of a mount has letters, digits, '.', '_', '-' and '/'");
  } else if (!known.folder.starts_with('/')) {
    reading_.mistakes.add(where, "the folder of a mount must be an absolute path");
  } else {
    known.folder = normal_path(known.folder);
    known_.try_emplace(name, std::move(known));
  }
}

void MountTable::read_variable() {
  const auto value = value_of(reading_.settings.environment, kVariable);
  if (!value) return;
  for (const std::string& entry : split(*value, ':')) {
    const std::size_t equals = entry.find('=');
    if (entry.empty()) continue;
    if (equals == std::string::npos) {
      reading_.mistakes.add(std::string("$") + kVariable,
                            "wants NAME=DIR:NAME=DIR, and has an entry without '='");
      continue;
    }
    const std::string name = entry.substr(0, equals);
    know(name, {entry.substr(equals + 1), std::string("$") + kVariable + ", " + printable(name)});
  }
}

void MountTable::read_file() {
  const std::string& path = reading_.settings.mounts_file;
  std::error_code error;
  if (path.empty() || !std::filesystem::exists(path, error)) return;
  constexpr std::size_t kMostBytes = std::size_t{1} << 20;
  Mistakes mistakes(printable(path));
  const JsonText json =
      parse_json_text(read_host_text(path, "the file of mounts", Pipes::kRefuse, kMostBytes));
  for (const JsonProblem& problem : json.problems) mistakes.add(problem);
  if (mistakes.empty() && check_kind(json.root, JsonNode::Kind::kObject, mistakes)) {
    for (const JsonMember& member : json.root.members) {
      const auto folder = text_in(member.value, mistakes);
      if (folder) know(member.key, {*folder, printable(path) + ", " + printable(member.key)});
    }
  }
  reading_.mistakes.add_all(mistakes);
}

void MountTable::declare(const JsonNode& at, const std::string& name, const JsonNode& folder) {
  if (!is_mount_name(name)) {
    reading_.mistakes.add(at, "the name of a mount has letters, digits, '.', '_', '-' and '/'");
    return;
  }
  load();
  use(at, name);
  if (folder.kind == JsonNode::Kind::kNull) return;
  const auto path = text_in(folder, reading_.mistakes);
  if (!path) return;
  const auto known = known_.find(name);
  const bool is_given = known != known_.end() && known->second.source.starts_with("--mount");
  if (!is_given) known_[name] = {path_in(reading_, folder, *path), ""};
}

void MountTable::use(const JsonNode& at, const std::string& name) {
  if (used_.size() == kMostMounts) return;
  const bool is_used =
      std::any_of(used_.begin(), used_.end(), [&](const Used& used) { return used.name == name; });
  if (is_used) return;
  used_.push_back({name, node_at(at, JsonNode::Kind::kNull)});
  if (used_.size() == kMostMounts) {
    reading_.mistakes.add(at, "more than " + std::to_string(kMostMounts - 1) + " mounts");
  }
}

// The longest name that the path begins with, or its first part.
std::string MountTable::name_before(std::string_view path) const {
  std::string best;
  const auto consider = [&](const std::string& name) {
    if (name.size() > best.size() && is_at_or_below(path, name)) best = name;
  };
  for (const auto& [name, known] : known_) consider(name);
  for (const Used& used : used_) consider(used.name);
  return best.empty() ? std::string(path.substr(0, path.find('/'))) : best;
}

std::string MountTable::folder_of(const std::string& name) const {
  const auto known = known_.find(name);
  return known == known_.end() ? "" : known->second.folder;
}

void MountTable::mention(const JsonNode& at, const std::string& variable, std::string_view behind) {
  if (!is_mount_root(variable) || !behind.starts_with('/')) return;
  const std::string_view path = path_behind_root(behind);
  if (path.empty()) return;
  load();
  const std::string name = name_before(path);
  if (is_mount_name(name)) {
    use(at, name);
  } else {
    reading_.mistakes.add(at, "no mount has the name " + in_quotes(name));
  }
}

std::string MountTable::mapped(const JsonNode& at, const std::string& pattern) {
  const std::vector<NamedVariable> variables = pattern_variables(pattern);
  if (variables.empty() || !is_mount_root(variables.front().name)) return pattern;
  const NamedVariable& root = variables.front();
  const std::size_t begin = pattern.size() - root.behind.size();
  const bool is_first = begin <= root.name.size() + 3 && pattern.starts_with('$');
  const std::string_view path = path_behind_root(root.behind);
  if (!is_first || path.empty() || !root.behind.starts_with('/')) {
    reading_.mistakes.add(at,
                          "must begin with $" + root.name + "/NAME, where NAME is that of a mount");
    return pattern;
  }
  mention(at, root.name, root.behind);
  const std::string name = name_before(path);
  const std::string folder = folder_of(name);
  if (folder.empty()) return pattern;
  std::string_view rest = root.behind;
  while (rest.starts_with('/')) rest.remove_prefix(1);
  const std::string below(rest.substr(name.size()));
  if (below.find('$') != std::string::npos) return as_pattern(folder) + below;
  return as_pattern(normal_path(folder + below));
}

void MountTable::check(const Used& used) const {
  const auto known = known_.find(used.name);
  if (known == known_.end()) {
    std::vector<std::string> names;
    for (const auto& [name, value] : known_) names.push_back(name);
    const std::string meant = did_you_mean(used.name, names);
    reading_.mistakes.add(used.at, "the mount '" + used.name +
                                       "' is not a folder of these machines yet: add --mount " +
                                       used.name + "=DIR" + meant);
  } else if (!is_folder(known->second.folder)) {
    const std::string message =
        "the folder of mount '" + used.name + "' is not there: " + printable(known->second.folder);
    if (known->second.source.empty()) {
      reading_.mistakes.add(used.at, message);
    } else {
      reading_.mistakes.add(known->second.source, message);
    }
  }
  // A link cannot have another link below it.
  for (const Used& other : used_) {
    if (other.name.size() <= used.name.size() || !is_at_or_below(other.name, used.name)) continue;
    reading_.mistakes.add(other.at, "the mount '" + other.name + "' lies inside the mount '" +
                                        used.name + "'; one of them needs another name");
  }
}

std::vector<JobSpec::Mount> MountTable::take() {
  std::vector<JobSpec::Mount> mounts;
  for (const Used& used : used_) {
    if (reading_.settings.is_complete) check(used);
    mounts.push_back({used.name, folder_of(used.name)});
  }
  return mounts;
}

}  // namespace chainmail::launch
