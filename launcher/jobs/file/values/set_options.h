// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// --set limits.time=1h: a value of the modern form from the command line, which is checked like
// those of the file. Pure, thread-safe.

#pragma once

#include <span>
#include <string>

#include "launcher/jobs/file/text/json_text.h"
#include "launcher/jobs/file/text/mistakes.h"

namespace chainmail::launch {

/// Puts each into the tree, in place of what is there. The value is JSON, or else a text.
void apply_sets(JsonNode& root, std::span<const std::string> sets, Mistakes& mistakes);

}  // namespace chainmail::launch
