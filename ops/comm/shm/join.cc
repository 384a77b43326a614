// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// How the ranks of a node find each other's segment, and how they part.

#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <optional>
#include <string_view>

#include "base/bytes.h"
#include "base/error.h"
#include "base/threads/poll_until.h"
#include "ops/comm/shm/shm_sync.h"
#include "ops/core/liveness.h"
#include "ops/kernels/wire_block.h"

namespace chainmail::ops::shm {
namespace {

constexpr int kSpins = 500;  // some ten microseconds

Layout layout_for(const ShmCommOptions& options) {
  if (options.size < 1 || options.rank < 0 || options.rank >= options.size) {
    throw InvalidArgument("rank " + std::to_string(options.rank) + " of " +
                          std::to_string(options.size) + " in a shared memory group");
  }
  if (!options.global_ranks.empty() &&
      options.global_ranks.size() != static_cast<std::size_t>(options.size)) {
    throw InvalidArgument("a shared memory group of " + std::to_string(options.size) +
                          " ranks was given the names of " +
                          std::to_string(options.global_ranks.size()));
  }
  Layout layout;
  layout.ranks = static_cast<std::size_t>(options.size);
  // Whole pages, with room for all_to_all's table and two blocks of every rank in a step.
  constexpr std::size_t kLeast = 2 * kWireBlock * sizeof(double);
  layout.chunk_bytes =
      internal::round_up(std::max(options.chunk_bytes, kLeast * layout.ranks), 4096);
  return layout;
}

int global_rank_of(const ShmCommOptions& options, int rank) {
  return options.global_ranks.empty() ? rank : options.global_ranks[static_cast<std::size_t>(rank)];
}

// Polls the rendezvous so that a failure of the group ends the wait, too.
std::string wait_for_key(Rendezvous& rendezvous, const std::string& key,
                         const ShmCommOptions& options, internal::Deadline deadline,
                         const FailureState* failure) {
  MissingRanks missing_ranks(&rendezvous);
  std::optional<std::string> value;
  const auto is_offered = [&] {
    value = rendezvous.try_get(key);
    if (value) return true;
    if (failure != nullptr) failure->rethrow_if_failed();
    if (const auto end = missing_ranks.end_of(0)) {
      throw ended_before({global_rank_of(options, 0), options.host, end->cause},
                         "offered its shared memory");
    }
    return false;
  };
  if (!internal::poll_until(is_offered, deadline)) {
    throw TimeoutError(
        "this node's first rank did not offer its shared memory in time "
        "(rendezvous key \"" +
        key + "\")");
  }
  return *std::move(value);
}

// In place of an offer: this, a code and a message, separated by what no number or message holds.
constexpr std::string_view kFailed = "failed\n";
constexpr char kSeparator = '\n';

// An offer leads nowhere when its process has ended, or has given up because another one has: that
// one is told instead, as soon as whoever reaps it says so.
Segment attach(const Layout& layout, const std::string& offer, const ShmCommOptions& options,
               Rendezvous& rendezvous, internal::Deadline deadline, const FailureState* failure) {
  constexpr std::chrono::milliseconds kForReaping{2000};
  try {
    return Segment::attach(layout, offer);
  } catch (const SystemError& error) {
    auto* const liveness = dynamic_cast<RankLiveness*>(&rendezvous);
    if (error.native_code() != ENOENT || liveness == nullptr) throw;
    std::optional<PeerError> cause;
    const auto is_known = [&] {
      if (failure != nullptr) failure->rethrow_if_failed();
      for (int rank = 0; rank < options.size && !cause; ++rank) {
        const auto end = rank == options.rank ? std::nullopt : liveness->end_of(rank);
        if (!end) continue;
        cause = ended_before({global_rank_of(options, rank), options.host, end->cause},
                             "joined the shared memory of its node");
      }
      return cause.has_value();
    };
    const auto limit = internal::Deadline::after(std::min(deadline.left(), kForReaping));
    if (internal::poll_until(is_known, limit)) throw *cause;
    throw;
  }
}

Segment find_or_create(const ShmCommOptions& options, Rendezvous& rendezvous,
                       internal::Deadline deadline, const FailureState* failure) {
  const Layout layout = layout_for(options);
  const std::string key = options.key_prefix + "/shm";
  if (options.rank == 0) {
    try {
      Segment segment = Segment::create(layout);
      rendezvous.set(key, segment.offer());
      return segment;
    } catch (const SystemError& error) {
      rendezvous.set(key, std::string(kFailed) + std::to_string(error.native_code()) + kSeparator +
                              error.what());
      throw;
    }
  }
  const std::string offer = wait_for_key(rendezvous, key, options, deadline, failure);
  if (!offer.starts_with(kFailed)) {
    return attach(layout, offer, options, rendezvous, deadline, failure);
  }
  const std::string rest = offer.substr(kFailed.size());
  throw SystemError(rest.substr(rest.find(kSeparator) + 1), std::atoi(rest.c_str()));
}

}  // namespace

ShmSync::ShmSync(const ShmCommOptions& options, Rendezvous& rendezvous, internal::Deadline deadline,
                 const FailureState* failure)
    : rank_(options.rank),
      size_(options.size),
      global_ranks_(options.global_ranks),
      host_(options.host),
      failure_(failure),
      segment_([&]() -> Segment {
        try {
          return find_or_create(options, rendezvous, deadline, failure);
        } catch (const std::exception& error) {
          // The others wait for this rank; tell them why it will not come.
          rendezvous.set(options.key_prefix + "/shm/failed", error.what());
          throw;
        }
      }()),
      tracker_(options.tracker != nullptr ? *options.tracker : own_tracker_) {
  for (int rank = 0; global_ranks_.size() < static_cast<std::size_t>(size_); ++rank) {
    global_ranks_.push_back(rank);
  }
  join(rendezvous, options.key_prefix, deadline);
  segment_.close_file();
  count_cores();
  tracker_.show_in(&segment_.area(rank_).progress);
}

ShmSync::~ShmSync() {
  tracker_.show_in(nullptr);
  segment_.area(rank_).presence.store(Presence::kLeft);
  segment_.wake_sleepers();
}

void ShmSync::join(Rendezvous& rendezvous, const std::string& key_prefix,
                   internal::Deadline deadline) {
  RankArea& own = segment_.area(rank_);
  own.pid = ::getpid();
  CPU_ZERO(&own.cpus);
  ::sched_getaffinity(0, sizeof(own.cpus), &own.cpus);
  own.presence.store(Presence::kJoined);
  segment_.ring_bell();
  const auto is_here = [this](int rank) {
    return segment_.area(rank).presence.load() != Presence::kAbsent;
  };
  processes_.resize(static_cast<std::size_t>(size_));
  MissingRanks missing_ranks(&rendezvous);
  for (int rank = 0; rank < size_; ++rank) {
    while (!is_here(rank)) {
      if (failure_ != nullptr) failure_->rethrow_if_failed();
      if (const auto why = rendezvous.try_get(key_prefix + "/shm/failed")) {
        throw PeerError("a rank of host " + host_ + " could not join the shared memory: " + *why);
      }
      watch_peers();
      for (int other = rank; other < size_; ++other) {
        const auto end = is_here(other) ? std::nullopt : missing_ranks.end_of(other);
        if (end && !is_here(other)) {
          throw ended_before({global_rank(other), host_, end->cause},
                             "joined the shared memory of its node");
        }
      }
      for (int other = 0; other < size_; ++other) {
        // Nobody is done before all have joined: who dies while one is missing is lost.
        if (!is_dead(other) || is_here(rank)) continue;
        throw PeerError(name(other) + " (pid " + std::to_string(segment_.area(other).pid) +
                            ") ended while the ranks of the node joined their shared memory",
                        global_rank(other));
      }
      if (deadline.has_passed()) {
        throw TimeoutError(name(rank) + " did not join the shared memory group in time",
                           {global_rank(rank)});
      }
      segment_.sleep([&] { return is_here(rank); }, std::chrono::milliseconds{20});
    }
  }
  watch_peers();
}

// Watches who has joined and is not watched yet.
void ShmSync::watch_peers() {
  for (int rank = 0; rank < size_; ++rank) {
    Process& process = processes_[static_cast<std::size_t>(rank)];
    const RankArea& area = segment_.area(rank);
    if (process.is_watched || area.presence.load() == Presence::kAbsent) continue;
    process.is_watched = true;
    if (area.pid == ::getpid()) continue;  // a thread of this process: it says when it leaves
    // Before 5.3 the kernel has no pidfd: then only the deadline tells.
    process.fd.reset(static_cast<int>(::syscall(SYS_pidfd_open, area.pid, 0)));
    process.is_gone = !process.fd.is_open() && errno == ESRCH;
  }
}

bool ShmSync::is_dead(int rank) const {
  const Process& process = processes_[static_cast<std::size_t>(rank)];
  pollfd poll_one{process.fd.get(), POLLIN, 0};
  return process.is_gone || (process.fd.is_open() && ::poll(&poll_one, 1, 0) == 1);
}

void ShmSync::count_cores() {
  cpu_set_t all;
  CPU_ZERO(&all);
  for (int rank = 0; rank < size_; ++rank) CPU_OR(&all, &all, &segment_.area(rank).cpus);
  // With more ranks than cores, whoever spins keeps the rank it waits for from running.
  spins_ = size_ <= CPU_COUNT(&all) ? kSpins : 0;
}

}  // namespace chainmail::ops::shm
