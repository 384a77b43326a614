// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Rendezvous in the forms that jobs need: over the launcher's socket, and with a key prefix.
//
// Thread-safe.

#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "ops/core/rendezvous.h"
#include "plugin/job/launcher/launcher_client.h"

namespace chainmail::internal {

/// The launcher's store.
class LauncherRendezvous final : public ops::Rendezvous {
 public:
  explicit LauncherRendezvous(std::shared_ptr<LauncherClient> client)
      : client_(std::move(client)) {}
  void set(const std::string& key, const std::string& value) override {
    client_->post_set(key, value);
  }
  std::string get(const std::string& key, Deadline deadline) override {
    return client_->get(key, deadline);
  }
  using Rendezvous::try_get;
  std::optional<std::string> try_get(const std::string& key, Deadline deadline) override {
    return client_->try_get(key, deadline);
  }

 private:
  std::shared_ptr<LauncherClient> client_;
};

/// Another rendezvous's keys under `prefix`.
class PrefixRendezvous final : public ops::Rendezvous {
 public:
  PrefixRendezvous(std::string prefix, std::shared_ptr<ops::Rendezvous> rendezvous)
      : prefix_(std::move(prefix)), rendezvous_(std::move(rendezvous)) {}
  void set(const std::string& key, const std::string& value) override {
    rendezvous_->set(prefix_ + key, value);
  }
  std::string get(const std::string& key, Deadline deadline) override {
    return rendezvous_->get(prefix_ + key, deadline);
  }
  using Rendezvous::try_get;
  std::optional<std::string> try_get(const std::string& key, Deadline deadline) override {
    return rendezvous_->try_get(prefix_ + key, deadline);
  }
  bool is_silent() const override { return rendezvous_->is_silent(); }

 private:
  std::string prefix_;
  std::shared_ptr<ops::Rendezvous> rendezvous_;
};

}  // namespace chainmail::internal
