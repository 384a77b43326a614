// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Where the ranks of a group exchange a few small facts before they can talk to each other.
//
// Implementations: c10d::Store (plugin), in process (tests). Calls may come from several threads.
// None waits without a limit, whatever has become of the host that keeps the keys.

#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "base/deadline.h"

namespace chainmail::ops {

class Rendezvous {
 public:
  virtual ~Rendezvous() = default;
  /// Hands the value over. Where nobody takes it, returns after a moment: it is written as soon as
  /// that is possible, before anything that this rank asks for later.
  virtual void set(const std::string& key, const std::string& value) = 0;
  /// Waits until `key` exists; throws TimeoutError that names the key.
  virtual std::string get(const std::string& key, internal::Deadline deadline) = 0;
  /// Nothing when `key` does not exist (yet). Throws TimeoutError when there is no answer in time.
  virtual std::optional<std::string> try_get(const std::string& key,
                                             internal::Deadline deadline) = 0;
  /// For who will ask again: nothing, too, when there is no answer within a moment.
  std::optional<std::string> try_get(const std::string& key);
  /// How often that was so.
  [[nodiscard]] std::uint64_t unanswered() const noexcept { return unanswered_; }
  /// Whether somebody's question has gone without an answer for so long that others would, too.
  [[nodiscard]] virtual bool is_silent() const { return false; }
  /// How long to wait for an answer that is worth `limit`: hardly where is_silent().
  [[nodiscard]] internal::Deadline patience(std::chrono::milliseconds limit) const;
  /// This rank makes no further use of it, now and not when the last handle goes. Idempotent.
  virtual void leave() noexcept {}

 private:
  std::atomic<std::uint64_t> unanswered_{0};
};

/// Another rendezvous's keys under `prefix`.
class PrefixRendezvous : public Rendezvous {
 public:
  PrefixRendezvous(std::string prefix, std::shared_ptr<Rendezvous> inner)
      : prefix_(std::move(prefix)), inner_(std::move(inner)) {}
  void set(const std::string& key, const std::string& value) override {
    inner_->set(prefix_ + key, value);
  }
  std::string get(const std::string& key, internal::Deadline deadline) override {
    return inner_->get(prefix_ + key, deadline);
  }
  using Rendezvous::try_get;
  std::optional<std::string> try_get(const std::string& key, internal::Deadline deadline) override {
    return inner_->try_get(prefix_ + key, deadline);
  }
  bool is_silent() const override { return inner_->is_silent(); }

 protected:
  Rendezvous& inner() const noexcept { return *inner_; }

 private:
  const std::string prefix_;
  const std::shared_ptr<Rendezvous> inner_;
};

/// Ranks that are threads of one process share one of these.
class LocalRendezvous final : public Rendezvous {
 public:
  using Rendezvous::try_get;
  void set(const std::string& key, const std::string& value) override;
  std::string get(const std::string& key, internal::Deadline deadline) override;
  std::optional<std::string> try_get(const std::string& key, internal::Deadline deadline) override;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
};

}  // namespace chainmail::ops
