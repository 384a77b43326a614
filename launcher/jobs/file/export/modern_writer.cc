// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "launcher/job/expansion.h"
#include "launcher/jobs/file/job_file.h"
#include "launcher/jobs/file/text/durations.h"

namespace chainmail::launch {
namespace {

using OrderedJson = nlohmann::ordered_json;
using std::chrono::milliseconds;

constexpr std::size_t kWidth = 100;

std::string one_line(const OrderedJson& json) {
  return json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

// On one line where it fits, with blanks as people write them.
std::string spaced(const OrderedJson& json) {
  if (!json.is_structured()) return one_line(json);
  std::string text = json.is_object() ? "{" : "[";
  const char* between = "";
  for (const auto& [key, value] : json.items()) {
    text += std::exchange(between, ", ");
    if (json.is_object()) text += one_line(key) + ": ";
    text += spaced(value);
  }
  return text + (json.is_object() ? "}" : "]");
}

// As many to a line as there is room for.
std::string filled(const OrderedJson& list, const std::string& indent) {
  std::string text = "[";
  std::size_t used = kWidth;
  const char* between = "";
  for (const OrderedJson& item : list) {
    const std::string word = one_line(item);
    const bool fits = used + word.size() + 3 <= kWidth;
    text += std::exchange(between, ",");
    text += (fits ? " " : "\n" + indent) + word;
    used = (fits ? used + 2 : indent.size()) + word.size();
  }
  return text;
}

bool is_list_of_scalars(const OrderedJson& json) {
  return json.is_array() && std::none_of(json.begin(), json.end(), [](const OrderedJson& item) {
           return item.is_structured();
         });
}

std::string laid_out(const OrderedJson& json, std::size_t indent, std::size_t used) {
  const std::string line = spaced(json);
  const bool is_whole = indent == 0;
  if (!json.is_structured() || json.empty() || (!is_whole && used + line.size() < kWidth)) {
    return line;
  }
  if (is_list_of_scalars(json)) {
    return filled(json, std::string(indent + 2, ' ')) + "\n" + std::string(indent, ' ') + "]";
  }
  std::string text = json.is_object() ? "{" : "[";
  const char* between = "";
  for (const auto& [key, value] : json.items()) {
    const std::string name = json.is_object() ? one_line(key) + ": " : "";
    text += std::exchange(between, ",");
    text += "\n" + std::string(indent + 2, ' ') + name +
            laid_out(value, indent + 2, indent + 2 + name.size());
  }
  return text + "\n" + std::string(indent, ' ') + (json.is_object() ? "}" : "]");
}

// Paths below the job file's folder are written relative to it, so that both can be moved.
class PathWriter {
 public:
  explicit PathWriter(const std::string& job_file)
      : folder_(std::filesystem::path(job_file).parent_path().string()) {}

  [[nodiscard]] std::string path(const std::string& path) const { return below(folder_, path); }
  [[nodiscard]] std::string pattern(const std::string& pattern) const {
    return below(as_pattern(folder_), pattern);
  }
  /// One that has a '/' in it, without which it would be no path.
  [[nodiscard]] static std::string with_slash(const std::string& shortened,
                                              const std::string& whole) {
    return shortened == whole || shortened.find('/') != std::string::npos ? shortened
                                                                          : "./" + shortened;
  }
  [[nodiscard]] bool is_folder(const std::string& pattern) const {
    return pattern == as_pattern(folder_);
  }

 private:
  static std::string below(const std::string& folder, const std::string& path) {
    if (folder.size() < 2) return path;
    if (path == folder) return ".";
    if (!path.starts_with(folder + "/")) return path;
    const std::string rest = path.substr(folder.size() + 1);
    const bool means_more = rest.empty() || rest.front() == '~' || rest.front() == '$';
    return means_more ? "./" + rest : rest;
  }

  std::string folder_;
};

void put_duration(OrderedJson& json, const char* key, const std::optional<milliseconds>& value) {
  if (value) json[key] = duration_text(*value);
}

void put_unless(bool is_default, OrderedJson& json, const char* key, OrderedJson value) {
  if (!is_default) json[key] = std::move(value);
}

// With `is_whole` also what nobody has said.
class JobWriter {
 public:
  JobWriter(const JobSpec& spec, bool is_whole)
      : spec_(spec), is_whole_(is_whole), paths_(is_whole ? "" : spec.file) {}

  OrderedJson write() {
    json_["chainmail"] = 1;
    json_["name"] = spec_.name;
    put_program();
    if (spec_.ranks) json_["ranks"] = *spec_.ranks;
    if (spec_.per_node) json_["per_node"] = *spec_.per_node;
    put("hosts", hosts());
    if (is_whole_ || !paths_.is_folder(spec_.directory)) {
      json_["directory"] = paths_.pattern(spec_.directory);
    }
    put_variables();
    put_folders();
    put("prepare", prepare());
    if (!spec_.container.image.empty()) put("container", container());
    put("limits", limits());
    put("retry", retry());
    if (spec_.elastic.max > 0) {
      json_["elastic"] = {{"min", spec_.elastic.min}, {"max", spec_.elastic.max}};
    }
    put("logs", logs());
    put("options", options());
    return std::move(json_);
  }

 private:
  void put(const char* key, OrderedJson value) {
    if (!value.empty()) json_[key] = std::move(value);
  }

  void put_program() {
    json_["program"] = spec_.program;
    if (spec_.program.empty()) return;
    const std::string& name = spec_.program.front();
    if (name.starts_with('/')) {
      json_["program"][0] = PathWriter::with_slash(paths_.pattern(name), name);
    }
  }

  OrderedJson hosts() const {
    const JobSpec::Hosts& hosts = spec_.hosts;
    OrderedJson json = OrderedJson::object();
    const std::string from = PathWriter::with_slash(paths_.path(hosts.from), hosts.from);
    put_unless(hosts.from.empty(), json, "from", from);
    if (hosts.count) json["count"] = *hosts.count;
    const bool has_default_wait = !is_whole_ && hosts.wait == JobSpec::Hosts().wait;
    put_unless(has_default_wait, json, "wait", duration_text(hosts.wait));
    if (!hosts.resize.empty()) {
      const std::string& program = hosts.resize.front();
      json["resize"] = hosts.resize;
      json["resize"][0] = PathWriter::with_slash(paths_.path(program), program);
    }
    put_duration(json, "idle", hosts.idle);
    return json;
  }

  void put_variables() {
    OrderedJson environment = OrderedJson::object();
    for (const JobSpec::Variable& variable : spec_.environment) {
      environment[variable.name] = variable.value ? OrderedJson(*variable.value) : OrderedJson();
    }
    put("environment", std::move(environment));
    OrderedJson secrets = OrderedJson::object();
    for (const JobSpec::Secret& secret : spec_.secrets) {
      secrets[secret.name] = is_whole_ ? OrderedJson{{"redacted", true}} : OrderedJson();
    }
    put("secrets", std::move(secrets));
  }

  void put_folders() {
    OrderedJson inputs = OrderedJson::object();
    for (const JobSpec::Folder& input : spec_.inputs) inputs[input.id] = paths_.pattern(input.path);
    put("inputs", std::move(inputs));
    OrderedJson outputs = OrderedJson::object();
    for (const JobSpec::Folder& output : spec_.outputs) {
      OrderedJson folder = {{"path", paths_.pattern(output.path)}};
      put_unless(output.suffix.empty(), folder, "suffix", output.suffix);
      outputs[output.id] = std::move(folder);
    }
    put("outputs", std::move(outputs));
    OrderedJson mounts = OrderedJson::object();
    for (const JobSpec::Mount& mount : spec_.mounts) {
      mounts[mount.name] =
          mount.folder.empty() ? OrderedJson() : OrderedJson(paths_.path(mount.folder));
    }
    put("mounts", std::move(mounts));
  }

  OrderedJson prepare() const {
    OrderedJson json = OrderedJson::object();
    if (spec_.prepare.command.empty()) return json;
    json["command"] = spec_.prepare.command;
    put_duration(json, "timeout", spec_.prepare.timeout);
    return json;
  }

  OrderedJson container() const {
    const JobSpec::Container& container = spec_.container;
    OrderedJson json = {{"engine", container.engine}, {"image", container.image}};
    put_unless(container.mounts.empty(), json, "mounts", container.mounts);
    put_unless(container.gpus.empty(), json, "gpus", container.gpus);
    put_unless(container.shm_size.empty(), json, "shm_size", container.shm_size);
    return json;
  }

  OrderedJson limits() const {
    OrderedJson json = OrderedJson::object();
    put_duration(json, "time", spec_.limits.time);
    put_duration(json, "stall", spec_.limits.stall);
    put_duration(json, "grace", spec_.limits.grace);
    return json;
  }

  OrderedJson retry() const {
    const JobSpec::Retry defaults;
    const JobSpec::Retry& retry = spec_.retry;
    OrderedJson json = OrderedJson::object();
    const auto is_left_out = [&](bool is_default) { return is_default && !is_whole_; };
    put_unless(is_left_out(retry.failures == defaults.failures), json, "failures", retry.failures);
    put_unless(is_left_out(retry.losses == defaults.losses), json, "losses", retry.losses);
    put_unless(retry.exit_codes.empty(), json, "exit_codes", retry.exit_codes);
    put_unless(is_left_out(retry.wait == defaults.wait), json, "wait", duration_text(retry.wait));
    return json;
  }

  OrderedJson logs() const {
    OrderedJson json = OrderedJson::object();
    put_unless(spec_.logs.path.empty(), json, "path", paths_.pattern(spec_.logs.path));
    put_unless(!spec_.logs.tag, json, "tag", true);
    return json;
  }

  OrderedJson options() const {
    OrderedJson json = OrderedJson::object();
    for (const JobSpec::Option& option : spec_.options) {
      json[option.flag] = option.value ? OrderedJson(*option.value) : OrderedJson(true);
    }
    return json;
  }

  const JobSpec& spec_;
  bool is_whole_;
  PathWriter paths_;
  OrderedJson json_ = OrderedJson::object();
};

}  // namespace

std::string modern_text(const JobSpec& spec) {
  std::string head;
  if (spec.is_batch_ai) {
    head =
        "// Made of a file of Azure Batch AI's. Keep it in that file's folder, where relative "
        "paths "
        "begin.\n";
  }
  return head + laid_out(JobWriter(spec, /*is_whole=*/false).write(), 0, 0) + "\n";
}

std::string normalised_json(const JobSpec& spec) {
  OrderedJson json = JobWriter(spec, /*is_whole=*/true).write();
  json["file"] = spec.file;
  json["sha256"] = spec.sha256;
  json["form"] = spec.is_batch_ai ? "batch_ai" : "chainmail";
  json["warnings"] = spec.warnings;
  return one_line(json);
}

}  // namespace chainmail::launch
