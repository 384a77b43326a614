// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The connection to a store that all groups of this process share, with failure reports over it: a
// hundred groups need one descriptor and one thread.
//
// Thread-safe. All traffic goes through one thread (StoreThread); callers wait for answers without
// a lock and no longer than their deadline.

#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "ops/core/failure/failure_news.h"
#include "ops/engine/group.h"
#include "plugin/c10d/store/store_thread.h"
#include "plugin/c10d/store/store_users.h"

namespace chainmail::internal {

class StoreLink final {
 public:
  /// The link to `base`, which is not a PrefixStore; created if this process has none. It uses a
  /// clone, so that a thread that blocks in `base` does not block this one; but see clone_of().
  [[nodiscard]] static std::shared_ptr<StoreLink> to(const c10::intrusive_ptr<c10d::Store>& base);
  explicit StoreLink(const c10::intrusive_ptr<c10d::Store>& base);

  /// Returns after 200 ms at the latest; the thread finishes the rest.
  void set(const std::string& key, const std::string& value);
  void remove(const std::string& key);
  /// Throws TimeoutError when there is no answer in time.
  [[nodiscard]] std::optional<std::string> try_get(const std::string& key, Deadline deadline);
  /// Whether the store has been asked and not answered for half a second.
  [[nodiscard]] bool is_silent() const { return thread_.is_silent(); }
  /// Another connection to the store, for somebody who may block in it.
  [[nodiscard]] c10::intrusive_ptr<c10d::Store> clone(Deadline deadline);
  /// Runs a task on the store's thread, see StoreThread::run_or_post(). It may outlive its caller.
  void run_or_post(std::function<void(c10d::Store&)> task);

  /// A group of this process starts to use the store.
  void enter();
  /// A group that has entered stops using it; see StoreUsers::leave(). Waits for the keys at most
  /// 1 s.
  void leave(const std::string& left, bool has_failed) noexcept;

  /// Failures that groups announce over this store; shared, and kept while in use.
  [[nodiscard]] std::shared_ptr<ops::FailureNews> news();
  /// The key of what `group` announces.
  [[nodiscard]] static std::string news_key_of(const std::string& group);

 private:
  const c10::intrusive_ptr<c10d::Store> base_;  // kept, since its address identifies the link
  StoreThread thread_;
  const std::shared_ptr<StoreUsers> users_;  ///< null unless it is a TCPStore
  std::mutex news_mutex_;
  std::weak_ptr<ops::FailureNews> news_;
};

/// The value of `key`; nothing when there is none. May block in `store`: for tasks only.
[[nodiscard]] std::optional<std::string> read_if_there(c10d::Store& store, const std::string& key);

}  // namespace chainmail::internal
