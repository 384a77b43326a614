// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Which node this process is on, as a label that is equal exactly for processes that can share
// memory; and how the ranks of a group tell each other.

#pragma once

#include <string>
#include <vector>

#include "base/deadline.h"
#include "ops/core/rendezvous.h"
#include "plugin/job/environment/env.h"

namespace chainmail::internal {

/// The machine's name, at most up to the first dot.
[[nodiscard]] std::string host_name();

/// Host name, boot id and pid namespace, so that containers of one machine count as nodes of their
/// own; or what CHAINMAIL_NODE_ID says.
[[nodiscard]] std::string node_id(const Environment& environment);

/// The machine and the network namespace, so that processes with the same one reach each other by
/// loopback; empty where that cannot be known.
[[nodiscard]] std::string network_id();

/// What to say of a rank that did not come to a group of `size`, seen from `rank`.
[[nodiscard]] std::string did_not_join(int missing, int rank, int size);
/// The same of `missing` in words.
[[nodiscard]] std::string did_not_join(const std::string& missing, int rank);

/// Every rank's text, in rank order. Collective. Throws TimeoutError that names the first rank that
/// did not come, and what `rendezvous` throws or knows of one that cannot: PeerError where it has
/// ended without.
[[nodiscard]] std::vector<std::string> exchange(ops::Rendezvous& rendezvous, const std::string& key,
                                                int rank, int size, const std::string& mine,
                                                Deadline deadline);

/// 32 random bytes of rank 0, the same for all ranks: the secret that proves on TCP that a peer
/// belongs to the group. Only as secret as the store that carries it.
[[nodiscard]] std::string share_secret(ops::Rendezvous& rendezvous, int rank, Deadline deadline);

}  // namespace chainmail::internal
