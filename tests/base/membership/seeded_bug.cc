// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "base/membership/seeded_bug.h"

namespace chainmail::membership {

SeededBug seeded_bug = SeededBug::kNone;

}  // namespace chainmail::membership
