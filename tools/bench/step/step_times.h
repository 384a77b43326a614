// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The time of what all ranks do together.
//
// Collective.

#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include <chainmail/communicator.h>

namespace chainmail::bench {

/// Of one call. Local.
double microseconds_of(const std::function<void()>& work);

/// What each of `steps` calls returns, of the slowest rank, since all wait for it.
std::vector<double> step_times(const std::function<double()>& step, std::int64_t steps,
                               Communicator& communicator);

}  // namespace chainmail::bench
