// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The rendezvous of one group: its keys in a c10d::Store, apart from those of earlier groups with
// the same name, and deleted when the last of its ranks has left.
//
// Thread-safe once the ranks have joined. Destroyed in a forked child it leaves the store alone.

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
#include "ops/core/failure/failure_news.h"
#include "ops/core/failure/failure_state.h"
#include "ops/core/liveness.h"
#include "ops/core/rendezvous.h"
#include "ops/engine/group.h"
#include "plugin/c10d/store/store_rendezvous.h"

namespace chainmail::internal {

class GroupRendezvous final : public ops::Rendezvous {
 public:
  using EndOf = ops::LivenessRendezvous::EndOf;

  GroupRendezvous(const c10::intrusive_ptr<c10d::Store>& store, const std::string& group_name,
                  int rank, int size);
  /// Calls leave().
  ~GroupRendezvous() override;
  GroupRendezvous(const GroupRendezvous&) = delete;
  GroupRendezvous& operator=(const GroupRendezvous&) = delete;

  /// Exchanges a text per rank and returns them in rank order. Collective; called once, before
  /// anything else. Throws TimeoutError that names the first rank that did not join, GaveUp where
  /// one has joined and waited in vain before, PeerError where `attendance` (by ranks of the group;
  /// may be empty) knows that one has ended.
  [[nodiscard]] std::vector<std::string> enter(const std::string& mine, Deadline deadline,
                                               const EndOf& attendance = nullptr);

  /// Whether `rank` has left.
  [[nodiscard]] bool has_left(int rank);

  /// Failures of this group alone, whatever other groups had its name: reported through `launcher`,
  /// or over the store where it is null.
  [[nodiscard]] std::shared_ptr<ops::FailureNews> news(
      std::shared_ptr<ops::FailureNews> launcher) const;

  void set(const std::string& key, const std::string& value) override;
  std::string get(const std::string& key, Deadline deadline) override;
  using Rendezvous::try_get;
  std::optional<std::string> try_get(const std::string& key, Deadline deadline) override;
  bool is_silent() const override { return store_.is_silent(); }
  /// Records in the store that this rank has left; the last one deletes the keys. Does not wait for
  /// a store that does not answer. The rank that serves the store waits for the others
  /// (StoreLink::leave).
  void leave() noexcept override;

 private:
  /// The full key that the last rank deletes, or nothing.
  std::string write_leave();

  StoreRendezvous store_;
  const std::string group_keys_;  ///< prefix of all groups of this name
  const int rank_;
  const int size_;
  const pid_t process_;
  std::string keys_;  ///< prefix of this very group
  bool has_joined_ = false;
  const std::shared_ptr<std::atomic<bool>> has_left_;  ///< shared with news()
  /// The group's failure state, once it has one; shared with news().
  const std::shared_ptr<std::shared_ptr<ops::FailureState>> failure_;
  std::mutex mutex_;
  std::set<std::string> mine_;  ///< written by this rank
};

}  // namespace chainmail::internal
