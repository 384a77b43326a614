// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/comm/shm/shm_sync.h"

#include <sched.h>

#include <bit>
#include <chrono>
#include <cstring>
#include <span>

#include "base/error.h"

#if defined(__x86_64__) || defined(__i386__)
#include <immintrin.h>
#endif

namespace chainmail::ops::shm {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

// Waking a sleeper takes tens of microseconds, so nobody sleeps sooner than this.
constexpr microseconds kYieldTime{500};
// With more ranks than cores each of them needs its turn, perhaps twice.
constexpr int kPromptYields = 16;
constexpr milliseconds kLongestSleep{20};
// With another Comm's transfers to move: their sockets do not ring our bell.
constexpr microseconds kProgressSleep{100};
// And before that: the peer that is waited for waits for a wire itself.
constexpr microseconds kProgressYieldTime{100};
constexpr milliseconds kLivenessPeriod{50};

// The last 16 bits of a header are flags, which may differ.
constexpr std::uint64_t kComparedBits =
    std::endian::native == std::endian::little ? 0x0000ffffffffffff : 0xffffffffffff0000;

// A pause takes as long as a cache line needs from core to core; the first looks go without.
constexpr int kEagerLooks = 200;

void relax(int looks) noexcept {
  if (looks < kEagerLooks) return;
#if defined(__x86_64__) || defined(__i386__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

void ShmSync::enter(Method method, std::uint64_t digest, const std::byte* payload,
                    std::size_t bytes, const OpContext& context) {
  if (must_stop(context.failure)) throw_if_stopped(context);
  show(method, digest, payload, bytes, context.header);
}

bool ShmSync::try_enter(Method method, std::uint64_t digest, const std::byte* payload,
                        std::size_t bytes, const MessageHeader& header) noexcept {
  const bool has_failed = must_stop(failure_);
  if (!has_failed) show(method, digest, payload, bytes, header);
  return !has_failed;
}

void ShmSync::show(Method method, std::uint64_t digest, const std::byte* payload, std::size_t bytes,
                   const MessageHeader& header) noexcept {
  // 44 bits of call number: two ranks are never far enough apart to mistake it.
  ++call_;
  const std::uint64_t hash = (digest * 0x9e3779b97f4a7c15) >> 48;
  stamp_ = (call_ << 20) | (static_cast<std::uint64_t>(method) << 16) | hash;
  header_ = std::bit_cast<std::array<std::uint64_t, 4>>(header.encode());
  Slot& slot = segment_.area(rank_).slots[call_ & 1];
  slot.header = header_;
  if (bytes != 0) std::memcpy(slot.payload.data(), payload, bytes);
  slot.stamp.store(stamp_, std::memory_order_release);
  segment_.wake_sleepers();
}

bool ShmSync::look_for_entries() const noexcept {
  int looks_left = spins_ > 0 ? spins_ : kPromptYields;
  for (int rank = 0; rank < size_; ++rank) {
    if (rank == rank_) continue;
    Entry entry = entry_of(rank);
    while (entry == Entry::kNone && --looks_left >= 0) {
      if (spins_ > 0) {
        relax(spins_ - looks_left);
      } else {
        ::sched_yield();
      }
      entry = entry_of(rank);
    }
    if (entry != Entry::kEqual) return false;
  }
  return true;
}

ShmSync::Entry ShmSync::entry_of(int rank) const noexcept {
  const Slot& slot = segment_.area(rank).slots[call_ & 1];
  const std::uint64_t stamp = slot.stamp.load(std::memory_order_acquire);
  if ((stamp ^ stamp_) >> 20 != 0) return Entry::kNone;
  const std::uint64_t difference = (slot.header[0] ^ header_[0]) | (slot.header[1] ^ header_[1]) |
                                   (slot.header[2] ^ header_[2]) |
                                   ((slot.header[3] ^ header_[3]) & kComparedBits);
  return (difference | (stamp ^ stamp_)) == 0 ? Entry::kEqual : Entry::kDifferent;
}

bool ShmSync::has_entered(int rank, const OpContext& context) {
  const Entry entry = entry_of(rank);
  if (entry == Entry::kDifferent) disagree(rank, context);
  return entry == Entry::kEqual;
}

void ShmSync::wait_for_entries(const OpContext& context) {
  wait_for_all([this, &context](int rank) { return has_entered(rank, context); }, context);
}

void ShmSync::publish(Counter counter, std::uint64_t step) noexcept {
  (segment_.area(rank_).*counter).store(step, std::memory_order_release);
  segment_.wake_sleepers();
}

void ShmSync::wait_for_counter(Counter counter, std::uint64_t step, const OpContext& context) {
  const auto is_there = [this, counter, step](int rank) {
    return (segment_.area(rank).*counter).load(std::memory_order_acquire) >= step;
  };
  wait_for_all(is_there, context);
}

template <typename Seen>
void ShmSync::wait_for_all(const Seen& seen, const OpContext& context) {
  int spins = spins_;
  for (int rank = 0; rank < size_; ++rank) {
    if (rank == rank_) continue;
    while (!seen(rank)) {
      if (--spins < 0) return wait_long(seen, context);
      relax(spins_ - spins);
    }
  }
}

void ShmSync::wait_long(const std::function<bool(int)>& seen, const OpContext& context) {
  const auto all_seen = [this, &seen] {
    for (int rank = 0; rank < size_; ++rank) {
      if (rank != rank_ && !seen(rank)) return false;
    }
    return true;
  };
  const milliseconds limit = context.deadline.limit();
  const milliseconds period = ProgressTracker::period(limit, kLivenessPeriod);
  const auto begin = Clock::now();
  tracker_.note();  // this rank has got here
  tracker_.look(begin);
  auto next_check = begin + period;
  const microseconds yield_time = context.progress ? kProgressYieldTime : kYieldTime;
  const nanoseconds longest = context.progress ? nanoseconds(kProgressSleep) : kLongestSleep;
  for (;;) {
    if (all_seen()) return;
    throw_if_stopped(context);
    if (context.progress) context.progress();
    const auto now = Clock::now();
    tracker_.look(now);  // of the other Comm's transfers
    if (now - begin < yield_time) {
      ::sched_yield();
      continue;
    }
    if (now >= next_check || tracker_.left(limit, now) <= nanoseconds::zero()) {
      check_peers(seen, context);
      learn_progress(seen, now);
      next_check = now + period;
    }
    const nanoseconds left = tracker_.left(limit, now);
    if (left <= nanoseconds::zero()) time_out(seen, context);
    segment_.sleep([&] { return all_seen() || must_stop(context.failure); },
                   std::clamp(left, nanoseconds::zero(), longest));
  }
}

void ShmSync::show_progress() noexcept {
  tracker_.note();
  tracker_.look(Clock::now());
}

// Whoever waits for ranks that have not come waits for what they wait for.
void ShmSync::learn_progress(const std::function<bool(int)>& seen, Clock::time_point now) {
  for (int rank = 0; rank < size_; ++rank) {
    if (rank == rank_ || seen(rank)) continue;
    tracker_.learn(segment_.area(rank).progress.load(std::memory_order_relaxed), now);
  }
}

bool ShmSync::must_stop(const FailureState* failure) const noexcept {
  return segment_.has_failed() || is_aborted_.load(std::memory_order_relaxed) ||
         (failure != nullptr && failure->has_failed());
}

void ShmSync::throw_if_stopped(const OpContext& context) {
  // What this process knows already comes first, so that its other Comms report the same.
  if (context.failure != nullptr && context.failure->has_failed()) {
    fail(context.failure->error(), context);
  }
  if (segment_.has_failed()) fail(segment_.failure(), context);
  if (is_aborted_) {
    fail(std::make_exception_ptr(PeerError("the group was aborted on " + name(rank_))), context);
  }
}

void ShmSync::fail(const std::exception_ptr& error, const OpContext& context) {
  // Into the segment first: listeners of the failure state may abort this Comm with less to say.
  segment_.fail(error);
  if (context.failure != nullptr) {
    context.failure->fail(error);
    context.failure->rethrow_if_failed();
  }
  std::rethrow_exception(error);
}

void ShmSync::disagree(int rank, const OpContext& context) {
  const Slot& slot = segment_.area(rank).slots[call_ & 1];
  const auto bytes = std::bit_cast<std::array<std::byte, MessageHeader::kBytes>>(slot.header);
  const auto theirs = MessageHeader::decode(bytes);
  const std::string their_call = theirs ? theirs->describe() : "something unreadable";
  std::string text = "ranks disagree: " + name(rank_) + " calls " + context.header.describe() +
                     ", " + name(rank) + " calls " + their_call;
  if (theirs && theirs->matches(context.header)) {
    text += " with another length or root; that is an error in Chainmail, please report it";
  } else {
    text += "; all ranks of a group must make the same calls in the same order";
  }
  fail(std::make_exception_ptr(MismatchError(text)), context);
}

void ShmSync::check_peers(const std::function<bool(int)>& seen, const OpContext& context) {
  for (int rank = 0; rank < size_; ++rank) {
    const RankArea& area = segment_.area(rank);
    const bool has_died = is_dead(rank);
    const bool has_left = area.presence.load() == Presence::kLeft;
    // Looked at last: what a rank delivered before it ended counts.
    if (rank == rank_ || (!has_died && !has_left) || seen(rank)) continue;
    std::string text = name(rank) + " (pid " + std::to_string(area.pid) + ") ";
    text += has_left ? "left the group" : "ended";
    text += " while " + name(rank_) + " waits for it in " + context.header.describe();
    if (has_left) text += "; it makes fewer calls than its peers, or failed and ended";
    fail(std::make_exception_ptr(PeerError(text, global_rank(rank))), context);
  }
}

void ShmSync::time_out(const std::function<bool(int)>& seen, const OpContext& context) {
  std::vector<int> missing;
  std::string names;
  for (int rank = 0; rank < size_; ++rank) {
    if (rank == rank_ || seen(rank)) continue;
    missing.push_back(global_rank(rank));
    names += (names.empty() ? "" : ", ") + name(rank) + " (pid " +
             std::to_string(segment_.area(rank).pid) + ")";
  }
  if (missing.empty()) return;  // the last one came this moment
  fail(std::make_exception_ptr(
           TimeoutError(context.header.describe() + " on " + name(rank_) +
                            " made no progress within its time limit: waiting for " + names +
                            ", alive but stopped, slow or busy elsewhere",
                        missing)),
       context);
}

std::string ShmSync::name(int rank) const {
  return "rank " + std::to_string(global_rank(rank)) + " on host " + host_;
}

void ShmSync::abort() noexcept {
  is_aborted_ = true;
  try {
    std::exception_ptr error = failure_ != nullptr ? failure_->error() : nullptr;
    if (error == nullptr) {
      error = std::make_exception_ptr(
          PeerError("the group was aborted on " + name(rank_), global_rank(rank_)));
    }
    segment_.fail(error);
  } catch (...) {
    segment_.fail(std::current_exception());
  }
}

}  // namespace chainmail::ops::shm
