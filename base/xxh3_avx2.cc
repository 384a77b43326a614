// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Compiled for AVX2 by CMakeLists.txt. Nothing of C++'s library here: the linker might take this
// file's copy of an inline function for all, and other processors would stumble over it.

#include "base/xxh3_avx2.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace chainmail::internal {

uint64_t xxh3_avx2(const void* bytes, size_t count) noexcept { return XXH3_64bits(bytes, count); }

void xxh3_update_avx2(void* state, const void* bytes, size_t count) noexcept {
  XXH3_64bits_update(static_cast<XXH3_state_t*>(state), bytes, count);
}

}  // namespace chainmail::internal
