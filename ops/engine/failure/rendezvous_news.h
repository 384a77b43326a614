// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// FailureNews over a Rendezvous that all ranks of a job share, for jobs that our launcher did not
// start (torchrun, mpirun, srun). It carries what ranks announce; it cannot see a rank die.
//
// Thread-safe. One of these per store: a single thread, started by the first subscription, looks
// at one key that changes with every announcement, and at those of the groups when it has. May be
// destroyed anywhere: in a listener that this thread runs, and in a forked child, which has no such
// thread and learns nothing.

#pragma once

#include <memory>
#include <string>
#include <vector>
#include "ops/core/failure/failure_news.h"
#include "ops/core/failure/failure_state.h"
#include "ops/core/rendezvous.h"

namespace chainmail::ops {

class RendezvousNews final : public FailureNews {
 public:
  explicit RendezvousNews(std::shared_ptr<Rendezvous> rendezvous);
  ~RendezvousNews() override;
  RendezvousNews(const RendezvousNews&) = delete;
  RendezvousNews& operator=(const RendezvousNews&) = delete;

  void subscribe(const std::string& group, const std::vector<int>& global_ranks,
                 std::shared_ptr<FailureState> state) override;
  void unsubscribe(const std::string& group) override;
  void announce(const std::string& group, const std::exception_ptr& error) noexcept override;

  /// Where an announcement of `group` stays until somebody removes it.
  [[nodiscard]] static std::string key_of(const std::string& group);

 private:
  struct Poller;
  bool is_forked() const noexcept;

  std::shared_ptr<Poller> poller_;
};

}  // namespace chainmail::ops
