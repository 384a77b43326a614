// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/engine/failure/diagnosis.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <optional>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "ops/core/error_text.h"

namespace chainmail::ops {
namespace {

using std::chrono::milliseconds;

// What the first rank to fail found out; the value is an encoded error.
constexpr const char* kFailureKey = "failure";
// Set by a rank that is still finding out what to write under kFailureKey.
constexpr const char* kFailingKey = "failing";

constexpr const char* kLookFor = "; look for a stopped process or a cut network";

// A closed connection is seen in microseconds, the reason for it (a rank was killed) a little
// later; a rank that is busy describing a disagreement takes longer.
constexpr milliseconds kNewsWait{150};
constexpr milliseconds kDescribeWait{450};
constexpr milliseconds kOthersDescribeWait{750};
constexpr milliseconds kPause{5};
// Longer than the watchdogs need to see that a rank has reached its time limit.
constexpr milliseconds kSignWait{500};
// A time limit is told with at most this fraction of it in delay.
constexpr int kPromptness = 25;

// What asking may cost in all: of an operation that has failed, where the last question had no
// answer either, of a failure that is told, and of one round of the watchdog, whose end a group
// waits for.
constexpr milliseconds kExplainLimit{850};
constexpr milliseconds kSilentLimit{50};
constexpr milliseconds kTellLimit{100};
constexpr milliseconds kLookLimit{500};

// Rounds of the watchdog: ask often at first, then seldom, so that a long operation of many ranks
// does not flood the store; warn once when ranks are late.
constexpr int kEagerRounds = 20;
constexpr int kSeldom = 4;
constexpr int kWarnRound = 50;

/// "nothing of it has moved for 1000 ms, after 5 of 10 bytes"
std::string describe_standstill(const PlannedOperation& operation) {
  std::string text =
      "nothing of it has moved for " + std::to_string(operation.timeout.count()) + " ms";
  const std::uint64_t moved = operation.moved_bytes;
  if (moved == 0) return text;
  text += ", after " + std::to_string(moved);
  return is_point_to_point(operation.collective.kind)
             ? text + " of " + std::to_string(operation.plan.bytes) + " bytes"
             : text + " bytes that this rank sent or received";
}

/// A receive whose sender has begun: some of the message is here.
bool is_coming(const PlannedOperation& operation) {
  return operation.collective.kind == OpKind::kRecv && operation.moved_bytes != 0;
}

bool is_open(const PlannedOperation& operation) {
  return is_from_any_rank(operation.collective) && operation.peer_rank() < 0;
}

}  // namespace

Diagnosis::Diagnosis(int rank, const Topology& topology, std::vector<int> global_ranks,
                     const GroupOptions& options, std::shared_ptr<Rendezvous> rendezvous,
                     std::function<Activity()> activity, std::shared_ptr<FailureState> failure)
    : rank_(rank),
      all_ranks_(all_ranks(topology.size())),
      options_(options),
      rendezvous_(rendezvous),
      activity_(std::move(activity)),
      failure_(std::move(failure)),
      status_(rank, topology, std::move(global_ranks), options, std::move(rendezvous)) {}

void Diagnosis::publish() {
  const std::lock_guard lock(publish_mutex_);
  status_.publish(activity_());
}

/// The ranks that an operation waits for.
std::vector<int> Diagnosis::peers_of(const PlannedOperation& operation) const {
  const int peer = operation.peer_rank();
  return peer >= 0 ? std::vector<int>{peer} : all_ranks_;
}

std::string Diagnosis::list_names(std::span<const int> ranks, Deadline deadline) {
  constexpr std::size_t kMost = 8;
  std::string text;
  for (std::size_t i = 0; i < std::min(ranks.size(), kMost); ++i) {
    text += (i == 0 ? "" : ", ") + status_.name_of(ranks[i], deadline);
  }
  return ranks.size() > kMost ? text + " and " + std::to_string(ranks.size() - kMost) + " more"
                              : text;
}

internal::Deadline Diagnosis::patience(milliseconds limit) const {
  return is_silent_ ? Deadline::after(kSilentLimit) : rendezvous_->patience(limit);
}

std::optional<std::string> Diagnosis::ask(const std::string& key, Deadline deadline) {
  try {
    auto value = rendezvous_->try_get(key, deadline);
    is_silent_ = false;
    return value;
  } catch (const TimeoutError&) {
    is_silent_ = true;
    throw;
  }
}

Finding Diagnosis::reported_by_others(Deadline deadline) {
  if (failure_->has_failed()) {
    return {failure_->error(), true};
  }
  if (const auto text = ask(kFailureKey, deadline)) {
    return {decode_error(*text), true};
  }
  return {};
}

/// Waits a moment for news of what really happened.
Finding Diagnosis::wait_for_cause(bool is_mismatch, Deadline deadline) {
  const auto start = std::chrono::steady_clock::now();
  milliseconds patience = is_mismatch ? kDescribeWait : kNewsWait;
  bool may_be_mismatch = is_mismatch;
  do {
    if (Finding finding = reported_by_others(deadline); finding.error != nullptr) return finding;
    if (!may_be_mismatch && ask(kFailingKey, deadline)) {
      may_be_mismatch = true;
      patience = kOthersDescribeWait;
    }
    if (may_be_mismatch) {
      if (const auto sentence = status_.find_disagreement(all_ranks_, deadline)) {
        return {std::make_exception_ptr(MismatchError(*sentence))};
      }
    }
    std::this_thread::sleep_for(kPause);
  } while (std::chrono::steady_clock::now() - start < patience);
  return {};
}

/// Those of `ranks` that have not noticed that another rank has reached its time limit; only those
/// that the Comm names, too, where there are such.
std::vector<int> Diagnosis::find_stopped(std::span<const int> ranks,
                                         const std::vector<int>& missing_in_comm,
                                         Deadline deadline) {
  const std::vector<int> silent = status_.find_silent(ranks, deadline);
  std::vector<int> named;
  std::copy_if(silent.begin(), silent.end(), std::back_inserter(named), [&](int rank) {
    return std::find(missing_in_comm.begin(), missing_in_comm.end(), status_.global_rank(rank)) !=
           missing_in_comm.end();
  });
  return named.empty() ? silent : named;
}

std::string Diagnosis::describe_timeout(const PlannedOperation& operation) const {
  // "Timed out" is what torch's callers look for.
  return title_of(operation) + " on " + status_.own_name() +
         ": Timed out waiting: " + describe_standstill(operation) + "; ";
}

Finding Diagnosis::explain_timeout(const PlannedOperation& operation, const std::string& message,
                                   const std::vector<int>& missing_in_comm, Deadline deadline) {
  const std::vector<int> peers = peers_of(operation);
  const std::vector<int> missing =
      is_coming(operation) ? std::vector<int>() : status_.find_missing(operation, peers, deadline);
  const bool has_no_sender = is_open(operation);
  const bool all_have_begun = missing.empty() && !has_no_sender;
  const std::vector<int> late =
      all_have_begun ? find_stopped(peers, missing_in_comm, deadline) : missing;
  std::vector<int> global_missing;
  for (const int rank : late) global_missing.push_back(status_.global_rank(rank));
  const std::string names = list_names(late, deadline);
  const std::string have = names + (late.size() == 1 ? " has" : " have");
  std::string text = describe_timeout(operation);
  if (has_no_sender) {
    text += "no message with tag " + std::to_string(operation.collective.tag) + " has come from " +
            names;
  } else if (!all_have_begun) {
    text += have +
            " not been seen in it; look at what they do, or allow more time if they are only "
            "slow";
  } else if (late.empty()) {
    global_missing = missing_in_comm;
    text += "all ranks have begun it, but data does not come (" + message + ")" + kLookFor;
  } else {
    text += have + " begun it and then given no sign of life" + kLookFor;
  }
  return {std::make_exception_ptr(TimeoutError(text, std::move(global_missing)))};
}

Finding Diagnosis::explain_or_throw(const PlannedOperation& operation,
                                    const std::exception_ptr& error,
                                    const std::function<void()>& release_peers, Deadline deadline) {
  try {
    std::rethrow_exception(error);
  } catch (const MismatchError& e) {
    rendezvous_->set(kFailingKey, "1");
    publish();
    release_peers();
    const Finding cause = wait_for_cause(true, deadline);
    if (cause.error != nullptr) return cause;
    return {std::make_exception_ptr(MismatchError(title_of(operation) + ": " + status_.own_name() +
                                                  " calls " + status_.describe(operation) +
                                                  ", but " + e.what()))};
  } catch (const PeerError& e) {
    publish();
    release_peers();
    const Finding cause = wait_for_cause(false, deadline);
    if (cause.error != nullptr) return cause;
    const std::string text = title_of(operation) + " on " + status_.own_name() + ": " + e.what();
    return {std::make_exception_ptr(PeerError(text, e.peer_rank()))};
  } catch (const TimeoutError& e) {
    publish();
    if (const Finding cause = reported_by_others(deadline); cause.error != nullptr) return cause;
    rendezvous_->set(kFailingKey, "1");
    status_.sign();
    // The others get here, too, or their watchdogs see the key: let them write down where they are.
    std::this_thread::sleep_for(std::min(kSignWait, operation.timeout / kPromptness));
    const Finding cause = reported_by_others(deadline);
    if (cause.error != nullptr) return cause;
    return explain_timeout(operation, e.what(), e.missing_ranks(), deadline);
  } catch (...) {
    release_peers();
    return {error};
  }
}

/// With what is known without the others.
Finding Diagnosis::explain_alone(const PlannedOperation& operation, const std::exception_ptr& error,
                                 const std::string& reason) const {
  try {
    std::rethrow_exception(error);
  } catch (const TimeoutError& e) {
    std::vector<int> missing = e.missing_ranks();
    if (is_open(operation)) {  // not only from those that one engine serves
      missing.clear();
      for (const int rank : all_ranks_) {
        if (rank != rank_) missing.push_back(status_.global_rank(rank));
      }
    }
    return {std::make_exception_ptr(
        TimeoutError(describe_timeout(operation) + e.what() +
                         "; which ranks are missing cannot be found out: " + reason,
                     std::move(missing)))};
  } catch (...) {
    return {error};
  }
}

Finding Diagnosis::explain(const PlannedOperation& operation, const std::exception_ptr& error,
                           const std::function<void()>& release_peers) noexcept {
  Finding result{error};
  try {
    result = explain_or_throw(operation, error, release_peers, patience(kExplainLimit));
  } catch (const std::exception& e) {
    // The rendezvous is gone as well, such as with the launcher or a host that is cut off.
    result = explain_alone(operation, error, e.what());
    internal::log_line(internal::LogLevel::kInfo,
                       std::string("cannot ask the other ranks what failed: ") + e.what());
  }
  release_peers();
  return result;
}

std::exception_ptr Diagnosis::error_of(const std::string& title, const std::exception_ptr& error) {
  return in_operation(title + " on " + status_.own_name(), error);
}

Finding Diagnosis::look(std::span<const LongOperation> operations) noexcept {
  const Deadline deadline = rendezvous_->patience(kLookLimit);
  try {
    const auto is_at = [&](int rounds) {
      return std::any_of(operations.begin(), operations.end(),
                         [&](const LongOperation& each) { return each.rounds == rounds; });
    };
    if (is_at(1)) publish();
    int rounds = operations.front().rounds;
    for (const LongOperation& each : operations) rounds = std::min(rounds, each.rounds);
    if (rounds > kEagerRounds && rounds % kSeldom != 0 && !is_at(kWarnRound)) {
      return {};
    }
    if (Finding finding = reported_by_others(deadline); finding.error != nullptr) return finding;
    if (ask(kFailingKey, deadline) && !std::exchange(has_signed_, true)) {
      publish();
      status_.sign();
    }
    if (Finding finding = find_disagreement(operations, deadline); finding.error != nullptr) {
      return finding;
    }
    warn_of_late_ranks(operations, deadline);
  } catch (const std::exception& e) {
    internal::log_line(internal::LogLevel::kInfo,
                       std::string("cannot ask where the other ranks are: ") + e.what());
  }
  return {};
}

Finding Diagnosis::find_disagreement(std::span<const LongOperation> operations, Deadline deadline) {
  std::vector<int> ranks;
  for (const LongOperation& each : operations) {
    const Collective& collective = each.operation->collective;
    if (!is_point_to_point(collective.kind)) {
      // If any two ranks differ, two neighbours do.
      const int size = static_cast<int>(all_ranks_.size());
      ranks.insert(ranks.end(), {(rank_ + size - 1) % size, (rank_ + 1) % size});
    } else if (!is_from_any_rank(collective)) {
      ranks.push_back(collective.root);
    }
  }
  if (const auto sentence = status_.find_disagreement(ranks, deadline)) {
    return {std::make_exception_ptr(MismatchError(*sentence))};
  }
  return {};
}

void Diagnosis::warn_of_late_ranks(std::span<const LongOperation> operations, Deadline deadline) {
  for (const LongOperation& each : operations) {
    if (each.rounds != kWarnRound || is_coming(*each.operation)) continue;
    const std::vector<int> late =
        status_.find_missing(*each.operation, peers_of(*each.operation), deadline);
    if (!late.empty()) {
      internal::log_line(internal::LogLevel::kWarning, title_of(*each.operation) +
                                                           " has been waiting for " +
                                                           list_names(late, deadline) + " for " +
                                                           std::to_string(each.rounds / 10) + " s");
    }
  }
}

/// The first cause is the true one.
bool Diagnosis::is_known_to_others() {
  try {
    return ask(kFailureKey, patience(kTellLimit)).has_value();
  } catch (const TimeoutError&) {
    return false;  // better two causes than none, once the rendezvous can be reached again
  }
}

void Diagnosis::announce(const std::exception_ptr& error) noexcept {
  try {
    if (is_known_to_others()) return;
    rendezvous_->set(kFailureKey, encode_error(error));
  } catch (const std::exception& e) {
    internal::log_line(internal::LogLevel::kInfo,
                       std::string("cannot leave the failure in the store: ") + e.what());
  }
}

}  // namespace chainmail::ops
