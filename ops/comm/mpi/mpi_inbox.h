// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What comes for one MpiTransport, each sender's buffers in the order in which they were sent.
//
// Not thread-safe.

#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>

#include "ops/comm/mpi/mpi_world.h"

namespace chainmail::ops {

class MpiInbox {
 public:
  /// Takes a buffer; false when there is no room for it now (it is offered again).
  using Take = std::function<bool(const MpiBuffer&)>;

  explicit MpiInbox(std::shared_ptr<MpiWorld> world);
  /// What is still coming in is abandoned.
  ~MpiInbox();
  MpiInbox(const MpiInbox&) = delete;
  MpiInbox& operator=(const MpiInbox&) = delete;

  int tag() const noexcept { return tag_; }
  /// A process of MPI_COMM_WORLD that may send: it is listened to even when another one is stalled.
  void expect(int source) { sources_[source]; }
  bool is_stalled() const noexcept { return is_stalled_; }
  /// True when something has come. Throws MpiError, and what `take` throws.
  bool progress(const Take& take);

 private:
  struct Source {
    std::deque<std::unique_ptr<MpiBuffer>> coming;
    bool is_stalled = false;
  };

  bool accept(int source);
  bool hand_on(Source& source, const Take& take);

  const std::shared_ptr<MpiWorld> world_;
  const int tag_;
  std::map<int, Source> sources_;  // by their numbers in MPI_COMM_WORLD
  int coming_ = 0;
  bool is_stalled_ = false;  ///< some source is
};

/// Throws MpiError for a code that is not success.
void check_mpi(MpiApi& api, MpiCode code, const char* call);

}  // namespace chainmail::ops
