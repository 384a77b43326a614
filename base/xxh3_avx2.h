// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// XXH3 as processors with AVX2 compute it: the same values three times as fast. For bytes.cc alone,
// which asks the processor first.
//
// Any thread.

#pragma once

#include <stddef.h>
#include <stdint.h>

namespace chainmail::internal {

/// XXH3_64bits().
[[nodiscard]] uint64_t xxh3_avx2(const void* bytes, size_t count) noexcept;

/// XXH3_64bits_update() of the XXH3_state_t `state`, which any of XXH3's forms may go on with.
void xxh3_update_avx2(void* state, const void* bytes, size_t count) noexcept;

}  // namespace chainmail::internal
