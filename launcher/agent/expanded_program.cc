// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/agent/expanded_program.h"

#include <cerrno>
#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "base/error.h"
#include "launcher/job/expansion.h"

namespace chainmail::launch {
namespace {

// What the kernel takes as one word or variable (MAX_ARG_STRLEN).
constexpr std::size_t kMostWordBytes = std::size_t{128} << 10;

// As expanded() has it for an environment.
std::string variable_named(const std::string& name) {
  const std::size_t dot = name.find('.');
  if (dot == std::string::npos) return name;
  return (name.starts_with("input.") ? "AZ_BATCHAI_INPUT_" : "AZ_BATCHAI_OUTPUT_") +
         name.substr(dot + 1);
}

class Expansion {
 public:
  Expansion(const std::map<std::string, std::string>& patterns, const Environment& outside,
            const Environment& fixed)
      : patterns_(patterns), outside_(outside), fixed_(fixed) {}

  // Values that refer to values grow by the product of how often they do.
  std::string expand(const std::string& pattern, const std::string& what) {
    std::size_t bytes = 0;
    std::string text = expanded(pattern, [&](const std::string& name) {
      std::optional<std::string> value =
          bytes > kMostWordBytes ? std::nullopt : std::optional(value_of(name));
      bytes += value ? value->size() : 0;
      return value;
    });
    if (bytes > kMostWordBytes || text.size() > kMostWordBytes) {
      throw SystemError(what + " is longer than the 128 KiB that a program can be given", E2BIG);
    }
    return text;
  }

  const std::string& variable(const std::string& name) {
    const auto known = values_.find(name);
    if (known != values_.end()) return known->second;
    begun_.insert(name);
    std::string value = expand(patterns_.at(name), "the variable " + name);
    begun_.erase(name);
    return values_[name] = std::move(value);
  }

 private:
  std::string value_of(const std::string& written) {
    const std::string name = variable_named(written);
    if (const auto fixed = fixed_.find(name); fixed != fixed_.end()) return fixed->second;
    if (patterns_.contains(name) && !begun_.contains(name)) return variable(name);
    const auto outside = outside_.find(name);
    return outside == outside_.end() ? "" : outside->second;
  }

  const std::map<std::string, std::string>& patterns_;
  const Environment& outside_;
  const Environment& fixed_;
  std::set<std::string> begun_;
  std::map<std::string, std::string> values_;
};

void check(const ExpandedProgram& expanded, const OrderedProgram& program) {
  if (expanded.words.front().empty()) {
    throw SystemError("the program's name '" + program.words.front() + "' is nothing there",
                      ENOENT);
  }
  if (!expanded.working_directory.starts_with('/')) {
    throw SystemError("the working directory '" + program.working_directory + "' is '" +
                          expanded.working_directory + "' there, which is no absolute path",
                      EINVAL);
  }
}

}  // namespace

ExpandedProgram expanded_program(const OrderedProgram& program, Environment outside,
                                 const Environment& fixed) {
  for (const auto& [name, value] : program.variables) outside[name] = value;
  std::string directory = program.working_directory;
  if (program.expands) {
    // One that names PWD means the agent's.
    Expansion expansion(program.patterns, outside, fixed);
    directory = expansion.expand(directory, "the working directory");
  }
  if (!program.variables.contains("PWD")) outside["PWD"] = directory;
  ExpandedProgram result{program.words, directory, outside};
  if (program.expands) {
    Expansion expansion(program.patterns, outside, fixed);
    for (std::string& word : result.words) word = expansion.expand(word, "an argument");
    for (const auto& [name, pattern] : program.patterns) {
      result.environment[name] = expansion.variable(name);
    }
    check(result, program);
  }
  for (const auto& [name, value] : fixed) result.environment[name] = value;
  return result;
}

}  // namespace chainmail::launch
