// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Rendezvous and failure news in the forms that jobs need: over the launcher's socket, with a key
// prefix, and news through any rendezvous where no launcher watches.
//
// Thread-safe.

#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "ops/engine/group.h"
#include "ops/engine/rendezvous.h"
#include "plugin/job/launcher_client.h"

namespace chainmail::internal {

/// The launcher's store.
class LauncherRendezvous final : public ops::Rendezvous {
 public:
  explicit LauncherRendezvous(std::shared_ptr<LauncherClient> client);
  void set(const std::string& key, const std::string& value) override;
  std::string get(const std::string& key, Deadline deadline) override;
  std::optional<std::string> try_get(const std::string& key) override;

 private:
  std::shared_ptr<LauncherClient> client_;
};

/// Another rendezvous's keys under `prefix`.
class PrefixRendezvous final : public ops::Rendezvous {
 public:
  PrefixRendezvous(std::string prefix, std::shared_ptr<ops::Rendezvous> board);
  void set(const std::string& key, const std::string& value) override;
  std::string get(const std::string& key, Deadline deadline) override;
  std::optional<std::string> try_get(const std::string& key) override;

 private:
  std::string prefix_;
  std::shared_ptr<ops::Rendezvous> board_;
};

/// Failure news without a launcher: whoever fails writes a key, a thread of every other rank looks
/// for it five times a second. It cannot tell that a process died; the transports do.
class RendezvousNews final : public ops::FailureNews {
 public:
  explicit RendezvousNews(std::shared_ptr<ops::Rendezvous> board);
  RendezvousNews(const RendezvousNews&) = delete;
  RendezvousNews& operator=(const RendezvousNews&) = delete;
  ~RendezvousNews() override;
  void subscribe(const std::string& group, const std::vector<int>& global_ranks,
                 std::shared_ptr<ops::FailureState> state) override;
  void unsubscribe(const std::string& group) override;
  void announce(const std::string& group, const std::exception_ptr& error) noexcept override;

 private:
  void watch() noexcept;
  void look_once();

  std::shared_ptr<ops::Rendezvous> board_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_stopping_ = false;
  std::map<std::string, std::shared_ptr<ops::FailureState>> states_;
  std::thread thread_;
};

}  // namespace chainmail::internal
