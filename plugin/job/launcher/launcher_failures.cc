// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The part of LauncherClient that spreads failures.

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "plugin/job/launcher/launcher_client.h"

namespace chainmail::internal {
namespace {

// The callers are moving data: a launcher that does not answer is asked again later.
constexpr std::chrono::milliseconds kAttendancePeriod{100};
// Of the list of ended ranks, which one launcher sends to all ranks.
constexpr std::size_t kListBytesPerMs = 50;
// Limits of a failure report, which goes to all ranks.
constexpr std::size_t kMostMissingTold = 256;
constexpr std::size_t kMostWords = 4096;
constexpr std::chrono::milliseconds kAttendanceLimit{250};

}  // namespace

std::exception_ptr rebuild_error(const ops::ErrorParts& parts, int culprit) {
  switch (*parts.code) {
    case ErrorCode::kInvalidArgument:
      return std::make_exception_ptr(InvalidArgument(parts.message));
    case ErrorCode::kMismatch:
      return std::make_exception_ptr(MismatchError(parts.message));
    case ErrorCode::kTimeout:
      return std::make_exception_ptr(TimeoutError(parts.message, parts.numbers));
    case ErrorCode::kSystem:
    case ErrorCode::kMpi:
    case ErrorCode::kNccl:
    case ErrorCode::kCuda:
    case ErrorCode::kCheckpoint:
      // A native failure of another rank is, seen from here, a lost peer.
    case ErrorCode::kPeer:
      break;
  }
  return std::make_exception_ptr(PeerError(parts.message, culprit));
}

void LauncherClient::subscribe(const std::string& group, const std::vector<int>& global_ranks,
                               std::shared_ptr<ops::FailureState> state) {
  std::exception_ptr known;
  {
    const std::lock_guard lock(mutex_);
    known = gone_;
    const auto failed = failed_groups_.find(group);
    if (!known && failed != failed_groups_.end()) known = failed->second;
    const auto lost = std::find_if(lost_ranks_.begin(), lost_ranks_.end(), [&](const auto& each) {
      return std::find(global_ranks.begin(), global_ranks.end(), each.first) != global_ranks.end();
    });
    if (!known && lost != lost_ranks_.end()) known = lost->second;
    subscriptions_[group] = Subscription{global_ranks, state};
  }
  if (known) state->fail(known);
}

void LauncherClient::unsubscribe(const std::string& group) {
  const std::lock_guard lock(mutex_);
  subscriptions_.erase(group);
  failed_groups_.erase(group);
}

void LauncherClient::announce(const std::string& group, const std::exception_ptr& error) noexcept {
  try {
    const ops::ErrorParts parts = ops::describe_error(error);
    const ErrorCode code = parts.code.value_or(ErrorCode::kPeer);
    const std::vector<int>& ranks = parts.numbers;  // missing ones, or the peer
    const bool has_peer = parts.code == ErrorCode::kPeer && !ranks.empty();
    BodyWriter body;
    body.text(group).u32(static_cast<std::uint32_t>(code));
    body.text(parts.message.substr(0, kMostWords)).i64(has_peer ? ranks.front() : -1);
    // Every rank of the job gets this, so the list is short.
    const std::size_t missing = code == ErrorCode::kTimeout ? ranks.size() : 0;
    for (std::size_t i = 0; i < std::min(missing, kMostMissingTold); ++i) {
      body.u32(static_cast<std::uint32_t>(ranks[i]));
    }
    post_frame(JobMessage::kGroupFailed, body.take());
  } catch (const std::exception& failure) {
    log_line(LogLevel::kInfo, std::string("could not announce a failure: ") + failure.what());
  }
}

std::optional<std::string> LauncherClient::fetch_ended_ranks() {
  try {
    return try_get(kEndedRanksKey, Deadline::after(kAttendanceLimit));
  } catch (const TimeoutError&) {
    return std::nullopt;
  }
}

std::optional<ops::RankEnd> LauncherClient::end_of(int rank) {
  bool is_old = false;
  {
    const std::lock_guard lock(mutex_);
    is_old = next_look_.has_passed();
    if (is_old) next_look_ = Deadline::after(kAttendancePeriod + reading_time_);
  }
  const auto list = is_old ? fetch_ended_ranks() : std::nullopt;
  const auto news = list ? decode_ended(*list) : std::vector<EndedRank>();
  const std::lock_guard lock(mutex_);
  // Every waiting rank asks and gets the whole list: the longer it is, the less often.
  if (list) {
    reading_time_ = std::chrono::milliseconds(list->size() / kListBytesPerMs);
    ended_ranks_.clear();
  }
  for (const EndedRank& ended : news) {
    const int number = static_cast<int>(ended.rank);
    ended_ranks_.try_emplace(number, ops::RankEnd{number, ended.host, ended.cause});
  }
  const auto found = ended_ranks_.find(rank);
  return found == ended_ranks_.end() ? std::nullopt : std::optional(found->second);
}

// FailureState::fail runs listeners, so no lock is held around it.
void LauncherClient::rank_lost(int rank, std::exception_ptr error) {
  std::vector<std::shared_ptr<ops::FailureState>> concerned;
  {
    const std::lock_guard lock(mutex_);
    lost_ranks_.emplace_back(rank, error);
    for (const auto& [group, subscription] : subscriptions_) {
      const auto& ranks = subscription.global_ranks;
      if (std::find(ranks.begin(), ranks.end(), rank) != ranks.end()) {
        concerned.push_back(subscription.state);
      }
    }
  }
  for (const auto& state : concerned) state->fail(error);
}

void LauncherClient::group_failed(const std::string& group, std::exception_ptr error) {
  std::shared_ptr<ops::FailureState> state;
  {
    const std::lock_guard lock(mutex_);
    failed_groups_.emplace(group, error);
    const auto found = subscriptions_.find(group);
    if (found != subscriptions_.end()) state = found->second.state;
  }
  if (state) state->fail(error);
}

// A member that is lost does not come back under its number, and nobody makes a group of a world
// that is over.
void LauncherClient::forget_before(const membership::World& world) {
  const std::lock_guard lock(mutex_);
  if (world.generation <= announced_world_) return;
  announced_world_ = world.generation;
  std::erase_if(lost_ranks_, [&](const auto& lost) {
    return !world.rank_of(static_cast<membership::MemberId>(lost.first));
  });
  failed_groups_.clear();
}

void LauncherClient::fail_groups(const std::exception_ptr& error) noexcept {
  std::vector<std::shared_ptr<ops::FailureState>> all;
  {
    const std::lock_guard lock(mutex_);
    if (!gone_) gone_ = error;
    for (const auto& [group, subscription] : subscriptions_) all.push_back(subscription.state);
    changed_.notify_all();
  }
  for (const auto& state : all) state->fail(error);
}

void LauncherClient::fail_everything(std::exception_ptr error) noexcept {
  fail_groups(error);
  tell_listener(std::nullopt);
}

}  // namespace chainmail::internal
