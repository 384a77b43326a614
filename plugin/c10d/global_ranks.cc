// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/c10d/global_ranks.h"

#include <set>

#include "ops/topology.h"
#include "plugin/c10d/store/group/given_up.h"
#include "plugin/job/environment/job_info.h"
#include "plugin/job/environment/node_id.h"

namespace chainmail::internal {
namespace {

// The members' ranks in the job before they have sent them; empty when only they know.
std::vector<int> expected_ranks(const BackendOptions& options, const std::optional<JobRank>& place,
                                int rank, int size) {
  if (!options.global_ranks.empty()) return options.global_ranks;
  const bool is_whole_job = !place || (place->size == size && place->rank == rank);
  return is_whole_job ? ops::all_ranks(size) : std::vector<int>{};
}

// `sentence` of the member, by the best name that there is, and of this rank's number.
template <typename Sentence>
[[noreturn]] void throw_named(int member, const BackendOptions& options,
                              const std::optional<JobRank>& place, int rank, int size,
                              const Sentence& sentence) {
  const std::string what = "member " + std::to_string(member) + " of " + std::to_string(size) +
                           " of group \"" + options.group_name + "\"";
  const std::vector<int> expected = expected_ranks(options, place, rank, size);
  if (expected.empty()) {
    throw TimeoutError(sentence(what, place->rank) +
                       " BackendOptions::global_ranks would tell which rank of the job it is.");
  }
  const int absent = expected[static_cast<std::size_t>(member)];
  throw TimeoutError(sentence("rank " + std::to_string(absent) + " (" + what + ")",
                              expected[static_cast<std::size_t>(rank)]),
                     {absent});
}

}  // namespace

std::string encode(const RankIdentity& identity) {
  return BodyWriter().i64(identity.global_rank).text(identity.node).take();
}

RankIdentity decode(const std::string& text) {
  BodyReader body(text);
  RankIdentity identity;
  identity.global_rank = static_cast<int>(body.i64());
  identity.node = body.text();
  return identity;
}

std::optional<JobRank> job_rank(const LauncherClient* launcher, const Environment& environment) {
  if (launcher != nullptr) {
    const Welcome& welcome = launcher->welcome();
    return JobRank{static_cast<int>(welcome.rank), static_cast<int>(welcome.node_of_rank.size())};
  }
  try {
    const JobInfo info = read_job_info(environment);
    if (info.starter != Starter::kAlone) return JobRank{info.rank, info.size};
  } catch (const InvalidArgument&) {
    // The caller gave the store, so the environment need not say how ranks join.
  }
  return std::nullopt;
}

std::vector<int> choose_global_ranks(std::vector<int> told, bool is_launchers,
                                     const BackendOptions& options) {
  const std::set<int> different(told.begin(), told.end());
  const bool are_good = different.size() == told.size() && *different.begin() >= 0;
  if (is_launchers && are_good) return told;
  if (!options.global_ranks.empty()) return options.global_ranks;
  return are_good ? told : ops::all_ranks(static_cast<int>(told.size()));
}

void throw_not_joined(const TimeoutError& absence, const BackendOptions& options,
                      const std::optional<JobRank>& place, int rank, int size) {
  if (absence.missing_ranks().size() != 1) throw absence;
  throw_named(absence.missing_ranks().front(), options, place, rank, size,
              [](const std::string& who, int own) { return did_not_join(who, own); });
}

void throw_gave_up(const GaveUp& absence, const BackendOptions& options,
                   const std::optional<JobRank>& place, int rank, int size) {
  throw_named(absence.member(), options, place, rank, size, [&](const std::string& who, int own) {
    return who + " " + absence.how() + ", before rank " + std::to_string(own) + " on " +
           host_name() +
           " came. Make the group on all ranks at about the same time, or with a "
           "longer time limit.";
  });
}

}  // namespace chainmail::internal
