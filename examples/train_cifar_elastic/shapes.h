// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Images to train with where CIFAR-10 is not: ten shapes of any colour, place, size and turn on
// cloudy backgrounds, in CIFAR-10's binary format.
//
// Local.

#pragma once

#include <cstdint>
#include <filesystem>

/// Draws `samples` images to train with, a fifth of them in each of data_batch_1.bin ...
/// data_batch_5.bin, and a fifth as many for test_batch.bin; classes take turns. The same bytes for
/// the same seed, on every host: neither torch nor libm has a part in it. Files are whole or not
/// there. Throws chainmail::SystemError.
void write_shapes(const std::filesystem::path& folder, std::int64_t samples, std::uint64_t seed);
