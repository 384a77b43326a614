// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The network interfaces of this machine, as CHAINMAIL_INTERFACE can name them.

#pragma once

#include <string>

namespace chainmail::info {

/// "lo 127.0.0.1, eth0 10.0.0.5"; those that are up and have an address. Throws SystemError.
[[nodiscard]] std::string list_interfaces();

}  // namespace chainmail::info
