// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Memory of its own pages for what lives long or is large beside what comes and goes: between
// pieces that stay, the heap keeps holes as large as a unit.
//
// Thread-safe.

#pragma once

#include <cstddef>

#include <c10/core/Allocator.h>

namespace chainmail::internal {

/// Zeros, in host memory, aligned like the memory of tensors. Little is from the heap all the same.
/// Throws std::bad_alloc.
[[nodiscard]] c10::DataPtr allocate_pages(std::size_t bytes);

/// Gives the system what is free in the heap, where that is the C library's. Where it is another
/// one's (jemalloc, a sanitizer), the C library's has never begun, and must not be asked: from two
/// threads its first call ends the process.
void trim_heap() noexcept;

}  // namespace chainmail::internal
