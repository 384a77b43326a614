// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The memory that the ranks of one node share: its layout, how it is made and found, the record of
// a failure, and the bell that wakes sleeping ranks.
//
// Each mapping has one owner (move-only). What lies in the memory is shared with other processes,
// so all of it is plain data and lock-free atomics; zero bytes are the initial state.

#pragma once

#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>

#include "base/unique_fd.h"

namespace chainmail::ops::shm {

static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

/// Payload beside a stamp: with header it fills two cache lines, which arrive as one pair.
inline constexpr std::size_t kInlineBytes = 88;

/// What a rank shows at the start of a call. `stamp` is written last.
struct alignas(128) Slot {
  std::atomic<std::uint64_t> stamp;
  std::array<std::uint64_t, 4> header;
  std::array<std::byte, kInlineBytes> payload;
};
static_assert(sizeof(Slot) == 128);

enum class Presence : std::uint32_t { kAbsent, kJoined, kLeft };

/// Written by its own rank only. Calls alternate between two slots: a rank can be one call ahead of
/// another, never two.
struct alignas(128) RankArea {
  std::atomic<Presence> presence;
  std::int32_t pid;
  cpu_set_t cpus;
  std::array<Slot, 2> slots;
  alignas(128) std::atomic<std::uint64_t> progress;  ///< see ProgressTracker::show_in()
  alignas(128) std::atomic<std::uint64_t> staged;    ///< steps whose data lie in the staging area
  alignas(128) std::atomic<std::uint64_t> reduced;  ///< steps whose slice lies in all staging areas
};

struct alignas(128) Head {
  std::array<char, 64> token;  ///< random hexadecimal digits, up to a zero
  alignas(128) std::atomic<std::uint32_t> failure_state;  ///< 0 none, 1 being written, 2 written
  std::array<char, 3584> text;                            ///< of encode_error()
  alignas(128) std::atomic<std::uint32_t> sleepers;
  alignas(128) std::atomic<std::uint32_t> bell;
};

/// Positions in a byte stream between two ranks; the bytes follow.
struct alignas(128) RingHead {
  std::atomic<std::uint64_t> written;
  std::atomic<Presence> writer;
  alignas(128) std::atomic<std::uint64_t> read;
};

struct Layout {
  std::size_t ranks = 1;
  std::size_t chunk_bytes = 0;  ///< of a staging area
  std::size_t ring_bytes = 0;   ///< of the ring from each rank to the segment's owner; 0: no rings

  std::size_t staging_offset() const noexcept;
  std::size_t ring_offset() const noexcept;
  std::size_t total_bytes() const noexcept;
};

class Segment {
 public:
  /// Makes a segment, every page reserved. Throws SystemError that names the size.
  [[nodiscard]] static Segment create(const Layout& layout);
  /// Maps the segment of an offer(). Throws SystemError when what is there is another one.
  [[nodiscard]] static Segment attach(const Layout& layout, const std::string& offer);
  Segment(Segment&& other) noexcept;
  Segment& operator=(Segment&&) = delete;
  ~Segment();

  /// "/proc/<pid>/fd/<number>" and, in a line of its own, the token that is in the segment. Valid
  /// while the creator keeps the file open.
  std::string offer() const;
  /// Nobody can attach any more.
  void close_file() noexcept { file_.reset(); }

  Head& head() const noexcept { return *reinterpret_cast<Head*>(memory_); }
  RankArea& area(int rank) const noexcept {
    return reinterpret_cast<RankArea*>(memory_ + sizeof(Head))[rank];
  }
  /// A rank's bytes for its peers; steps alternate between two.
  std::byte* staging(int rank, std::uint64_t step) const noexcept;
  RingHead& ring_head(int from) const noexcept;
  std::byte* ring_data(int from) const noexcept;
  const Layout& layout() const noexcept { return layout_; }

  bool has_failed() const noexcept {
    return head().failure_state.load(std::memory_order_relaxed) != 0;
  }
  /// Writes `error` into the segment unless there is one already, and wakes everybody.
  void fail(const std::exception_ptr& error) noexcept;
  /// The recorded error; has_failed() was true.
  std::exception_ptr failure() const;

  /// To be called after a store that a sleeper may wait for. No fence: it would wait until the
  /// stored line has come over from the other core. A sleeper makes up for it by interrupting all
  /// ranks once (membarrier) between saying that it sleeps and its last look.
  void wake_sleepers() const noexcept {
    std::atomic_signal_fence(std::memory_order_seq_cst);
    if (head().sleepers.load(std::memory_order_relaxed) != 0) ring_bell();
  }
  void ring_bell() const noexcept;
  /// Sleeps until the bell rings or the time is over, unless `is_ready()` by then.
  template <typename Ready>
  void sleep(const Ready& is_ready, std::chrono::nanoseconds limit) const {
    const Sleeper sleeper(head());
    const auto longest = order_after_stores_of_all_ranks() ? limit : std::min(limit, kUnsure);
    const std::uint32_t bell = head().bell.load();
    if (!is_ready()) wait_for_bell(bell, longest);
  }

 private:
  // Counts itself among the sleepers; is_ready() may throw.
  class Sleeper {
   public:
    explicit Sleeper(Head& head) : head_(head) { head_.sleepers.fetch_add(1); }
    Sleeper(const Sleeper&) = delete;
    Sleeper& operator=(const Sleeper&) = delete;
    ~Sleeper() { head_.sleepers.fetch_sub(1); }

   private:
    Head& head_;
  };

  // Where the kernel has no membarrier a bell may be missed; nobody sleeps longer than this then.
  static constexpr std::chrono::nanoseconds kUnsure{500'000};
  /// False where the kernel cannot do it.
  static bool order_after_stores_of_all_ranks() noexcept;

  Segment(const Layout& layout, internal::UniqueFd file);
  void wait_for_bell(std::uint32_t bell, std::chrono::nanoseconds limit) const noexcept;

  Layout layout_;
  internal::UniqueFd file_;
  std::byte* memory_ = nullptr;
};

}  // namespace chainmail::ops::shm
