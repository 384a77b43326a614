// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What is wrong with a file that a person has written: everything at once, each with its place.
// One thread.

#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/jobs/file/text/json_text.h"

namespace chainmail::launch {

class Mistakes {
 public:
  /// `file` is what messages call it.
  explicit Mistakes(std::string file) : file_(std::move(file)) {}

  void add(const JsonNode& at, const std::string& message);
  void add(const JsonProblem& problem);
  /// Of a word on the command line, "--secret TOKEN", or of anything else that has a name.
  void add(const std::string& where, const std::string& message);
  void warn(const JsonNode& at, const std::string& message);
  /// A warning that is shown with the mistakes as well, which it may explain: a mistyped key.
  void warn_of_key(const JsonNode& at, const std::string& message);
  void warn(const std::string& where, const std::string& message);
  /// Those of another file that this one depends on.
  void add_all(const Mistakes& other);

  [[nodiscard]] bool empty() const noexcept { return !has_mistake_; }
  /// One line each, in the order of the file; 100 at most, and how many more there are.
  [[nodiscard]] std::string text() const;
  /// The same of the warnings, all.
  [[nodiscard]] std::vector<std::string> warnings() const;
  [[nodiscard]] const std::string& file() const noexcept { return file_; }

 private:
  enum class Weight { kWarning, kKeyWarning, kMistake };
  struct Entry {
    Weight weight;
    TextPlace place;
    std::string line;
  };

  [[nodiscard]] std::string where(const JsonNode& at) const;
  void keep(Weight weight, TextPlace place, std::string line);
  [[nodiscard]] std::vector<Entry> in_order() const;

  std::string file_;
  std::vector<Entry> entries_;
  bool has_mistake_ = false;
};

/// ", did you mean 'nodeCount'?", or nothing.
[[nodiscard]] std::string did_you_mean(std::string_view name, std::span<const std::string> known);

}  // namespace chainmail::launch
