// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/job/rendezvous/job_rendezvous.h"

#include <utility>

namespace chainmail::internal {

LauncherRendezvous::LauncherRendezvous(std::shared_ptr<LauncherClient> client)
    : client_(std::move(client)) {}

void LauncherRendezvous::set(const std::string& key, const std::string& value) {
  client_->post_set(key, value);
}

std::string LauncherRendezvous::get(const std::string& key, Deadline deadline) {
  return client_->get(key, deadline);
}

std::optional<std::string> LauncherRendezvous::try_get(const std::string& key, Deadline deadline) {
  return client_->try_get(key, deadline);
}

PrefixRendezvous::PrefixRendezvous(std::string prefix, std::shared_ptr<ops::Rendezvous> rendezvous)
    : prefix_(std::move(prefix)), rendezvous_(std::move(rendezvous)) {}

void PrefixRendezvous::set(const std::string& key, const std::string& value) {
  rendezvous_->set(prefix_ + key, value);
}

std::string PrefixRendezvous::get(const std::string& key, Deadline deadline) {
  return rendezvous_->get(prefix_ + key, deadline);
}

std::optional<std::string> PrefixRendezvous::try_get(const std::string& key, Deadline deadline) {
  return rendezvous_->try_get(prefix_ + key, deadline);
}

}  // namespace chainmail::internal
