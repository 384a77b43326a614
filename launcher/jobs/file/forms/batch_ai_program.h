// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Which program a Batch AI job runs, and how many times: the ten kinds of "...Settings". One
// thread.

#pragma once

#include <string>
#include <vector>

#include "launcher/jobs/file/text/object_reader.h"
#include "launcher/jobs/file/values/job_reading.h"

namespace chainmail::launch {

struct BatchAiProgram {
  std::vector<JsonNode> words;  ///< patterns, at the places of what they are made of
  std::uint32_t ranks = 1;
  JsonNode ranks_at;  ///< where the number stands
};

/// Of the one kind of settings that `properties` have. Mistakes: none, several, and what cannot be
/// run here.
[[nodiscard]] BatchAiProgram batch_ai_program(const JobReading& reading, ObjectReader& properties,
                                              const JsonNode& node, std::uint32_t node_count);

/// "chainerSettings" and the others.
[[nodiscard]] std::vector<std::string> batch_ai_settings_keys();

}  // namespace chainmail::launch
