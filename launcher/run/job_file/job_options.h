// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// A job file in the words of the command line, which come before the user's own: what is typed
// wins. Pure.

#pragma once

#include <span>
#include <string>
#include <vector>

#include "launcher/job/options.h"
#include "launcher/jobs/file/job_spec.h"
#include "launcher/run/job_file/job_variables.h"

namespace chainmail::launch {

/// The file's options, without its program, variables and preparation. `typed`: what the user has
/// typed; hosts there take the place of the file's.
[[nodiscard]] std::vector<std::string> option_words(const JobSpec& spec, const Options& typed);

/// The options of the job: the file's, then the words that the user typed; and its program.
/// Throws UsageError.
[[nodiscard]] Options job_options(const JobSpec& spec, std::span<const std::string> arguments);

/// What depends on the hosts of an attempt: variables, the preparation, what is not to be said.
void complete_for_hosts(const JobSpec& spec, const JobPlaces& places,
                        const std::vector<Host>& hosts, Options& options);

/// The same options without the values of secrets, for whoever prints them.
[[nodiscard]] Options with_hidden_secrets(const JobSpec& spec, Options options);

/// The container of the job; inside, the job's folders are where they are outside.
[[nodiscard]] Container container_of(const JobSpec& spec, const JobPlaces& places,
                                     const std::string& uuid, const std::string& directory);

}  // namespace chainmail::launch
