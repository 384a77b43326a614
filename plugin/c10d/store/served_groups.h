// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Which groups of this process use one TCPStore, through whichever clones of it, so that a process
// that serves the store stays until the ranks of its last group have left: torch writes a stack
// trace in each that finds the store gone.
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

class ServedGroups final {
 public:
  /// Those over `store`, which has no prefix; null unless it is a TCPStore.
  [[nodiscard]] static std::shared_ptr<ServedGroups> of(const c10d::Store& store);
  explicit ServedGroups(const c10d::TCPStore& store);

  void enter();
  /// A group that has entered is left. `key`, unless empty, is gone when all of its ranks have left
  /// it. Gives the keys to wait for, if any: when it was the last group, none of them `has_failed`,
  /// and this process serves the store.
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
