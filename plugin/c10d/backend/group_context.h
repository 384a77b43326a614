// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The group of a backend with what c10d adds to it: options, global ranks, the time limit, and the
// state after shutdown.
//
// Thread-safe. Mistakes throw c10::Error.

#pragma once

#include <chainmail/backend.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ops/core/rendezvous.h"
#include "ops/engine/group.h"
#include "plugin/c10d/work/work.h"

namespace chainmail::internal {

class GroupContext {
 public:
  /// `rendezvous` is the group's own; `options` are those that it was made with.
  GroupContext(std::shared_ptr<ops::Group> group, std::shared_ptr<ops::Rendezvous> rendezvous,
               BackendOptions options, std::vector<std::uint64_t> global_ranks);

  const std::shared_ptr<ops::Group> group;
  const std::shared_ptr<ops::Rendezvous> rendezvous;
  const BackendOptions options;
  const std::vector<std::uint64_t> global_ranks;
  const int rank;
  const int size;

  int global_rank(int of) const {
    return static_cast<int>(global_ranks[static_cast<std::size_t>(of)]);
  }
  int global_rank() const { return global_rank(rank); }
  std::size_t ranks() const noexcept { return static_cast<std::size_t>(size); }
  void check_rank(std::int64_t of, const char* what) const;
  [[nodiscard]] std::shared_ptr<Payload> make_payload(std::vector<at::Tensor> results) const;

  std::chrono::milliseconds timeout() const noexcept { return timeout_.load(); }
  void set_timeout(std::chrono::milliseconds timeout);
  /// The limit of a call that asked for `asked`, which may be unset.
  std::chrono::milliseconds limit_of(std::chrono::milliseconds asked) const;

  /// False when somebody else was first.
  bool begin_shutdown() noexcept { return !is_shut_down_.exchange(true); }
  /// For operations that would otherwise go on after shutdown(), waiting for ranks that have left.
  void check_open(const std::string& operation) const;

 private:
  std::atomic<std::chrono::milliseconds> timeout_;
  std::atomic<bool> is_shut_down_{false};
};

}  // namespace chainmail::internal
