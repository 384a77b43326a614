// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What a rank that has waited in vain for a new group leaves in the store for those that come
// later, so that they do not wait for it in their turn.
//
// A notice is from one rank to one other: its reader deletes it, and its writer does before it
// tries again. So a group that is made after all has nothing to do with it. Not thread-safe.

#pragma once

#include <optional>
#include <string>
#include <utility>

#include "base/deadline.h"
#include "base/error.h"
#include "plugin/c10d/store/store_rendezvous.h"

namespace chainmail::internal {

/// A rank that this one waits for has come before it, and given up.
class GaveUp final : public Error {
 public:
  GaveUp(int member, std::string how)
      : Error(ErrorCode::kTimeout, "member " + std::to_string(member) + " " + how),
        member_(member),
        how_(std::move(how)) {}
  /// Its rank in the group.
  int member() const noexcept { return member_; }
  /// "on n1 gave up after 3000 ms of waiting".
  const std::string& how() const noexcept { return how_; }

 private:
  int member_;
  std::string how_;
};

class GivenUp {
 public:
  /// Of `rank` in the groups of a name, whose keys begin with `group_keys`; `store` lives longer.
  GivenUp(StoreRendezvous& store, const std::string& group_keys, int rank, int size)
      : store_(store), keys_(group_keys + "gave_up/"), rank_(rank), size_(size) {}

  /// This rank begins anew: deletes what it has left before. Costs nothing where that is nothing.
  void withdraw();
  /// This rank has come and failed: what rank 0 may yet leave for it goes when it begins anew.
  void note_failure();
  /// For who waits, as RankLiveness::end_of(awaited): throws GaveUp when a rank that it needs has
  /// left a notice. Asks the store once for all ranks.
  void look(int awaited);

  /// Rank 0, which all others wait for, has given up: leaves a notice to those that `has_come` does
  /// not know. `how` is GaveUp's.
  template <typename HasCome>
  void tell_absent_ranks(const std::string& how, const HasCome& has_come) {
    for (int other = 1; other < size_ && !store_.is_silent(); ++other) {
      if (!take(other) && !has_come(other)) leave(other, how);
    }
  }
  /// Another rank has given up waiting for rank 0.
  void tell_first_rank(const std::string& how);

 private:
  std::string key(int from, int to) const;
  std::string some_key() const { return keys_ + "some"; }
  std::optional<std::string> take(int from);
  void leave(int to, const std::string& how);

  StoreRendezvous& store_;
  const std::string keys_;
  const int rank_;
  const int size_;
};

/// GaveUp's `how`, of the exception that is being handled.
[[nodiscard]] std::string how_it_gave_up(const Deadline& deadline);

}  // namespace chainmail::internal
