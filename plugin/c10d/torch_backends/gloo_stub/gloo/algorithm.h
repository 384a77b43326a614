// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// See gloo/context.h.

#pragma once

#include <gloo/context.h>
