// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What differs between the LibTorch versions that we build with. The only file that looks at the
// version.

#pragma once

#include <torch/headeronly/version.h>

#if TORCH_VERSION_MAJOR < 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR < 11)
#error "Chainmail needs LibTorch 2.11 or newer"
#endif

// Since 2.13 LibTorch asks for C++20, which we use anyway; backends are then found through Python
// entry points, and rank_ and size_ of Backend are no longer const: neither matters here.

#define CHAINMAIL_TORCH_MINOR TORCH_VERSION_MINOR
