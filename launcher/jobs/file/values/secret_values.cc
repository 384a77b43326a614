// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/jobs/file/values/secret_values.h"

#include <sys/stat.h>

#include <algorithm>

#include "launcher/files/text_file.h"
#include "launcher/hosts/host_text.h"
#include "launcher/jobs/file/text/object_reader.h"

namespace chainmail::launch {
namespace {

constexpr mode_t kOfOthers = S_IRWXG | S_IRWXO;

std::optional<std::string> value_in_file(const JobReading& reading, const JsonNode& at,
                                         const std::string& path, Pipes pipes) {
  std::string value;
  try {
    constexpr std::size_t kMostBytes = std::size_t{1} << 20;
    value = read_host_text(path, "the secret's file", pipes, kMostBytes);
  } catch (const UsageError& error) {
    reading.mistakes.add(at, printable(error.what()));
    return std::nullopt;
  }
  // As an editor ends a file.
  if (value.ends_with('\n')) value.pop_back();
  if (value.ends_with('\r')) value.pop_back();
  if (value.size() > kMaxSecretBytes || value.find('\0') != std::string::npos) {
    reading.mistakes.add(at, "the secret's file " + printable(path) +
                                 " is no value of a variable: it must be 64 KiB at most and have "
                                 "no zero bytes");
    return std::nullopt;
  }
  struct stat status {};
  if (stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) &&
      (status.st_mode & kOfOthers) != 0) {
    reading.mistakes.warn(at, "others may read the secret's file; chmod 600 " + printable(path));
  }
  return value;
}

std::optional<std::string> value_of_option(const JobReading& reading, const JsonNode& at,
                                           const std::string& name, const std::string& source) {
  if (source.starts_with('@')) {
    // Not beside the job file, but where whoever types it is. A shell expands "~" at the beginning
    // only.
    const std::string path = source.substr(1);
    const bool is_of_home = path.starts_with("~/");
    return value_in_file(reading, at, is_of_home ? path_in(reading, at, path) : path,
                         Pipes::kWaitFor);
  }
  if (!source.empty()) {
    reading.mistakes.add(at,
                         "a value on the command line can be read by everybody on this machine; "
                         "put it into the launcher's environment or into a file: --secret " +
                             name + "=@FILE");
    return std::nullopt;
  }
  const auto value = reading.settings.environment.find(name);
  if (value != reading.settings.environment.end()) return value->second;
  reading.mistakes.add(at,
                       "the launcher's environment has no such variable; set it, or give a "
                       "file: --secret " +
                           name + "=@FILE");
  return std::nullopt;
}

}  // namespace

bool is_variable_name(const std::string& name) {
  const auto is_letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  };
  return !name.empty() && is_letter(name.front()) &&
         std::all_of(name.begin(), name.end(),
                     [&](char c) { return is_letter(c) || (c >= '0' && c <= '9'); });
}

std::map<std::string, std::string> secrets_of_options(const JobReading& reading) {
  std::map<std::string, std::string> secrets;
  for (const std::string& option : reading.settings.secrets) {
    const std::size_t equals = option.find('=');
    const std::string name = option.substr(0, equals);
    JsonNode at;
    at.option = "--secret";
    if (!is_variable_name(name)) {
      reading.mistakes.add(at, "wants the name of a variable, or NAME=@FILE");
      continue;
    }
    at.option += " " + name;
    const bool has_empty_value = equals != std::string::npos && equals + 1 == option.size();
    if (has_empty_value) {
      reading.mistakes.add(at, "'=' wants @FILE behind it");
      continue;
    }
    const std::string source = equals == std::string::npos ? "" : option.substr(equals + 1);
    if (auto value = value_of_option(reading, at, name, source)) {
      secrets.insert_or_assign(name, *std::move(value));
    }
  }
  return secrets;
}

std::optional<std::string> secret_in(const JobReading& reading, const JsonNode& node,
                                     const std::string& name,
                                     const std::optional<std::string>& given) {
  Mistakes& mistakes = reading.mistakes;
  if (node.kind == JsonNode::Kind::kText || (!node.option.empty() && !node.text.empty())) {
    if (!node.option.empty()) {
      mistakes.add(node, "a secret's value has no place on the command line; use --secret " + name +
                             "=@FILE");
    } else if (reading.others_can_read) {
      mistakes.warn(
          node, "others may read this file, and the secret in it; chmod 600 " + mistakes.file());
    }
    return given ? given : node.text;
  }
  if (node.kind == JsonNode::Kind::kNull) {
    if (given) return given;
    const auto own = reading.settings.environment.find(name);
    if (own != reading.settings.environment.end()) return own->second;
    if (!reading.settings.is_complete) return "";
    mistakes.add(node, "has no value: set " + name +
                           " in the launcher's environment, or add "
                           "--secret " +
                           name + "=@FILE");
    return std::nullopt;
  }
  if (node.kind != JsonNode::Kind::kObject) {
    mistakes.add(node, "must be null, a text or {\"file\": PATH}");
    return std::nullopt;
  }
  ObjectReader reader(node, mistakes);
  const JsonNode* file = reader.require("file");
  reader.refuse_unknown();
  const auto path = file == nullptr ? std::nullopt : text_in(*file, mistakes);
  if (!path || given) return given;
  if (!reading.settings.is_complete) return "";
  return value_in_file(reading, *file, path_in(reading, *file, *path), Pipes::kRefuse);
}

}  // namespace chainmail::launch
