// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Finds out why an operation failed or does not end: whether the ranks disagree, who is missing,
// whether another rank has said already what happened.
//
// look() is for the watchdog thread, explain() for the thread that ran the operation, before it is
// done; both may run at once. Neither throws: what cannot be found out leaves the first error as it
// was. None of the calls takes longer than a second, whatever has become of the host that keeps the
// rendezvous: an error that is known must reach its caller.

#pragma once

#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "ops/core/failure/failure_state.h"
#include "ops/engine/failure/rank_status.h"
#include "ops/engine/failure/watchdog.h"

namespace chainmail::ops {

/// What is known to be wrong; no error when nothing is.
struct Finding {
  std::exception_ptr error;
  bool is_from_others = false;  ///< another rank has said so: they need not be told again
};

class Diagnosis {
 public:
  Diagnosis(int rank, const Topology& topology, std::vector<int> global_ranks,
            const GroupOptions& options, std::shared_ptr<Rendezvous> rendezvous,
            std::function<Activity()> activity, std::shared_ptr<FailureState> failure);

  /// The error to report for `operation`, which ended with `error`: better than `error` where more
  /// is known. `release_peers` is called early, once this rank's position can be read, to wake the
  /// ranks that wait for this one.
  [[nodiscard]] Finding explain(const PlannedOperation& operation, const std::exception_ptr& error,
                                const std::function<void()>& release_peers) noexcept;

  /// What an operation called `title` ends with in a group that has failed with `error`.
  [[nodiscard]] std::exception_ptr error_of(const std::string& title,
                                            const std::exception_ptr& error);

  /// `operations` have been running for long.
  [[nodiscard]] Finding look(std::span<const LongOperation> operations) noexcept;

  /// Leaves `error` for the ranks that ask later, unless another rank was first.
  void announce(const std::exception_ptr& error) noexcept;

 private:
  using Deadline = internal::Deadline;

  Finding explain_or_throw(const PlannedOperation& operation, const std::exception_ptr& error,
                           const std::function<void()>& release_peers, Deadline deadline);
  Finding explain_alone(const PlannedOperation& operation, const std::exception_ptr& error,
                        const std::string& reason) const;
  Finding wait_for_cause(bool is_mismatch, Deadline deadline);
  Finding explain_timeout(const PlannedOperation& operation, const std::string& message,
                          const std::vector<int>& missing_in_comm, Deadline deadline);
  std::string describe_timeout(const PlannedOperation& operation) const;
  std::vector<int> find_stopped(std::span<const int> ranks, const std::vector<int>& missing_in_comm,
                                Deadline deadline);
  Deadline patience(std::chrono::milliseconds limit) const;
  std::optional<std::string> ask(const std::string& key, Deadline deadline);
  bool is_known_to_others();
  Finding reported_by_others(Deadline deadline);
  void publish();
  Finding find_disagreement(std::span<const LongOperation> operations, Deadline deadline);
  void warn_of_late_ranks(std::span<const LongOperation> operations, Deadline deadline);
  std::vector<int> peers_of(const PlannedOperation& operation) const;
  std::string list_names(std::span<const int> ranks, Deadline deadline);

  int rank_;
  std::vector<int> all_ranks_;
  const GroupOptions& options_;
  std::shared_ptr<Rendezvous> rendezvous_;
  std::function<Activity()> activity_;
  std::shared_ptr<FailureState> failure_;
  RankStatusTable status_;
  std::mutex publish_mutex_;
  bool has_signed_ = false;             // the watchdog's
  std::atomic<bool> is_silent_{false};  ///< the rendezvous has not answered the last question
};

}  // namespace chainmail::ops
