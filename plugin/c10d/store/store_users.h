// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Counts the groups of this process that use one TCPStore, through any clone of it. A process that
// serves the store waits until the ranks of its last group have left: torch prints a stack trace in
// each rank that finds the store gone.
//
// Thread-safe.

#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace chainmail::internal {

class StoreUsers final {
 public:
  /// The users of `store`, which has no prefix; null unless it is a TCPStore.
  [[nodiscard]] static std::shared_ptr<StoreUsers> of(const c10d::Store& store);
  explicit StoreUsers(const c10d::TCPStore& store);

  void enter();
  /// A group that has entered leaves. `key`, unless empty, is deleted when all ranks of that group
  /// have left. Returns the keys to wait for: some when it was the last group, none of the groups
  /// `has_failed`, and this process serves the store.
  [[nodiscard]] std::vector<std::string> leave(const std::string& key, bool has_failed);

 private:
  const std::uint16_t port_;
  const pid_t process_;
  std::mutex mutex_;
  int groups_ = 0;
  bool has_failed_ = false;
  std::vector<std::string> keys_;  ///< newest last
};

}  // namespace chainmail::internal
