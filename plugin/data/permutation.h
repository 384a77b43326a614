// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The order that a seed stands for, the same on every rank and with every standard library.
//
// Pure functions.

#pragma once

#include <cstdint>
#include <vector>

#include <chainmail/communicator.h>

namespace chainmail::internal {

/// One seed out of a seed and a number, such as that of an epoch: each of its bits depends on all
/// of theirs (splitmix64, Steele et al. 2014).
[[nodiscard]] std::uint64_t derive_seed(std::uint64_t seed, std::uint64_t number) noexcept;

[[nodiscard]] std::vector<std::int64_t> permutation(std::int64_t size, std::uint64_t seed);

/// Everybody must cut the same dataset; otherwise samples would be lost or used twice, silently.
/// Throws MismatchError on all ranks. Collective.
void check_equal_size(const char* operation, std::int64_t size, Communicator& communicator);

}  // namespace chainmail::internal
