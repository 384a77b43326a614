// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Why a job ended, out of reports that arrive in no particular order. Pure, not thread-safe.

#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launcher/channel/wire.h"
#include "launcher/controller/state/job_end.h"
#include "launcher/job/exit_code.h"

namespace chainmail::launch {

/// Ranks that fail because of another one have said so by then.
inline constexpr std::chrono::seconds kOneFailure{30};

struct Failure {
  std::optional<std::uint32_t> rank;
  int exit_code = 0;
  std::string cause;                ///< "was killed by signal 9 (Killed)"
  EndKind kind = EndKind::kFailed;  ///< of one without a rank; otherwise it is kRankFailed
  std::string quoted = {};  ///< what a program has printed last, behind the cause for people
};

/// "exited with code 3", "was killed by signal 9 (Killed)".
[[nodiscard]] std::string describe(const RankExit& exit);
/// The code a shell would show for it.
[[nodiscard]] int code_of(const RankExit& exit) noexcept;

/// What ranks say of the one that failed first.
struct Blame {
  std::uint32_t rank = 0;
  std::string text;  ///< as a rank announced it
};

class RootCause {
 public:
  using Time = std::chrono::steady_clock::time_point;

  /// Further ranks are known from when they are first named.
  explicit RootCause(std::size_t ranks) : is_victim_(ranks, false) {}

  /// A rank says that `blame.rank`, or itself, has failed: from now on the end of any other one
  /// explains nothing. The first word counts: a rank that fails because of this one, and is then
  /// blamed by a third, is none the less a victim. Long after, ranks have gone on without that
  /// group, and it is another failure.
  void add(Blame blame, Time now);
  /// The first failure counts. Until close(), a rank that died on its own still takes
  /// the place of one that merely noticed, because reports of two nodes may overtake each other.
  void add(Failure failure);
  void close() { is_open_ = false; }
  /// All that is known is a rank that failed because of another one.
  [[nodiscard]] bool is_doubtful() const { return failure_ && weight_of(*failure_) == 0; }

  const std::optional<Failure>& failure() const noexcept { return failure_; }
  /// Whom the others blame.
  const std::optional<Blame>& blame() const noexcept { return blame_; }

 private:
  int weight_of(const Failure& failure) const;
  [[nodiscard]] bool is_victim(std::uint32_t rank) const {
    return rank < is_victim_.size() ? is_victim_[rank] : blame_.has_value();
  }

  std::vector<bool> is_victim_;
  std::optional<Blame> blame_;
  Time blamed_at_;
  std::optional<Failure> failure_;
  bool is_open_ = true;
};

}  // namespace chainmail::launch
