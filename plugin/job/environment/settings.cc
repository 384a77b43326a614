// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/job/environment/settings.h"

#include <cstddef>
#include <fstream>

#include "base/error.h"

namespace chainmail::internal {
namespace {

std::string read_file(const std::string& path) {
  constexpr std::size_t kMost = std::size_t{64} << 10;  // far above any table
  std::ifstream file(path);
  std::string text(kMost, '\0');
  file.read(text.data(), static_cast<std::streamsize>(kMost));
  const auto length = static_cast<std::size_t>(file.gcount());
  if (length == 0 || length == kMost) {
    throw InvalidArgument("environment variable CHAINMAIL_TUNING=\"" + path +
                          "\" names no readable table of algorithms; see docs/env.md");
  }
  text.resize(length);
  return text;
}

// One of two words; nothing when unset.
std::optional<std::string> read_word(const Environment& environment, const std::string& name,
                                     const std::string& one, const std::string& other) {
  const auto word = environment(name);
  if (word && *word != one && *word != other) {
    throw InvalidArgument("environment variable " + name + "=\"" + *word + "\" is neither " + one +
                          " nor " + other);
  }
  return word;
}

// A word that is misspelt must not leave a job unprotected.
ops::Encryption read_encryption(const std::string& word) {
  for (const auto mode :
       {ops::Encryption::kOff, ops::Encryption::kAuthenticate, ops::Encryption::kEncrypt}) {
    if (word == ops::to_string(mode)) return mode;
  }
  throw InvalidArgument("environment variable CHAINMAIL_ENCRYPT=\"" + word +
                        "\" is none of encrypt, authenticate and off");
}

}  // namespace

JobSettings read_settings(const Environment& environment) {
  JobSettings settings;
  // base/log.cc reads it, at the first line of the process and without a way to refuse it.
  const std::string level = environment("CHAINMAIL_LOG").value_or("warning");
  if (level != "info" && level != "warning" && level != "error") {
    throw InvalidArgument("environment variable CHAINMAIL_LOG=\"" + level +
                          "\" is none of info, warning and error");
  }
  // A day is longer than any operation; more is a mistake in the unit.
  if (const auto seconds = read_integer(environment, "CHAINMAIL_TIMEOUT", 1, 86400)) {
    settings.timeout = std::chrono::seconds(*seconds);
  }
  settings.interface = environment("CHAINMAIL_INTERFACE").value_or("");
  settings.use_shared_memory = read_word(environment, "CHAINMAIL_LOCAL", "shm", "tcp") != "tcp";
  if (const auto cross = read_word(environment, "CHAINMAIL_CROSS", "tcp", "mpi")) {
    settings.cross = ops::parse_cross_transport(*cross);
  }
  if (const auto encrypt = environment("CHAINMAIL_ENCRYPT")) {
    settings.encryption = read_encryption(*encrypt);
  }
  const auto path = environment("CHAINMAIL_TUNING");
  settings.measures_tuning = path == "measure";
  if (path && !settings.measures_tuning) {
    settings.tuning = ops::parse_tuning(read_file(*path), "CHAINMAIL_TUNING=" + *path);
  }
  return settings;
}

void apply(const JobSettings& settings, ops::GroupOptions& options) {
  if (settings.timeout) options.timeout = *settings.timeout;
  if (!settings.interface.empty()) options.interface = settings.interface;
  if (!settings.use_shared_memory) options.use_shared_memory = false;
  if (!settings.tuning.empty()) options.tuning = settings.tuning;
  if (settings.measures_tuning) options.measures_tuning = true;
  if (settings.cross) options.cross = *settings.cross;
  if (settings.encryption) options.encryption = *settings.encryption;
}

}  // namespace chainmail::internal
