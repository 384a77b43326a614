// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Where the ranks of a group exchange a few small facts before they can talk to each other.
//
// Implementations: c10d::Store (plugin), in process (tests). Calls may come from several threads.

#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "base/deadline.h"

namespace chainmail::ops {

class Rendezvous {
 public:
  virtual ~Rendezvous() = default;
  virtual void set(const std::string& key, const std::string& value) = 0;
  /// Waits until `key` exists; throws TimeoutError that names the key.
  virtual std::string get(const std::string& key, internal::Deadline deadline) = 0;
  /// Nothing when `key` does not exist (yet).
  virtual std::optional<std::string> try_get(const std::string& key) = 0;
};

/// Ranks that are threads of one process share one of these.
class LocalRendezvous final : public Rendezvous {
 public:
  void set(const std::string& key, const std::string& value) override;
  std::string get(const std::string& key, internal::Deadline deadline) override;
  std::optional<std::string> try_get(const std::string& key) override;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
};

}  // namespace chainmail::ops
