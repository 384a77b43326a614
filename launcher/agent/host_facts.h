// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What an agent reports about its node.

#pragma once

#include "launcher/channel/wire.h"

namespace chainmail::launch {

[[nodiscard]] AgentHello host_facts();

}  // namespace chainmail::launch
