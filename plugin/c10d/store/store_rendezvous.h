// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// A c10d::Store as the engine's rendezvous.
//
// Thread-safe. Waiting is asking again; no call waits for a silent store longer than it may, but
// get(), which asks a last time when its time is over, a quarter of a second more.

#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <memory>
#include <optional>
#include <string>

#include "ops/core/rendezvous.h"
#include "plugin/c10d/store/store_link.h"

namespace chainmail::internal {

class StoreRendezvous final : public ops::Rendezvous {
 public:
  /// `keep` lives as long as this object.
  explicit StoreRendezvous(c10::intrusive_ptr<c10d::Store> store,
                           std::shared_ptr<void> keep = nullptr);
  void set(const std::string& key, const std::string& value) override;
  std::string get(const std::string& key, Deadline deadline) override;
  using Rendezvous::try_get;
  std::optional<std::string> try_get(const std::string& key, Deadline deadline) override;
  bool is_silent() const override { return link_->is_silent(); }

  void remove(const std::string& key);

  const c10::intrusive_ptr<c10d::Store>& store() const noexcept { return store_; }
  const std::shared_ptr<StoreLink>& link() const noexcept { return link_; }
  /// What the store behind link() calls `key`.
  std::string full_key(const std::string& key) const { return prefix_ + key; }

 private:
  const std::shared_ptr<void> keep_;
  const c10::intrusive_ptr<c10d::Store> store_;
  std::string prefix_;
  std::shared_ptr<StoreLink> link_;
};

}  // namespace chainmail::internal
