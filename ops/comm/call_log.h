// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What this rank has been doing lately, to be held against what peers say they do.
//
// Not thread-safe. Positions count the collective calls of one Comm.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/error.h"
#include "ops/comm/transport.h"
#include "ops/message_header.h"

namespace chainmail::ops {

class CallLog {
 public:
  void add(std::uint64_t position, const MessageHeader& header) noexcept;
  /// The header of a recent call; null when it lies ahead or too far back.
  const MessageHeader* find(std::uint64_t position) const noexcept;

 private:
  struct Entry {
    std::uint64_t position = ~std::uint64_t{0};
    MessageHeader header;
  };
  std::array<Entry, 64> entries_;
};

/// True when two ends of a message with this tag mean the same operation. Point to point, kind,
/// sequence and layout may differ: only the two ranks count, and one sends while one receives.
[[nodiscard]] bool headers_agree(std::uint64_t tag, const MessageHeader& a,
                                 const MessageHeader& b) noexcept;

/// "ranks disagree: rank 0 on host a calls all_reduce ..., rank 1 on host b calls ..."
[[nodiscard]] MismatchError mismatch_error(const PeerName& a, const MessageHeader& header_a,
                                           const PeerName& b, const MessageHeader& header_b);
inline constexpr char kTransfersMustAgree[] =
    "; a send and the receive that it meets must have as many elements of the same dtype";
/// The same of a message with this tag.
[[nodiscard]] MismatchError message_error(std::uint64_t tag, const PeerName& receiver,
                                          const MessageHeader& wanted, const PeerName& sender,
                                          const MessageHeader& sent);
/// The same operation, but a message of another length.
[[nodiscard]] MismatchError length_error(const PeerName& receiver, std::size_t receiver_bytes,
                                         const PeerName& sender, std::size_t sender_bytes,
                                         const MessageHeader& header);

}  // namespace chainmail::ops
