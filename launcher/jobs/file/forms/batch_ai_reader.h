// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Azure Batch AI's job files (2018-05-01, 2018-03-01, 2017-09-01-preview), said in the words of the
// modern form: one reader then checks both. docs/coming_from/batch_ai.md has every key. One thread.

#pragma once

#include "launcher/jobs/file/values/job_reading.h"

namespace chainmail::launch {

/// The modern form's tree, whose nodes have the places that they come from. What has no counterpart
/// is a mistake, what has no effect here a warning.
[[nodiscard]] JsonNode modern_form_of(const JobReading& reading, const JsonNode& root);

/// Whether a tree is one of these files: it has "properties", Batch AI's "$schema", or one of the
/// keys that stand below "properties" otherwise.
[[nodiscard]] bool is_batch_ai_form(const JsonNode& root);

}  // namespace chainmail::launch
