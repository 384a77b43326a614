// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The members of a JSON object by name and type, with a mistake for each that is of another type,
// missing or unknown. A value of --set is read as the type that is wanted. One thread.

#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "launcher/jobs/file/text/json_text.h"
#include "launcher/jobs/file/text/mistakes.h"

namespace chainmail::launch {

/// What a value says, or nothing and a mistake.
[[nodiscard]] std::optional<std::string> text_in(const JsonNode& node, Mistakes& mistakes);
[[nodiscard]] std::optional<bool> bool_in(const JsonNode& node, Mistakes& mistakes);
[[nodiscard]] std::optional<std::int64_t> whole_number_in(const JsonNode& node, std::int64_t least,
                                                          std::int64_t most, Mistakes& mistakes);
/// "30m", or a number of seconds.
[[nodiscard]] std::optional<std::chrono::milliseconds> duration_in(const JsonNode& node,
                                                                   Mistakes& mistakes);
[[nodiscard]] bool check_kind(const JsonNode& node, JsonNode::Kind kind, Mistakes& mistakes);

class ObjectReader {
 public:
  /// Of something else than an object, which is a mistake, nothing is read. What null means is for
  /// `nulls_are_absent` to say.
  ObjectReader(const JsonNode& node, Mistakes& mistakes, bool nulls_are_absent = false);

  /// Null if it is missing.
  const JsonNode* find(const std::string& key);
  /// The same, and a mistake.
  const JsonNode* require(const std::string& key);

  /// `out` stays as it is where the member is missing or of another type.
  void text(const std::string& key, std::string& out);
  void flag(const std::string& key, bool& out);
  void number(const std::string& key, std::uint32_t least, std::uint32_t most,
              std::optional<std::uint32_t>& out);
  void number(const std::string& key, std::uint32_t least, std::uint32_t most, std::uint32_t& out);
  void duration(const std::string& key, std::optional<std::chrono::milliseconds>& out);
  void duration(const std::string& key, std::chrono::milliseconds& out);

  /// Keys that nobody has asked for.
  void refuse_unknown();
  void warn_of_unknown();

 private:
  [[nodiscard]] std::vector<const JsonMember*> unknown() const;
  [[nodiscard]] std::string meant_by(const std::string& key, std::size_t index) const;

  const JsonNode& node_;
  Mistakes& mistakes_;
  bool nulls_are_absent_;
  std::vector<std::string> known_;
};

/// A node at the place of another, for what is said there in other words.
[[nodiscard]] JsonNode node_at(const JsonNode& place, JsonNode::Kind kind, std::string text = "");
/// The place of a member's key.
[[nodiscard]] JsonNode node_at_key(const JsonNode& object, const JsonMember& member);

}  // namespace chainmail::launch
