// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The connection to a store that all groups of this process share, and the watch for failures over
// it: a hundred groups need one descriptor and one thread.
//
// Thread-safe. All traffic goes through one thread (StoreThread), and its callers wait for answers
// no longer than they say, without a lock.

#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "ops/core/failure_news.h"
#include "ops/engine/group.h"
#include "plugin/c10d/store/served_groups.h"
#include "plugin/c10d/store/store_thread.h"

namespace chainmail::internal {

class StoreLink final {
 public:
  /// The link to `base`, which is no PrefixStore; made when this process has none. It works on a
  /// clone, so that a thread that blocks in `base` blocks nobody here; but see clone_of().
  [[nodiscard]] static std::shared_ptr<StoreLink> to(const c10::intrusive_ptr<c10d::Store>& base);
  explicit StoreLink(const c10::intrusive_ptr<c10d::Store>& base);

  /// Leaves it to the thread when that takes longer than a moment.
  void set(const std::string& key, const std::string& value);
  void remove(const std::string& key);
  /// Throws TimeoutError when there is no answer in time.
  [[nodiscard]] std::optional<std::string> try_get(const std::string& key, Deadline deadline);
  /// Whether the store has been asked and not answered for half a second.
  [[nodiscard]] bool is_silent() const { return thread_.is_silent(); }
  /// Another connection to the store, for somebody who may block in it.
  [[nodiscard]] c10::intrusive_ptr<c10d::Store> clone(Deadline deadline);
  /// Several steps at once, which are left to the thread when they take longer than a moment. The
  /// task may run when its caller is gone.
  void run_or_leave(std::function<void(c10d::Store&)> task);

  /// A group of this process begins to use the store.
  void enter();
  /// One that has entered uses it no more; see ServedGroups::leave(). Waits for the keys at most a
  /// second.
  void leave(const std::string& left, bool has_failed) noexcept;

  /// What groups announce over this store; lives as long as somebody has it.
  [[nodiscard]] std::shared_ptr<ops::FailureNews> news();
  /// What `group` announces stands under this key.
  [[nodiscard]] static std::string news_key_of(const std::string& group);

 private:
  const c10::intrusive_ptr<c10d::Store> base_;  // kept, for its address is the link's name
  StoreThread thread_;
  const std::shared_ptr<ServedGroups> groups_;  ///< null unless it is a TCPStore
  std::mutex news_mutex_;
  std::weak_ptr<ops::FailureNews> news_;
};

/// The value of `key`; nothing when there is none. Blocks as `store` does, so it is for tasks.
[[nodiscard]] std::optional<std::string> read_if_there(c10d::Store& store, const std::string& key);

}  // namespace chainmail::internal
