// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/core/liveness.h"

#include <algorithm>
#include <chrono>

#include "base/threads/poll_until.h"

namespace chainmail::ops {
namespace {

using internal::Deadline;

// Between two looks at one rank; also before the first, since most ranks come at once.
constexpr std::chrono::milliseconds kLookPause{100};

// False, too, where there was no answer.
bool is_missing(Rendezvous& rendezvous, const std::string& key) {
  const std::uint64_t unanswered = rendezvous.unanswered();
  return !rendezvous.try_get(key) && rendezvous.unanswered() == unanswered;
}

}  // namespace

std::shared_ptr<Rendezvous> rendezvous_of(const std::vector<int>& members,
                                          std::shared_ptr<Rendezvous> rendezvous) {
  auto* const liveness = dynamic_cast<RankLiveness*>(rendezvous.get());
  if (liveness == nullptr) return rendezvous;
  // It owns what `liveness` points to.
  return std::make_shared<LivenessRendezvous>(rendezvous, [liveness, members](int member) {
    return liveness->end_of(members.at(static_cast<std::size_t>(member)));
  });
}

std::optional<RankEnd> MissingRanks::end_of(int rank) {
  if (liveness_ == nullptr) return std::nullopt;
  const auto [place, is_new] = absences_.try_emplace(rank, Absence{Deadline::after(kLookPause)});
  Absence& absence = place->second;
  if (is_new || !absence.next_look.has_passed()) return std::nullopt;
  absence.next_look = Deadline::after(kLookPause);
  auto end = liveness_->end_of(rank);
  if (!end) return std::nullopt;
  const std::uint64_t unanswered = rendezvous_->unanswered();
  if (std::exchange(absence.unanswered_then, unanswered) == unanswered) return end;
  return std::nullopt;
}

PeerError ended_before(const RankEnd& end, const std::string& what) {
  return PeerError("rank " + std::to_string(end.rank) +
                       (end.host.empty() ? "" : " on host " + end.host) + " " + end.cause +
                       " before it " + what,
                   end.rank);
}

std::string get_from(Rendezvous& rendezvous, int rank, int end,
                     const std::function<std::string(int rank)>& key_of, Deadline deadline,
                     const std::string& what) {
  if (dynamic_cast<RankLiveness*>(&rendezvous) == nullptr) {
    return rendezvous.get(key_of(rank), deadline);
  }
  MissingRanks missing_ranks(&rendezvous);
  std::optional<std::string> value;
  const auto is_set = [&] {
    value = rendezvous.try_get(key_of(rank));
    if (value) return true;
    for (int other = rank; other < end; ++other) {
      const auto gone = missing_ranks.end_of(other);
      if (gone && is_missing(rendezvous, key_of(other))) throw ended_before(*gone, what);
    }
    return false;
  };
  if (!internal::poll_until(is_set, deadline)) {
    throw TimeoutError("rendezvous key \"" + key_of(rank) + "\" was not set in time", {rank});
  }
  return *std::move(value);
}

}  // namespace chainmail::ops
