// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Which operation every rank is in: published in the group's rendezvous by ranks that have waited
// for long or have failed, read to report which ranks disagree and which are missing.
//
// Costs nothing while operations are quick. Thread-safe; one thread at a time publishes. What asks
// the rendezvous throws TimeoutError when that has not answered by the deadline.

#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "ops/core/group_options.h"
#include "ops/core/rendezvous.h"
#include "ops/engine/plan/plan.h"
#include "ops/topology.h"

namespace chainmail::ops {

/// What a rank is doing and has done lately.
struct Activity {
  std::vector<std::shared_ptr<PlannedOperation>> running;
  std::vector<PastOperation> past;
};

class RankStatusTable {
 public:
  /// Leaders write down their host, too.
  RankStatusTable(int rank, const Topology& topology, std::vector<int> global_ranks,
                  const GroupOptions& options, std::shared_ptr<Rendezvous> rendezvous);

  /// Writes down the operations this rank is in, and those that it has finished lately.
  void publish(const Activity& activity);

  /// The first operation that two of `ranks` (or this rank and one of them) called differently, as
  /// a sentence that names both; nothing while there is none.
  [[nodiscard]] std::optional<std::string> find_disagreement(std::span<const int> ranks,
                                                             internal::Deadline deadline);

  /// Those of `ranks` that have not written down that they are in (or past) `operation`.
  [[nodiscard]] std::vector<int> find_missing(const PlannedOperation& operation,
                                              std::span<const int> ranks,
                                              internal::Deadline deadline);

  /// Writes down that this rank has noticed a failure.
  void sign();
  /// Those of `ranks` that have not; without this one.
  [[nodiscard]] std::vector<int> find_silent(std::span<const int> ranks,
                                             internal::Deadline deadline);

  /// describe_call(), with ranks of the job.
  [[nodiscard]] std::string describe(const PlannedOperation& operation) const;
  /// "rank 3 (node2)": the job's rank number and its host; "node 1" for a host that is not known by
  /// the deadline, which throws nothing.
  [[nodiscard]] std::string name_of(int rank, internal::Deadline deadline);
  /// Of this rank; asks nobody.
  [[nodiscard]] std::string own_name() const;
  [[nodiscard]] int global_rank(int rank) const {
    return global_ranks_[static_cast<std::size_t>(rank)];
  }

 private:
  std::string host_of_node(int node, internal::Deadline deadline);
  std::string with_host(int rank, const std::string& host) const;

  int rank_;
  const Topology& topology_;
  std::vector<int> global_ranks_;
  const GroupOptions& options_;
  std::shared_ptr<Rendezvous> rendezvous_;
};

/// Where the host name of a node stands in the group's rendezvous.
[[nodiscard]] std::string host_key(int node);

/// "all_reduce #12".
[[nodiscard]] std::string title_of(const PlannedOperation& operation);

}  // namespace chainmail::ops
