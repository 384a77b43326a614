// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What has left this node, as the kernel counts it. Thread-safe (no state).

#pragma once

#include <cstdint>
#include <string_view>

namespace chainmail::bench {

/// Bytes sent so far over all interfaces but loopback, of the network namespace of this process.
[[nodiscard]] std::uint64_t bytes_sent();

/// The same from the text of /proc/net/dev; lines that are none are passed over.
[[nodiscard]] std::uint64_t sum_bytes_sent(std::string_view net_dev);

}  // namespace chainmail::bench
