// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The table of all options: their names in every dialect, what they do, and their line of help.
// One entry here is all that a new option needs. Pure, thread-safe.

#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "launcher/job/options.h"

namespace chainmail::launch {

/// A flag on the command line and the words that may belong to it.
class FlagWords {
 public:
  /// `arguments` begins with the flag itself.
  explicit FlagWords(std::span<const std::string> arguments);

  /// As written, without "=value".
  const std::string& flag() const noexcept { return flag_; }
  /// Without dashes, '_' written as '-'.
  [[nodiscard]] std::string name() const;
  [[nodiscard]] bool has_one_dash() const noexcept { return flag_.compare(0, 2, "--") != 0; }
  /// What stands after '=', then one word after the other. Throws UsageError when none is left.
  std::string value();
  /// For a flag without a value. Throws UsageError for "--flag=...".
  void no_value() const;
  /// How many words of the arguments have been used, the flag among them.
  [[nodiscard]] std::size_t used() const noexcept { return used_; }

 private:
  std::span<const std::string> arguments_;
  std::string flag_;
  bool has_inline_value_ = false;
  bool took_inline_value_ = false;
  std::size_t used_ = 1;
};

/// Where an option's value goes.
struct FlagTarget {
  Options& job;
  Application& application;  ///< the program that is being read
};

/// kCommon stands in --help, kMore in --help-all only, kAlias in neither.
enum class HelpLevel { kCommon, kMore, kAlias };

struct Flag {
  std::vector<std::string> names;  ///< without dashes; '_' written as '-'
  HelpLevel level = HelpLevel::kCommon;
  std::string synopsis;  ///< "-n, -np N"
  std::string help;      ///< a few words; '\n' begins another line
  std::function<void(FlagTarget target, FlagWords& words)> apply;
};

[[nodiscard]] const std::vector<Flag>& known_flags();

/// Null when there is none of this name. Names are as FlagWords::name() gives them.
[[nodiscard]] const Flag* find_flag(const std::string& name);

/// The name of an option that looks most like this one, with its dashes; empty: none does.
[[nodiscard]] std::string nearest_flag(const std::string& name);

/// For an option of mpirun, Hydra's mpiexec, horovodrun, torchrun, deepspeed or srun that this
/// launcher does not have: what to say here instead, in a sentence that begins with the option as
/// written. `name` as FlagWords::name() gives it; `arguments` begins with the option.
[[nodiscard]] std::optional<std::string> foreign_option(const std::string& name,
                                                        std::span<const std::string> arguments);

}  // namespace chainmail::launch
