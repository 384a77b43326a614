// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The rendezvous of jobs that our launcher started: over its socket.
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

}  // namespace chainmail::internal
