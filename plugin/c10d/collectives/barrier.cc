// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// barrier and monitoredBarrier of the backend.

#include <c10/util/StringUtil.h>

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

// The monitored barriers of a group are numbered from 1. Every rank publishes the latest one that
// it has reached, rank 0 the result of the latest; both overwrite their earlier values.
constexpr char kResultKey[] = "monitored/result";
// Gloo's wording, which programs may parse.
constexpr char kFailed[] = " failed to pass monitoredBarrier in ";
constexpr char kTimedOut[] = " timed out in monitoredBarrier";
constexpr char kReached[] =
    " successfully reached monitoredBarrier, but received errors while waiting for send/recv from "
    "rank ";
// How much longer ranks wait for rank 0 than it waits for them.
constexpr std::chrono::seconds kGrace{5};
constexpr PollPauses kPauses{.longest = std::chrono::milliseconds{5}};

std::string reached_key(int rank) { return "monitored/reached/" + std::to_string(rank); }

std::uint64_t number_in(const std::optional<std::string>& text) {
  std::uint64_t number = 0;
  if (text) std::from_chars(text->data(), text->data() + text->size(), number);
  return number;
}

struct MonitoredResult {
  std::uint64_t number = 0;
  std::vector<int> missing;

  std::string encode() const {
    std::string text = std::to_string(number);
    for (const int rank : missing) text += " " + std::to_string(rank);
    return text;
  }
  static MonitoredResult decode(const std::string& text) {
    std::istringstream words(text);
    MonitoredResult result;
    words >> result.number;
    for (int rank = 0; words >> rank;) result.missing.push_back(rank);
    return result;
  }
};

std::vector<int> wait_for_others(ops::Rendezvous& rendezvous, std::uint64_t number, int size,
                                 bool wait_all_ranks, Deadline deadline) {
  std::vector<int> missing;
  for (int rank = 1; rank < size; ++rank) {
    const auto has_come = [&] {
      return number_in(rendezvous.try_get(reached_key(rank))) >= number;
    };
    // The first missing one uses up the time; later ranks have arrived by then or not.
    if (poll_until(has_come, deadline, kPauses)) continue;
    missing.push_back(rank);
    if (!wait_all_ranks) break;
  }
  return missing;
}

}  // namespace

// A barrier on the CPU, which each rank enters when its streams have finished their earlier work:
// the current streams of the GPUs that this group has used, and of the one that c10d names, which
// need not be the same on all ranks.
WorkPtr ChainmailBackend::barrier(const c10d::BarrierOptions& opts) {
  const std::chrono::milliseconds limit = group_.limit_of(opts.timeout);
  const auto contexts = issuer_.device_contexts().all();
  std::vector<std::shared_ptr<ops::DeviceOperation>> before;
  try {
    for (const auto& context : contexts) before.push_back(context->mark_current_stream(limit));
  } catch (const InvalidArgument& mistake) {
    TORCH_CHECK(false, "chainmail: barrier: ", mistake.what());
  }
  const auto has_context = [&](c10::Device device) {
    return std::any_of(contexts.begin(), contexts.end(), [&](const auto& context) {
      return context->device() == device ||
             (!device.has_index() && context->device().type() == device.type());
    });
  };
  if (opts.device && !has_context(*opts.device)) {
    wait_for_current_stream(*opts.device, [&, deadline = Deadline::after(limit)] {
      if (const auto failure = error()) std::rethrow_exception(failure);
      if (!deadline.has_passed()) return;
      throw TimeoutError("barrier of group " + group_.options.group_name +
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
  return issuer_.issue({api::kBarrier, opts.timeout, opts.asyncOp}, {}, std::move(collective),
                       group_.make_payload({}));
}

void ChainmailBackend::monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) {
  // Here 0 means "at once", as with Gloo.
  const std::chrono::milliseconds limit =
      opts.timeout.count() == 0 ? opts.timeout : group_.limit_of(opts.timeout);
  group_.check_open("monitored barrier");
  const std::uint64_t number = ++monitored_barriers_;
  if (size_ == 1) return;
  const std::string self = "Rank " + std::to_string(group_.global_rank());
  const std::string who = "[" + self + "]: ";
  MonitoredResult result;
  if (rank_ == 0) {
    result.number = number;
    result.missing =
        wait_for_others(*group_.rendezvous, number, size_, wait_all_ranks, Deadline::after(limit));
    group_.rendezvous->set(kResultKey, result.encode());
  } else {
    group_.rendezvous->set(reached_key(rank_), std::to_string(number));
    const auto is_decided = [&] {
      result = MonitoredResult::decode(group_.rendezvous->try_get(kResultKey).value_or("0"));
      return result.number >= number;
    };
    if (!poll_until(is_decided, Deadline::after(limit + kGrace), kPauses)) {
      throw TimeoutError(who + "monitoredBarrier of group " + group_.options.group_name +
                             ": rank " + std::to_string(group_.global_rank(0)) +
                             " did not answer within " + std::to_string((limit + kGrace).count()) +
                             " ms; look whether it still runs and calls monitoredBarrier, too",
                         {group_.global_rank(0)});
    }
  }
  if (result.number == number && result.missing.empty()) return;
  const bool is_late = result.number > number || std::ranges::count(result.missing, rank_) > 0;
  for (int& rank : result.missing) rank = group_.global_rank(rank);
  std::string end = "this rank came too late";
  if (!is_late)
    end = rank_ == 0 ? self + kTimedOut : self + kReached + std::to_string(group_.global_rank(0));
  throw TimeoutError(who + (wait_all_ranks ? "Ranks " : "Rank ") + c10::Join(", ", result.missing) +
                         kFailed + std::to_string(limit.count()) + " ms, group " +
                         group_.options.group_name + "; " + end,
                     result.missing);
}

}  // namespace chainmail::internal
