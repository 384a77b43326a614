// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Gives the members of a new world that lack its state that of the others: in pieces, which come
// from all who have it, in turns, or where equal states may have other bytes, from one of them;
// each piece is checked, and asked for again where it has come damaged, and then every tensor. Of
// those who have the state, one whose bytes are others than most of them have is found before.
//
// Collective over the world's group. One thread per rank.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <chainmail/communicator.h>

#include "plugin/elastic/state/registered_state.h"

namespace chainmail::internal {

/// Whose state is not that of the others, or came damaged twice, or who asks for what there is not,
/// which all ranks learn; the rank is one of the world, whose group has ended on the others.
class BadMember : public MismatchError {
 public:
  BadMember(const std::string& message, int rank) : MismatchError(message), rank_(rank) {}
  int rank() const noexcept { return rank_; }

 private:
  int rank_;
};

/// What goes with the state, from the first donor to all.
struct TransferredNumbers {
  std::uint64_t position = 0;
  std::uint8_t is_finished = 0;
};

/// `donors` are ranks, ascending, at least one; the same on all. `senders` are those of them, the
/// first among them, who share out the pieces. `own` is the state of a sender, the result that of
/// the donors on all others; `numbers` as well. Throws the group's error, BadMember, and on all
/// ranks an agreed MismatchError where as many donors have one state as another.
[[nodiscard]] std::vector<std::byte> transfer_bytes(Communicator& communicator,
                                                    const std::vector<int>& donors,
                                                    const std::vector<int>& senders,
                                                    std::span<const std::byte> own,
                                                    TransferredNumbers& numbers);

/// The same for what was registered. Returns the bytes that this rank has received. Throws
/// CheckpointError, too.
std::uint64_t transfer_state(Communicator& communicator, const std::vector<int>& donors,
                             RegisteredState& state, TransferredNumbers& numbers);

}  // namespace chainmail::internal
