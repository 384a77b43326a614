// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// How the calls of a queue wait: looking, sleeping, asking peers that are late.

#include <algorithm>
#include <string>
#include <thread>
#include <utility>

#include "base/error.h"
#include "ops/comm/p2p/call_queue.h"

namespace chainmail::ops {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;
using std::chrono::milliseconds;

// The longest sleep: flags and deadlines are looked at this often.
constexpr microseconds kSlice{10000};
// The same while another Comm's transfers depend on this thread.
constexpr microseconds kSharedSlice{200};
// A transfer that is this late makes both ends compare what they do; then again, less and less
// often.
constexpr milliseconds kFirstInquiry{100};
constexpr milliseconds kMaxInquiryPause{500};

}  // namespace

// Looking pays where what is waited for comes soon, and what a sleep and waking up add to that must
// not hide it.
void CallQueue::adapt_spin(std::chrono::nanoseconds idle) {
  spin_ = idle <= 4 * options_.spin ? options_.spin : spin_ / 2;
}

template <typename IsDone, typename VisitPending>
void CallQueue::wait_until(const OpContext& context, const IsDone& is_done,
                           const VisitPending& visit) {
  const microseconds slice = context.progress ? kSharedSlice : kSlice;
  const milliseconds limit = context.deadline.limit();
  const milliseconds first_pause = ProgressTracker::period(limit, kFirstInquiry);
  const milliseconds longest_pause = ProgressTracker::period(limit, kMaxInquiryPause);
  milliseconds pause = first_pause;
  const auto begin = Clock::now();
  tracker_.note();  // this rank has got here
  tracker_.look(begin);
  auto next_inquiry = begin + pause;
  std::uint64_t moves = seen_.moves;
  std::vector<int> peers;
  Clock::time_point idle_since;
  bool is_idle = false;
  try {
    while (!is_done()) {
      const bool has_moved = step();
      if (is_done()) return;
      if (context.progress) context.progress();
      check(context);
      const auto now = Clock::now();
      tracker_.look(now);
      if (has_moved) {
        if (is_idle) adapt_spin(now - idle_since);
        is_idle = false;
        continue;
      }
      if (!std::exchange(is_idle, true)) idle_since = now;
      if (now - idle_since < spin_) {
        std::this_thread::yield();
        continue;
      }
      if (now >= next_inquiry && seen_.moves != moves) {  // not late, only long
        moves = seen_.moves;
        next_inquiry = now + first_pause;
      } else if (now >= next_inquiry) {
        peers.clear();
        visit(peers, true);
        is_dirty_ = true;  // a close look may have ended transfers, or found that some have moved
        note_progress();
        pause = std::min(2 * pause, longest_pause);
        next_inquiry = now + pause;
      }
      tracker_.look(now);
      const auto left = tracker_.left(limit, now);
      if (left <= left.zero()) {
        peers.clear();
        visit(peers, false);
        std::rethrow_exception(late(context, std::move(peers)));
      }
      transport_.wait(std::min(slice, std::chrono::ceil<microseconds>(left)));
    }
  } catch (...) {
    fail(std::current_exception(), context.failure);
    give_up(context);
  }
}

std::exception_ptr CallQueue::late(const OpContext& context, std::vector<int> peers) const {
  std::sort(peers.begin(), peers.end());
  peers.erase(std::unique(peers.begin(), peers.end()), peers.end());
  std::string text = context.header.describe() + " timed out on " +
                     transport_.name(transport_.rank()).describe() + ": no answer from ";
  std::vector<int> ranks;
  for (const int peer : peers) {
    text += (ranks.empty() ? "" : ", ") + transport_.name(peer).describe();
    ranks.push_back(transport_.name(peer).rank);
  }
  if (peers.empty()) text += "peers";
  return std::make_exception_ptr(TimeoutError(
      text + "; is it still computing, stopped or cut off? A longer timeout gives it more time",
      ranks));
}

void CallQueue::wait(Call& call) {
  if (call.is_done) return;
  wait_until(
      call.context, [&] { return call.is_done; },
      [&](std::vector<int>& peers, bool inquires) {
        for (const auto& schedule : call.running) schedule->visit_pending(peers, inquires);
      });
}

void CallQueue::wait_for_room(const Call& call) {
  const auto has_room = [&] {
    return active_.empty() || call.args.position - active_.front()->args.position < kMaxCallsAhead;
  };
  wait_until(call.context, has_room, [&](std::vector<int>& peers, bool inquires) {
    for (const auto& schedule : active_.front()->running) schedule->visit_pending(peers, inquires);
  });
}

}  // namespace chainmail::ops
