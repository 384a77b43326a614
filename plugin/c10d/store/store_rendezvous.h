// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// A c10d::Store as the engine's rendezvous.
//
// Thread-safe. A store's blocking get would hold its connection against every other thread, so
// waiting is asking again.

#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "ops/engine/rendezvous.h"

namespace chainmail::internal {

class StoreRendezvous final : public ops::Rendezvous {
 public:
  /// Works on a clone, so that a thread that blocks in `store` blocks nobody here. `keep` lives as
  /// long as this object.
  explicit StoreRendezvous(c10::intrusive_ptr<c10d::Store> store,
                           std::shared_ptr<void> keep = nullptr);
  void set(const std::string& key, const std::string& value) override;
  std::string get(const std::string& key, Deadline deadline) override;
  std::optional<std::string> try_get(const std::string& key) override;

  const c10::intrusive_ptr<c10d::Store>& store() const noexcept { return original_; }

 private:
  const std::shared_ptr<void> keep_;
  const c10::intrusive_ptr<c10d::Store> original_;
  const c10::intrusive_ptr<c10d::Store> store_;
  std::mutex mutex_;
};

}  // namespace chainmail::internal
