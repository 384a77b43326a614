// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/comm/call_log.h"

#include <string>

namespace chainmail::ops {

std::string PeerName::describe() const {
  std::string text = "rank " + std::to_string(rank);
  if (!host.empty()) text += " on host " + host;
  return text;
}

void CallLog::add(std::uint64_t position, const MessageHeader& header) noexcept {
  entries_[position % entries_.size()] = Entry{position, header};
}

const MessageHeader* CallLog::find(std::uint64_t position) const noexcept {
  const Entry& entry = entries_[position % entries_.size()];
  return entry.position == position ? &entry.header : nullptr;
}

bool headers_agree(std::uint64_t tag, const MessageHeader& a, const MessageHeader& b) noexcept {
  if (Tag::is_point_to_point(tag)) {
    return a.dtype == b.dtype && a.count == b.count && a.generation == b.generation;
  }
  return a.matches(b);
}

MismatchError mismatch_error(const PeerName& a, const MessageHeader& header_a, const PeerName& b,
                             const MessageHeader& header_b) {
  return MismatchError("ranks disagree: " + a.describe() + " calls " + header_a.describe() + ", " +
                       b.describe() + " calls " + header_b.describe() +
                       "; all ranks must make the same calls in the same order");
}

MismatchError message_error(std::uint64_t tag, const PeerName& receiver,
                            const MessageHeader& wanted, const PeerName& sender,
                            const MessageHeader& sent) {
  if (!Tag::is_point_to_point(tag) || wanted.count == sent.count) {
    return mismatch_error(receiver, wanted, sender, sent);
  }
  return MismatchError("ranks disagree: " + sender.describe() + " sends " +
                       std::to_string(sent.count) + " bytes, " + receiver.describe() +
                       " receives " + std::to_string(wanted.count) + kTransfersMustAgree);
}

MismatchError length_error(const PeerName& receiver, std::size_t receiver_bytes,
                           const PeerName& sender, std::size_t sender_bytes,
                           const MessageHeader& header) {
  return MismatchError("ranks disagree in " + header.describe() + ": " + sender.describe() +
                       " sends " + std::to_string(sender_bytes) + " bytes, " + receiver.describe() +
                       " expects " + std::to_string(receiver_bytes));
}

}  // namespace chainmail::ops
