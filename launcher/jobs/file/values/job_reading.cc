// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/jobs/file/values/job_reading.h"

#include <filesystem>

#include "launcher/job/expansion.h"

namespace chainmail::launch {
namespace {

bool is_below_home(const std::string& text) { return text == "~" || text.starts_with("~/"); }

// What is none is left for who checks the names in it.
bool is_pattern(const std::string& text) {
  try {
    (void)names_in(text);
    return true;
  } catch (const UsageError&) {
    return false;
  }
}

std::string home_of(const JobReading& reading, const JsonNode& at) {
  const auto home = value_of(reading.settings.environment, "HOME");
  if (home && home->starts_with('/')) return *home;
  reading.mistakes.add(at, "'~' is not known here: $HOME is not set; write the whole path");
  return "/";
}

std::string resolved(const JobReading& reading, const JsonNode& at, const std::string& text) {
  if (text.empty()) reading.mistakes.add(at, "is empty");
  if (is_below_home(text)) return normal_path(home_of(reading, at) + text.substr(1));
  return normal_path(text.starts_with('/') ? text : reading.folder + "/" + text);
}

}  // namespace

std::string normal_path(const std::string& path) {
  std::string normal = std::filesystem::path(path).lexically_normal().string();
  while (normal.size() > 1 && normal.back() == '/') normal.pop_back();
  return normal;
}

std::string path_in(const JobReading& reading, const JsonNode& at, const std::string& text) {
  if (text.starts_with('$')) {
    reading.mistakes.add(at,
                         "no variables are expanded here; write the path itself, './$...' if its "
                         "name begins with a dollar");
  }
  return resolved(reading, at, text);
}

std::string path_pattern_in(const JobReading& reading, const JsonNode& at,
                            const std::string& pattern) {
  if (!is_pattern(pattern)) return pattern;
  if (names_in(pattern).empty()) {
    return as_pattern(resolved(reading, at, expanded(pattern, Environment())));
  }
  // ".." behind a variable is for the host that knows its value.
  if (is_below_home(pattern)) return as_pattern(home_of(reading, at)) + pattern.substr(1);
  if (pattern.starts_with('/')) return pattern;
  if (pattern.starts_with('$') && !pattern.starts_with("$$")) return pattern;
  return as_pattern(reading.folder) + "/" + pattern.substr(pattern.starts_with("./") ? 2 : 0);
}

}  // namespace chainmail::launch
