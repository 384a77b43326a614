// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What it means that kubectl exec ended before the agent spoke: pods come and go while their names
// stay, and kubectl says so in words of its own. Pure functions, thread-safe.

#pragma once

#include <optional>
#include <string>

#include "launcher/remote/start_failure.h"

namespace chainmail::launch {

struct KubectlFailure {
  std::string advice;     ///< as in start_failure.cc, with its '%' letters
  bool may_pass = false;  ///< the pod or its node is not there yet, or not now
};

/// Nothing where the remote shell is not kubectl, or where it says what any shell might.
[[nodiscard]] std::optional<KubectlFailure> kubectl_failure(const StartFailure& failure);

}  // namespace chainmail::launch
