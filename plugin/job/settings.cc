// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/job/settings.h"

#include "base/error.h"

namespace chainmail::internal {

JobSettings read_settings(const Environment& environment) {
  JobSettings settings;
  // A day is longer than any operation; more is a mistake in the unit.
  if (const auto seconds = read_integer(environment, "CHAINMAIL_TIMEOUT", 1, 86400)) {
    settings.timeout = std::chrono::seconds(*seconds);
  }
  settings.interface = environment("CHAINMAIL_INTERFACE").value_or("");
  const std::string local = environment("CHAINMAIL_LOCAL").value_or("shm");
  if (local != "shm" && local != "tcp") {
    throw InvalidArgument("environment variable CHAINMAIL_LOCAL=\"" + local +
                          "\" is neither shm nor tcp");
  }
  settings.use_shared_memory = local == "shm";
  return settings;
}

void apply(const JobSettings& settings, ops::GroupOptions& options) {
  if (settings.timeout) options.timeout = *settings.timeout;
  if (!settings.interface.empty()) options.interface = settings.interface;
  if (!settings.use_shared_memory) options.use_shared_memory = false;
}

}  // namespace chainmail::internal
