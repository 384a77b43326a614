// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/jobs/file/values/place_values.h"

#include <algorithm>
#include <vector>

#include "launcher/hosts/host_text.h"
#include "launcher/job/expansion.h"
#include "launcher/jobs/file/values/pattern_checks.h"

namespace chainmail::launch {
namespace {

// PATH_MAX. Values that name values grow by the product of how often they do.
constexpr std::size_t kMostPlaceBytes = 4096;
// And take as long, also where they are empty.
constexpr std::size_t kMostSteps = 65536;
constexpr std::size_t kDeepest = 100;

bool is_left_to_checks(const std::string& name) {
  return is_rank_variable(name) || is_batch_ai_name(variable_of(name));
}

}  // namespace

PlaceValues::PlaceValues(const JobReading& reading, const JobSpec& spec)
    : reading_(reading), spec_(spec) {
  for (const JobSpec::Variable& variable : spec.environment) {
    if (variable.value) given_.emplace(variable.name, &*variable.value);
  }
}

std::optional<std::string> PlaceValues::text(const std::string& pattern, Search& search) {
  std::size_t bytes = 0;
  std::string whole = expanded(pattern, [&](const std::string& name) -> std::optional<std::string> {
    if (!search.problem.empty()) return std::nullopt;
    auto found = value(name, search);
    bytes += found ? found->size() : 0;
    if (bytes > kMostPlaceBytes)
      search.problem = "with its variables it is longer than a path may be";
    return found;
  });
  return search.problem.empty() ? std::optional(std::move(whole)) : std::nullopt;
}

std::optional<std::string> PlaceValues::value(const std::string& name, Search& search) {
  const auto given = given_.find(name);
  if (++steps_ > kMostSteps || search.begun.size() > kDeepest) {
    search.problem = "has variables that name too many others";
  } else if (is_secret(spec_, name)) {
    search.problem = secret_in_sight(name);
  } else if (is_left_to_checks(name)) {
    search.problem =
        "the value of $" + name + " is not the same everywhere, and this folder is one";
  } else if (given != given_.end() && search.begun.insert(name).second) {
    auto found = text(*given->second, search);
    search.begun.erase(name);
    return found;
  } else {
    const auto own = reading_.settings.environment.find(name);
    if (own != reading_.settings.environment.end() && !own->second.empty()) return own->second;
    search.problem = "$" + name +
                     " has no value here, and the launcher must know this folder before the job "
                     "starts: set it in the launcher's environment, or give it in 'environment'";
  }
  return std::nullopt;
}

std::string PlaceValues::known(const JsonNode& at, const std::string& pattern) {
  std::vector<std::string> names;
  try {
    names = names_in(pattern);
  } catch (const UsageError&) {
    return pattern;
  }
  if (names.empty() || std::any_of(names.begin(), names.end(), is_left_to_checks)) return pattern;
  Search search;
  const auto path = text(pattern, search);
  if (path && path->starts_with('/')) return as_pattern(normal_path(*path));
  if (path) search.problem = "is " + in_quotes(*path) + " here, which is no absolute path";
  reading_.mistakes.add(at, search.problem);
  return pattern;
}

}  // namespace chainmail::launch
