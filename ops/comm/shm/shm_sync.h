// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Synchronisation of the ranks of a node in a shared segment: every call starts with all ranks
// publishing what they are about to do, and continues once all have seen that they agree. All
// waiting is here, and all that ends it: failures, dead peers, time limits.
//
// One thread at a time, except abort(). After a throw it is dead on all ranks.

#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "ops/comm/comm.h"
#include "ops/comm/shm/memory/segment.h"
#include "ops/comm/shm/shm_comm.h"

namespace chainmail::ops::shm {

/// The Comm's calls; one operation may consist of several.
enum class Method : std::uint8_t {
  kAllReduce,
  kReduce,
  kReduceScatter,
  kAllGather,
  kBroadcast,
  kAllToAll,
  kBarrier,
};

class ShmSync {
 public:
  /// Collective: returns when all ranks have mapped the segment.
  ShmSync(const ShmCommOptions& options, Rendezvous& rendezvous, internal::Deadline deadline,
          const FailureState* failure);
  ShmSync(const ShmSync&) = delete;
  ShmSync& operator=(const ShmSync&) = delete;
  ~ShmSync();

  int rank() const noexcept { return rank_; }
  int size() const noexcept { return size_; }
  /// More ranks than cores: every wait may cost a turn of every rank.
  bool is_crowded() const noexcept { return spins_ == 0; }
  const Segment& segment() const noexcept { return segment_; }

  /// Shows this rank's header with up to kInlineBytes of payload. `digest` stands for what else
  /// must be equal within the operation (lengths, root).
  void enter(Method method, std::uint64_t digest, const std::byte* payload, std::size_t bytes,
             const OpContext& context);
  /// enter() where there is no time for a context; nothing happens and false when the group failed.
  [[nodiscard]] bool try_enter(Method method, std::uint64_t digest, const std::byte* payload,
                               std::size_t bytes, const MessageHeader& header) noexcept;
  /// True when all ranks enter within microseconds and agree. Otherwise wait_for_entries() tells.
  [[nodiscard]] bool look_for_entries() const noexcept;
  /// Returns when all ranks have entered and agree; throws MismatchError when not.
  void wait_for_entries(const OpContext& context);
  /// What a rank put beside its header; valid until this rank's next call but one.
  const std::byte* payload(int rank) const noexcept {
    return segment_.area(rank).slots[call_ & 1].payload.data();
  }

  /// This rank has done a part of what takes long without a wait.
  void show_progress() noexcept;
  /// The next step of staging areas; all ranks count alike.
  std::uint64_t next_step() noexcept { return ++step_; }
  /// RankArea::staged or reduced: what a rank has got to, and all have.
  using Counter = std::atomic<std::uint64_t> RankArea::*;
  void publish(Counter counter, std::uint64_t step) noexcept;
  void wait_for_counter(Counter counter, std::uint64_t step, const OpContext& context);

  /// Throws the group's error if there is one.
  void throw_if_stopped(const OpContext& context);
  /// Records `error` for all ranks and throws it, or the first error if another was before.
  [[noreturn]] void fail(const std::exception_ptr& error, const OpContext& context);
  /// "rank 3 on host n1"
  std::string name(int rank) const;
  int global_rank(int rank) const { return global_ranks_[static_cast<std::size_t>(rank)]; }

  void abort() noexcept;

 private:
  void join(Rendezvous& rendezvous, const std::string& key_prefix, internal::Deadline deadline);
  void watch_peers();
  bool is_dead(int rank) const;
  void count_cores();

  template <typename Seen>
  void wait_for_all(const Seen& seen, const OpContext& context);
  void wait_long(const std::function<bool(int)>& seen, const OpContext& context);
  void learn_progress(const std::function<bool(int)>& seen,
                      std::chrono::steady_clock::time_point now);
  bool must_stop(const FailureState* failure) const noexcept;
  enum class Entry : std::uint8_t { kNone, kEqual, kDifferent };
  void show(Method method, std::uint64_t digest, const std::byte* payload, std::size_t bytes,
            const MessageHeader& header) noexcept;
  Entry entry_of(int rank) const noexcept;
  bool has_entered(int rank, const OpContext& context);
  [[noreturn]] void disagree(int rank, const OpContext& context);
  void check_peers(const std::function<bool(int)>& seen, const OpContext& context);
  void time_out(const std::function<bool(int)>& seen, const OpContext& context);

  int rank_;
  int size_;
  std::vector<int> global_ranks_;
  std::string host_;
  const FailureState* failure_;
  Segment segment_;
  ProgressTracker own_tracker_;
  ProgressTracker& tracker_;
  struct Process {
    internal::UniqueFd fd;  // pidfd; closed for this process
    bool is_watched = false;
    bool is_gone = false;  // ended before a pidfd could be had
  };
  std::vector<Process> processes_;
  int spins_ = 0;
  std::atomic<bool> is_aborted_{false};

  std::uint64_t call_ = 0;   // counts enter()
  std::uint64_t step_ = 0;   // counts uses of the staging areas
  std::uint64_t stamp_ = 0;  // of the current call
  std::array<std::uint64_t, 4> header_{};
};

}  // namespace chainmail::ops::shm
