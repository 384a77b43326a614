// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/jobs/file/forms/modern_reader.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <set>

#include "launcher/hosts/host_text.h"
#include "launcher/job/expansion.h"
#include "launcher/job/text.h"
#include "launcher/jobs/file/forms/modern_parts.h"
#include "launcher/jobs/file/text/object_reader.h"
#include "launcher/jobs/file/values/mount_table.h"
#include "launcher/jobs/file/values/option_values.h"
#include "launcher/jobs/file/values/pattern_checks.h"
#include "launcher/jobs/file/values/place_values.h"
#include "launcher/jobs/file/values/secret_values.h"

namespace chainmail::launch {
namespace {

using NodeKind = JsonNode::Kind;

// The ranks' own, which the launcher sets.
constexpr std::array<std::string_view, 6> kReserved = {
    "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "CHAINMAIL_JOB_FD"};
constexpr std::array<std::string_view, 5> kShells = {"sh", "bash", "dash", "/bin/sh", "/bin/bash"};

bool is_in_job_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-' || c == '.';
}

bool is_id(const std::string& id) { return !id.empty() && is_variable_name("_" + id); }

class ModernReader {
 public:
  explicit ModernReader(const JobReading& reading)
      : reading_(reading),
        mistakes_(reading.mistakes),
        mounts_(reading),
        given_(secrets_of_options(reading)) {}

  JobSpec read(const JsonNode& root) {
    ObjectReader reader(root, mistakes_);
    (void)reader.find("$schema");
    read_version(reader);
    read_name(reader);
    // Names of mounts, variables and folders first: what follows may use them.
    each_member(reader, "mounts", [&](const JsonNode& key, const JsonMember& member) {
      mounts_.declare(key, member.key, member.value);
    });
    read_environment(reader);
    read_folders(reader);
    if (const JsonNode* node = reader.require("program")) read_program(*node);
    read_ranks(reader);
    read_directory(reader);
    if (const JsonNode* node = reader.find("prepare")) read_prepare(*node);
    if (const JsonNode* node = reader.find("logs")) read_logs(*node);
    read_parts(reader);
    reader.refuse_unknown();
    check_together(root);
    checks_.run(reading_, spec_, mounts_);
    if (reading_.settings.is_complete) expand_places();
    spec_.mounts = mounts_.take();
    return std::move(spec_);
  }

 private:
  template <typename Use>
  void each_member(ObjectReader& reader, const char* name, const Use& use) {
    const JsonNode* node = reader.find(name);
    if (node == nullptr || !check_kind(*node, NodeKind::kObject, mistakes_)) return;
    for (const JsonMember& member : node->members) use(node_at_key(*node, member), member);
  }

  void read_version(ObjectReader& reader) {
    const JsonNode* node = reader.require("chainmail");
    if (node == nullptr) return;
    if (node->kind != NodeKind::kNumber || node->text != "1") {
      mistakes_.add(*node, "must be 1, the version of the form that this launcher reads");
    }
  }

  void read_name(ObjectReader& reader) {
    const JsonNode* node = reader.find("name");
    reader.text("name", spec_.name);
    constexpr const char* kRule =
        "must be 1 to 64 letters, digits, '-', '_' and '.', of which neither '-' nor '.' is first";
    if (node != nullptr && node->kind != NodeKind::kNull && !is_job_name(spec_.name)) {
      mistakes_.add(*node, kRule);
    }
    const auto& given = reading_.settings.name;
    if (given && !is_job_name(*given)) mistakes_.add("--name", kRule);
    if (given) spec_.name = *given;
  }

  // A variable that is in both has one value too many.
  bool check_variable(const JsonNode& key, const std::string& name) {
    if (!is_variable_name(name)) {
      mistakes_.add(key, "the name of a variable has letters, digits and '_', and no digit first");
      return false;
    }
    const bool is_reserved = std::find(kReserved.begin(), kReserved.end(), name) != kReserved.end();
    if (is_reserved || is_batch_ai_name(name)) {
      mistakes_.add(key, "the launcher sets this variable for the ranks");
    }
    const auto [known, is_new] = variables_.try_emplace(name, key);
    if (!is_new) {
      mistakes_.add(key, "the same variable is set at " + std::to_string(known->second.place.line) +
                             ":" + std::to_string(known->second.place.column) + " already");
    }
    return is_new;
  }

  std::optional<std::string> given(const std::string& name) const {
    const auto found = given_.find(name);
    return found == given_.end() ? std::nullopt : std::optional(found->second);
  }

  void read_environment(ObjectReader& reader) {
    each_member(reader, "environment", [&](const JsonNode& key, const JsonMember& member) {
      if (!check_variable(key, member.key) || given(member.key)) return;
      if (member.value.kind == NodeKind::kNull) {
        const bool is_known = reading_.settings.environment.contains(member.key);
        if (!is_known && reading_.settings.is_complete) {
          mistakes_.add(key, "null stands for the launcher's own " + member.key +
                                 ", which is not set; set it there, or give a value here");
        }
        spec_.environment.push_back({member.key, std::nullopt});
      } else if (auto value = text_in(member.value, mistakes_)) {
        checks_.add(member.value, *value, PatternUse::kValue);
        spec_.environment.push_back({member.key, *std::move(value)});
      }
    });
    each_member(reader, "secrets", [&](const JsonNode& key, const JsonMember& member) {
      if (!check_variable(key, member.key)) return;
      auto value = secret_in(reading_, member.value, member.key, given(member.key));
      spec_.secrets.push_back({member.key, std::move(value).value_or("")});
      given_.erase(member.key);
    });
    for (const auto& [name, value] : given_) spec_.secrets.push_back({name, value});
  }

  // A folder's path: relative ones are beside the job file, mounts are known by name.
  std::string folder_in(const JsonNode& node, const std::string& text, PatternUse use) {
    if (text.empty()) {
      mistakes_.add(node, "is empty");
      return "/";
    }
    std::string pattern = mounts_.mapped(node, path_pattern_in(reading_, node, text));
    checks_.add(node, pattern, use);
    return pattern;
  }

  // The same of one that the launcher has to know.
  std::string own_folder_in(const JsonNode& node, const std::string& text) {
    own_nodes_.push_back(node_at(node, NodeKind::kNull));
    return folder_in(node, text, PatternUse::kJob);
  }

  void check_id(const JsonNode& key, const std::string& id) {
    if (!is_id(id)) mistakes_.add(key, "an id has letters, digits and '_'");
  }

  std::string suffix_in(const JsonNode& node) {
    const std::string suffix = text_in(node, mistakes_).value_or("");
    const std::string normal = suffix.empty() ? "" : normal_path(suffix);
    if (suffix.starts_with('/') || normal == ".." || normal.starts_with("../") ||
        suffix.find('$') != std::string::npos) {
      mistakes_.add(node, "must be a path below the job's folder, without variables");
    }
    return normal == "." ? "" : normal;
  }

  void read_folders(ObjectReader& reader) {
    // What a container mounts is known before it starts; otherwise each host looks for itself.
    has_container_ = reader.find("container") != nullptr;
    each_member(reader, "inputs", [&](const JsonNode& key, const JsonMember& member) {
      check_id(key, member.key);
      const auto path = text_in(member.value, mistakes_);
      if (!path) return;
      spec_.inputs.push_back({member.key,
                              has_container_ ? own_folder_in(member.value, *path)
                                             : folder_in(member.value, *path, PatternUse::kHost),
                              ""});
    });
    each_member(reader, "outputs", [&](const JsonNode& key, const JsonMember& member) {
      check_id(key, member.key);
      const bool is_short = member.value.kind == NodeKind::kText;
      std::optional<ObjectReader> parts;
      if (!is_short) parts.emplace(member.value, mistakes_);
      const JsonNode* node = is_short ? &member.value : parts->require("path");
      const JsonNode* suffix = is_short ? nullptr : parts->find("suffix");
      if (parts) parts->refuse_unknown();
      const auto path = node == nullptr ? std::nullopt : text_in(*node, mistakes_);
      if (!path) return;
      JobSpec::Folder output{member.key, own_folder_in(*node, *path),
                             suffix == nullptr ? "" : suffix_in(*suffix)};
      warn_of_same_folder(key, output);
      spec_.outputs.push_back(std::move(output));
    });
  }

  void warn_of_same_folder(const JsonNode& key, const JobSpec::Folder& output) {
    for (const JobSpec::Folder& other : spec_.outputs) {
      if (other.path != output.path || other.suffix != output.suffix) continue;
      mistakes_.warn(key, "has the folder of output " + in_quotes(other.id) +
                              "; give them different suffixes to tell their files apart");
    }
  }

  void read_program(const JsonNode& node) {
    if (node.kind == NodeKind::kText) {
      mistakes_.add(node,
                    "must be a list of words, which no shell reads: [\"./train\", "
                    "\"--epoch\", \"20\"]");
      return;
    }
    if (!check_kind(node, NodeKind::kList, mistakes_)) return;
    for (const JsonNode& item : node.items) {
      auto word = text_in(item, mistakes_);
      if (!word) continue;
      const bool is_path = spec_.program.empty() && word->find('/') != std::string::npos;
      if (is_path) word = path_pattern_in(reading_, item, *word);
      checks_.add(item, *word, PatternUse::kRank);
      spec_.program.push_back(*std::move(word));
    }
    const std::vector<std::string>& words = spec_.program;
    if (node.items.empty() || (!words.empty() && words.front().empty())) {
      mistakes_.add(node, "the name of a program is missing");
    }
    const bool is_shell = words.size() > 2 && words[1] == "-c" &&
                          words.size() == node.items.size() &&
                          std::find(kShells.begin(), kShells.end(), words.front()) != kShells.end();
    if (is_shell) {
      checks_.add(node.items[2], expanded(words[2], Environment()), PatternUse::kShellLine);
    }
  }

  void read_ranks(ObjectReader& reader) {
    reader.number("ranks", 1, kMostRanks, spec_.ranks);
    reader.number("per_node", 1, kMostRanks, spec_.per_node);
  }

  void read_directory(ObjectReader& reader) {
    spec_.directory = as_pattern(reading_.folder);
    const JsonNode* node = reader.find("directory");
    const auto text = node == nullptr ? std::nullopt : text_in(*node, mistakes_);
    if (text) spec_.directory = folder_in(*node, *text, PatternUse::kRank);
  }

  void read_prepare(const JsonNode& node) {
    ObjectReader reader(node, mistakes_);
    const JsonNode* command = reader.require("command");
    reader.text("command", spec_.prepare.command);
    reader.duration("timeout", spec_.prepare.timeout);
    reader.refuse_unknown();
    if (command == nullptr) return;
    checks_.add(*command, spec_.prepare.command, PatternUse::kShellLine);
    if (command->kind == NodeKind::kText && spec_.prepare.command.empty()) {
      mistakes_.add(*command, "is empty");
    }
  }

  void read_logs(const JsonNode& node) {
    ObjectReader reader(node, mistakes_);
    if (const JsonNode* path = reader.find("path")) {
      const auto text = text_in(*path, mistakes_);
      if (text) spec_.logs.path = own_folder_in(*path, *text);
    }
    reader.flag("tag", spec_.logs.tag);
    reader.refuse_unknown();
  }

  // In the order in which they were read.
  void expand_places() {
    PlaceValues values(reading_, spec_);
    std::vector<std::string*> paths;
    if (has_container_) {
      for (JobSpec::Folder& input : spec_.inputs) paths.push_back(&input.path);
    }
    for (JobSpec::Folder& output : spec_.outputs) paths.push_back(&output.path);
    if (own_nodes_.size() > paths.size()) paths.push_back(&spec_.logs.path);
    for (std::size_t i = 0; i < paths.size(); ++i)
      *paths[i] = values.known(own_nodes_[i], *paths[i]);
  }

  void read_parts(ObjectReader& reader) {
    if (const JsonNode* node = reader.find("hosts")) read_hosts(reading_, *node, spec_.hosts);
    if (const JsonNode* node = reader.find("container")) {
      read_container(reading_, *node, spec_.container);
    }
    if (const JsonNode* node = reader.find("limits")) read_limits(reading_, *node, spec_.limits);
    if (const JsonNode* node = reader.find("retry")) read_retry(reading_, *node, spec_.retry);
    if (const JsonNode* node = reader.find("elastic")) read_elastic(reading_, *node, spec_.elastic);
    if (const JsonNode* node = reader.find("options");
        node != nullptr && check_kind(*node, NodeKind::kObject, mistakes_)) {
      spec_.options = options_in(reading_, *node);
    }
  }

  void check_together(const JsonNode& root) {
    const auto ranks = spec_.ranks;
    if (ranks && spec_.per_node && spec_.hosts.count &&
        std::uint64_t{*spec_.per_node} * *spec_.hosts.count < *ranks) {
      mistakes_.add(*root.find("ranks"), std::to_string(*ranks) + " ranks do not fit on " +
                                             std::to_string(*spec_.hosts.count) + " hosts with " +
                                             std::to_string(*spec_.per_node) + " each");
    }
    const JobSpec::Elastic& elastic = spec_.elastic;
    if (ranks && elastic.max > 0 && (*ranks < elastic.min || *ranks > elastic.max)) {
      mistakes_.add(*root.find("ranks"), "lies outside of 'elastic', whose 'min' is " +
                                             std::to_string(elastic.min) + " and 'max' " +
                                             std::to_string(elastic.max));
    }
    for (const JobSpec::Option& option : spec_.options) {
      if (option.flag.starts_with("host-discovery") && !spec_.hosts.from.empty()) {
        mistakes_.add(*root.find("options"),
                      "'host-discovery' and 'hosts.from' exclude each other");
      }
    }
  }

  const JobReading& reading_;
  Mistakes& mistakes_;
  MountTable mounts_;
  std::map<std::string, std::string> given_;  // secrets of --secret that the file has not had yet
  std::map<std::string, JsonNode> variables_;
  PatternChecks checks_;
  JobSpec spec_;
  bool has_container_ = false;
  std::vector<JsonNode> own_nodes_;  // of folders that the launcher has to know
};

}  // namespace

bool is_job_name(const std::string& name) {
  constexpr std::size_t kLongestName = 64;
  return !name.empty() && name.size() <= kLongestName && name.front() != '-' &&
         name.front() != '.' && std::all_of(name.begin(), name.end(), is_in_job_name);
}

std::string job_name_of_file(const std::string& path) {
  std::string name = std::filesystem::path(path).stem().string();
  for (char& c : name) c = is_in_job_name(c) ? c : '-';
  name.resize(std::min<std::size_t>(name.size(), 64));
  name.erase(0, std::min(name.find_first_not_of("-."), name.size()));
  return name.empty() ? "job" : name;
}

JobSpec read_modern_form(const JobReading& reading, const JsonNode& root) {
  JobSpec spec = ModernReader(reading).read(root);
  if (spec.name.empty()) spec.name = job_name_of_file(reading.mistakes.file());
  return spec;
}

}  // namespace chainmail::launch
