// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The keys of one group in a c10d::Store: of no earlier group of that name, and gone when the last
// of its ranks has left.
//
// Thread-safe once the ranks have met. Destroyed in a forked child it leaves the store alone.

#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <sys/types.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "ops/core/failure_news.h"
#include "ops/core/failure_state.h"
#include "ops/core/liveness.h"
#include "ops/core/rendezvous.h"
#include "ops/engine/group.h"
#include "plugin/c10d/store/store_rendezvous.h"

namespace chainmail::internal {

class GroupBoard final : public ops::Rendezvous {
 public:
  GroupBoard(const c10::intrusive_ptr<c10d::Store>& store, const std::string& group_name, int rank,
             int size);
  /// Leaves.
  ~GroupBoard() override;
  GroupBoard(const GroupBoard&) = delete;
  GroupBoard& operator=(const GroupBoard&) = delete;

  /// Every rank's text, in rank order. Collective, and to be called once, before anything else.
  /// Throws TimeoutError that names the first rank that did not come, PeerError where `attendance`,
  /// by the group's numbers, knows that one has ended without; it may be null.
  [[nodiscard]] std::vector<std::string> meet(const std::string& mine, Deadline deadline,
                                              ops::RankLiveness* attendance = nullptr);

  /// Whether a rank has told the store that it leaves.
  [[nodiscard]] bool has_left(int rank);

  /// What the ranks announce of this very group, however many had its name: through `launcher`, or
  /// over the store where there is none.
  [[nodiscard]] std::shared_ptr<ops::FailureNews> news(
      std::shared_ptr<ops::FailureNews> launcher) const;

  void set(const std::string& key, const std::string& value) override;
  std::string get(const std::string& key, Deadline deadline) override;
  using Rendezvous::try_get;
  std::optional<std::string> try_get(const std::string& key, Deadline deadline) override;
  bool is_silent() const override { return store_.is_silent(); }
  /// Tells the store that this rank has left; the last one takes the keys along. Does not wait for
  /// a store that is silent. The rank that serves the store waits for the others
  /// (StoreLink::leave).
  void leave() noexcept override;

 private:
  /// Gives the full key that goes with the last of the ranks, or nothing.
  std::string write_leave();

  StoreRendezvous store_;
  const std::string group_keys_;  ///< prefix of all groups of this name
  const int rank_;
  const int size_;
  const pid_t process_;
  std::string keys_;  ///< prefix of this very group
  bool have_met_ = false;
  const std::shared_ptr<std::atomic<bool>> has_left_;  ///< shared with the group's news
  /// Of the group, once it has one; shared with its news.
  const std::shared_ptr<std::shared_ptr<ops::FailureState>> failure_;
  std::mutex mutex_;
  std::set<std::string> mine_;  ///< written by this rank
};

}  // namespace chainmail::internal
