// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Gives the members of a new world that lack its state that of the others: in pieces, which come
// from all who have it, in turns, or where equal states may have other bytes, from one of them;
// each piece is checked, and then every tensor.
//
// Collective over the world's group. One thread per rank.

#pragma once

#include <cstdint>
#include <vector>

#include <chainmail/communicator.h>

#include "plugin/elastic/state/registered_state.h"

namespace chainmail::internal {

/// Who sent what does not fit; the rank is one of the world.
class BadDonor : public MismatchError {
 public:
  BadDonor(const std::string& message, int rank) : MismatchError(message), rank_(rank) {}
  int rank() const noexcept { return rank_; }

 private:
  int rank_;
};

/// What goes with the state, from the first donor to all.
struct TransferredNumbers {
  std::uint64_t position = 0;
  std::uint8_t is_finished = 0;
};

/// `donors` are ranks, ascending, at least one; the same on all. Returns the bytes that this rank
/// has received. Throws the group's error, CheckpointError, BadDonor.
std::uint64_t transfer_state(Communicator& communicator, const std::vector<int>& donors,
                             RegisteredState& state, TransferredNumbers& numbers);

}  // namespace chainmail::internal
