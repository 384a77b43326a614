// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What the ranks of a group agree on before they begin.
//
// Plain values.

#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/net/socket.h"
#include "ops/core/failure/peer_silence.h"
#include "ops/core/tuning.h"
#include "ops/types.h"

namespace chainmail::ops {

struct GroupOptions {
  std::string name = "world";  ///< unique in the job; prefixes keys and messages
  std::uint32_t generation = 0;
  Algorithm algorithm = Algorithm::kAuto;
  Tuning tuning;  ///< what kAuto picks between nodes (CHAINMAIL_TUNING); equal on all ranks
  /// Without a table: kAuto measures one, within 50 ms, when it is first needed (CHAINMAIL_TUNING).
  bool measures_tuning = false;
  WireFormat wire = WireFormat::kNative;  ///< of float32 means; see wire_of()
  /// An operation fails when for so long nothing of it has moved, as far as this rank can learn.
  std::chrono::milliseconds timeout = std::chrono::minutes{10};
  /// Over TCP: how long a peer may be out of reach before it is lost.
  std::chrono::milliseconds silence_limit = internal::kSilenceLimit;
  std::shared_ptr<PeerSilence> silence;         ///< the group's own, which it makes
  CrossTransport cross = CrossTransport::kTcp;  ///< equal on all ranks
  /// False: TCP inside the node too (CHAINMAIL_LOCAL=tcp); equal on all ranks of a node.
  bool use_shared_memory = true;
  bool use_checksum = true;  ///< XXH3 of what goes over TCP; equal or not between ranks
  /// Of what goes over TCP, equal on all ranks (CHAINMAIL_ENCRYPT). Needs `secret`; what would
  /// carry data between nodes without it is refused.
  Encryption encryption = Encryption::kOff;
  std::string interface;  ///< address or name of the network interface; empty: chosen
  std::string secret;     ///< of the job; proves on TCP that a peer belongs to it
  std::string host;       ///< of this rank, for messages
  std::size_t chunk_bytes = std::size_t{1} << 20;  ///< of the pipeline between nodes
};

}  // namespace chainmail::ops
