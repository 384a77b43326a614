// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The connection to a store that all groups of this process share, and the watch for failures over
// it: a hundred groups need one descriptor and one thread.
//
// Thread-safe. A store's blocking get would hold the connection against every other thread, so
// nothing here waits.

#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "ops/engine/group.h"

namespace chainmail::internal {

class StoreLink final {
 public:
  /// The link to `base`, which is no PrefixStore; made when nobody has one. It works on a clone, so
  /// that a thread that blocks in `base` blocks nobody here.
  [[nodiscard]] static std::shared_ptr<StoreLink> to(const c10::intrusive_ptr<c10d::Store>& base);
  explicit StoreLink(const c10::intrusive_ptr<c10d::Store>& base);

  void set(const std::string& key, const std::string& value);
  [[nodiscard]] std::optional<std::string> try_get(const std::string& key);
  std::int64_t add(const std::string& key, std::int64_t amount);
  void remove(const std::string& key);

  /// What groups announce over this store; lives as long as somebody has it.
  [[nodiscard]] std::shared_ptr<ops::FailureNews> news();
  /// Removes what was announced of `group`, if anything was.
  void forget_news_of(const std::string& group);

 private:
  const c10::intrusive_ptr<c10d::Store> base_;  // kept, for its address is the link's name
  const c10::intrusive_ptr<c10d::Store> store_;
  std::mutex mutex_;
  std::mutex news_mutex_;
  std::weak_ptr<ops::FailureNews> news_;
};

}  // namespace chainmail::internal
