// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// barrier and monitoredBarrier of the backend.

#include <algorithm>
#include <charconv>
#include <sstream>
#include <utility>

#include "base/deadline.h"
#include "base/error.h"
#include "base/threads/poll_until.h"
#include "plugin/c10d/backend/chainmail_backend.h"

namespace chainmail::internal {
namespace {

// The monitored barriers of a group are numbered from 1. Every rank writes down the latest that it
// has reached, rank 0 how the latest ended; both overwrite what they wrote before.
constexpr char kVerdictKey[] = "monitored/verdict";
// Gloo's words, which programs may look for.
constexpr char kFailed[] = " failed to pass monitoredBarrier in ";
constexpr char kTimedOut[] = " timed out in monitoredBarrier";
constexpr char kReached[] =
    " successfully reached monitoredBarrier, but received errors while waiting for send/recv from "
    "rank ";
// How long ranks wait for the word of rank 0 beyond the time that it waits for them.
constexpr std::chrono::seconds kGrace{5};
constexpr PollPauses kPauses{.longest = std::chrono::milliseconds{5}};

std::string reached_key(int rank) { return "monitored/reached/" + std::to_string(rank); }

std::uint64_t number_in(const std::optional<std::string>& text) {
  std::uint64_t number = 0;
  if (text) std::from_chars(text->data(), text->data() + text->size(), number);
  return number;
}

struct Verdict {
  std::uint64_t number = 0;
  std::vector<int> missing;

  std::string encode() const {
    std::string text = std::to_string(number);
    for (const int rank : missing) text += " " + std::to_string(rank);
    return text;
  }
  static Verdict decode(const std::string& text) {
    std::istringstream words(text);
    Verdict verdict;
    words >> verdict.number;
    for (int rank = 0; words >> rank;) verdict.missing.push_back(rank);
    return verdict;
  }
};

std::vector<int> wait_for_others(ops::Rendezvous& board, std::uint64_t number, int size,
                                 bool wait_all_ranks, Deadline deadline) {
  std::vector<int> missing;
  for (int rank = 1; rank < size; ++rank) {
    const auto has_come = [&] { return number_in(board.try_get(reached_key(rank))) >= number; };
    // The first missing one uses up the time; the ranks after it have come by then or not.
    if (poll_until(has_come, deadline, kPauses)) continue;
    missing.push_back(rank);
    if (!wait_all_ranks) break;
  }
  return missing;
}

std::string list_of(const std::vector<int>& ranks) {
  std::string text;
  for (const int rank : ranks) text += (text.empty() ? "" : ", ") + std::to_string(rank);
  return text;
}

}  // namespace

// Ranks meet on the CPU, each when its streams are done with what they were given before: the
// current ones of the GPUs that this group has worked on, and of the one that c10d names, which
// need not be the same on all ranks.
ChainmailBackend::WorkPtr ChainmailBackend::barrier(const c10d::BarrierOptions& opts) {
  const std::chrono::milliseconds limit = limit_of(opts.timeout);
  const auto lanes = lanes_.all();
  std::vector<std::shared_ptr<ops::DeviceOperation>> before;
  try {
    for (const auto& lane : lanes) before.push_back(lane->mark_current_stream(limit));
  } catch (const InvalidArgument& mistake) {
    TORCH_CHECK(false, "chainmail: barrier: ", mistake.what());
  }
  const auto has_lane = [&](c10::Device device) {
    return std::any_of(lanes.begin(), lanes.end(), [&](const auto& lane) {
      return lane->device() == device ||
             (!device.has_index() && lane->device().type() == device.type());
    });
  };
  if (opts.device && !has_lane(*opts.device)) {
    wait_for_current_stream(*opts.device, [&, deadline = Deadline::after(limit)] {
      if (const auto error = group_->error()) std::rethrow_exception(error);
      if (!deadline.has_passed()) return;
      throw TimeoutError("barrier of group " + options_.group_name +
                         ": what the current stream of " + opts.device->str() +
                         " was given before it is not done after " + std::to_string(limit.count()) +
                         " ms");
    });
  }
  ops::Collective collective;
  collective.kind = ops::OpKind::kBarrier;
  if (!before.empty()) {
    collective.prepare = [before = std::move(before)](ops::Collective& /*barrier*/) {
      for (const auto& mark : before) mark->wait();
    };
  }
  return launch({api::kBarrier, opts.timeout, opts.asyncOp}, {}, std::move(collective),
                make_payload({}));
}

void ChainmailBackend::monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) {
  // Here 0 means "at once", as with Gloo.
  const std::chrono::milliseconds limit =
      opts.timeout.count() == 0 ? opts.timeout : limit_of(opts.timeout);
  check_open("monitored barrier");
  const std::uint64_t number = ++monitored_barriers_;
  if (size_ == 1) return;
  const std::string self = "Rank " + std::to_string(global_rank(rank_));
  const std::string who = "[" + self + "]: ";
  Verdict verdict;
  if (rank_ == 0) {
    verdict.number = number;
    verdict.missing =
        wait_for_others(*board_, number, size_, wait_all_ranks, Deadline::after(limit));
    board_->set(kVerdictKey, verdict.encode());
  } else {
    board_->set(reached_key(rank_), std::to_string(number));
    const auto is_decided = [&] {
      verdict = Verdict::decode(board_->try_get(kVerdictKey).value_or("0"));
      return verdict.number >= number;
    };
    if (!poll_until(is_decided, Deadline::after(limit + kGrace), kPauses)) {
      throw TimeoutError(who + "monitoredBarrier of group " + options_.group_name + ": rank " +
                             std::to_string(global_rank(0)) + " did not answer within " +
                             std::to_string((limit + kGrace).count()) +
                             " ms; look whether it still runs and calls monitoredBarrier, too",
                         {global_rank(0)});
    }
  }
  if (verdict.number == number && verdict.missing.empty()) return;
  const bool is_late = verdict.number > number ||
                       std::count(verdict.missing.begin(), verdict.missing.end(), rank_) > 0;
  for (int& rank : verdict.missing) rank = global_rank(rank);
  std::string end = "this rank came too late";
  if (!is_late)
    end = rank_ == 0 ? self + kTimedOut : self + kReached + std::to_string(global_rank(0));
  throw TimeoutError(who + (wait_all_ranks ? "Ranks " : "Rank ") + list_of(verdict.missing) +
                         kFailed + std::to_string(limit.count()) + " ms, group " +
                         options_.group_name + "; " + end,
                     verdict.missing);
}

}  // namespace chainmail::internal
