// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/run/attempts/retry_policy.h"

#include <algorithm>

namespace chainmail::launch {
namespace {

std::string count_of(std::uint32_t count, std::uint32_t most, const char* what) {
  return std::string(what) + " " + std::to_string(count) + " of " + std::to_string(most);
}

}  // namespace

RetryPolicy::Decision RetryPolicy::after(const AttemptEnd& end) {
  using Kind = AttemptEnd::Kind;
  bool is_loss = false;
  switch (end.kind) {
    case Kind::kSucceeded:
    case Kind::kStopped:
    case Kind::kTimeLimit:
    case Kind::kLauncherError:
    case Kind::kNotStarted:  // has been waited for already
      return {};
    case Kind::kHostLost:
      // Otherwise a host that breaks at once would be tried for ever.
      is_loss = end.has_got_going;
      break;
    case Kind::kProgramFailed:
      is_loss = std::find(retry_.exit_codes.begin(), retry_.exit_codes.end(), end.exit_code) !=
                retry_.exit_codes.end();
      break;
  }
  std::uint32_t& count = is_loss ? losses_ : failures_;
  const std::uint32_t most = is_loss ? retry_.losses : retry_.failures;
  ++count;
  const bool is_early = end.kind == Kind::kHostLost && !is_loss;
  const std::string counted = count_of(count, most, is_loss ? "loss" : "failure") +
                              (is_early ? ", since it was lost before the first step" : "");
  if (end.was_interrupted)
    return {false, "the job is not started again, since its end was asked for"};
  if (count > most) {
    if (most == 0) return {false, ""};
    return {false, std::string("no retry is left (") + (is_loss ? "loss " : "failure ") +
                       std::to_string(count) + ", and " + std::to_string(most) + " are allowed)"};
  }
  return {true, "the job is started again (" + counted + ")"};
}

}  // namespace chainmail::launch
