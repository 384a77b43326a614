// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What a peer may send to a rank, frame by frame, while that rank posts sends and receives: bytes
// choose what happens next and every field of the frames' heads, whose checksums are made right, as
// a peer that means harm would.

#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace chainmail::ops {

/// Throws std::logic_error when a frame would be written behind the end of the receive that it is
/// for, or into one that has ended.
void run_peer_link(std::string_view bytes);

[[nodiscard]] std::vector<std::string> peer_link_seeds();

}  // namespace chainmail::ops
