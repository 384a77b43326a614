// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The table of all verbs: words that count as such only in the first place of the command line.
// --help-all, the man page and the completions are made from it. What they do is elsewhere
// (launcher/jobs). Pure, thread-safe.

#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace chainmail::launch {

struct VerbOption {
  std::vector<std::string> names;  ///< with dashes, the short one first: "-a", "--all"
  std::string value;               ///< what it takes: "TIME"; empty: nothing
  std::string help;                ///< a few words
};

struct JobVerb {
  std::string name;
  std::string operands;  ///< "JOB [ID [PATH]]"; empty: it takes none
  std::string help;      ///< a sentence for --help-all
  std::vector<VerbOption> options;
  std::size_t least_operands = 0;
  std::size_t most_operands = 0;
  bool is_elastic = false;  ///< JOB is an elastic job that runs here (launcher/jobs/job_command.h)
};

/// Of the other verbs, for people.
inline constexpr char kWhatJobIs[] =
    "an id, its unique beginning, a name (the latest job of it) or a folder";

[[nodiscard]] const std::vector<JobVerb>& job_verbs();
/// Null where there is none of this name.
[[nodiscard]] const JobVerb* find_verb(const std::string& name);
/// "ls [-l] [--json] JOB [ID [PATH]]".
[[nodiscard]] std::string synopsis_of(const JobVerb& verb);
/// What `launcher VERB --help` prints.
[[nodiscard]] std::string help_of(const JobVerb& verb);

/// What stands behind a verb.
class VerbWords {
 public:
  /// Options may stand anywhere, several of one letter in one word, and "--" ends them. Throws
  /// UsageError with the verb's synopsis.
  VerbWords(const JobVerb& verb, std::span<const std::string> arguments);

  [[nodiscard]] const std::vector<std::string>& operands() const noexcept { return operands_; }
  /// By the first of its names.
  [[nodiscard]] bool has(const std::string& option) const { return options_.contains(option); }
  /// Of an option that takes one.
  [[nodiscard]] std::optional<std::string> value_of(const std::string& option) const;

 private:
  void read_long(const std::string& word, std::span<const std::string>& rest);
  void read_short(const std::string& word, std::span<const std::string>& rest);
  void take(const VerbOption& option, std::optional<std::string> inline_value,
            std::span<const std::string>& rest);
  [[nodiscard]] const VerbOption* find(const std::string& name) const;
  [[noreturn]] void refuse(const std::string& why) const;

  const JobVerb& verb_;
  std::map<std::string, std::string> options_;
  std::vector<std::string> operands_;
};

}  // namespace chainmail::launch
