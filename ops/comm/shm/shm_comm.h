// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Ranks of one node, processes or threads, that reduce through a shared memory segment.
//
// The segment is an unnamed file in memory (memfd) that the other ranks open through the creator's
// /proc/<pid>/fd, so nothing is left behind however the ranks end. All pages are reserved at
// creation and the size is sealed: a full machine is an error there and never a SIGBUS later.
//
// Sums go in rank order and every rank uses the same result bytes: same bits on all ranks and from
// run to run. A failure of one rank is written into the segment and thrown by all others; a rank
// that died or left is noticed within 0.1 s, and only by those who still need something of it.

#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "ops/comm/comm.h"
#include "ops/core/failure/failure_state.h"
#include "ops/core/rendezvous.h"

namespace chainmail::ops {

struct ShmCommOptions {
  int rank = 0;                   ///< this rank's number in the Comm
  int size = 1;                   ///< ranks of the Comm
  std::vector<int> global_ranks;  ///< rank of each in the job, for messages; empty: as in the Comm
  std::string host;               ///< of this node, for messages
  std::string key_prefix;         ///< of the rendezvous keys; no other Comm may use it
  /// Staged per rank and step of a large operation, at most; the segment takes about twice this per
  /// rank, and fewer bytes make more steps.
  std::size_t chunk_bytes = std::size_t{256} << 10;
  /// Of the group that the Comm belongs to, which must outlive it; null: the Comm has its own.
  ProgressTracker* tracker = nullptr;
};

/// This rank's end; collective over the ranks of the Comm, returns when all have come.
/// Throws InvalidArgument (numbers that cannot be right), SystemError (memory, /proc not readable:
/// names what to try), PeerError (a rank died while they joined), TimeoutError (a rank did not
/// come), or the error in `failure`. `failure` must outlive the Comm: abort() tells its reason.
[[nodiscard]] std::unique_ptr<Comm> create_shm_comm(const ShmCommOptions& options,
                                                    Rendezvous& rendezvous,
                                                    internal::Deadline deadline,
                                                    const FailureState* failure = nullptr);

}  // namespace chainmail::ops
