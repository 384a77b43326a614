// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/job/job_connection.h"

#include <mutex>

#include "base/log.h"
#include "ops/engine/failure/rendezvous_news.h"
#include "plugin/job/environment/env.h"
#include "plugin/job/environment/node_id.h"
#include "plugin/job/environment/settings.h"
#include "plugin/job/rendezvous/job_rendezvous.h"

namespace chainmail::internal {
namespace {

// Long enough for slow starts of big jobs; CHAINMAIL_TIMEOUT changes it.
constexpr std::chrono::minutes kMeetingTimeout{5};

std::unique_ptr<JobConnection> connect() {
  const Environment environment = process_environment();
  auto connection = std::make_unique<JobConnection>();
  connection->info = read_job_info(environment);
  const JobInfo& info = connection->info;
  const auto timeout = read_settings(environment).timeout.value_or(kMeetingTimeout);
  if (info.store == StoreLocation::kLauncher) {
    connection->launcher = std::make_shared<LauncherClient>(info.job_fd, info.generation, timeout);
    connection->rendezvous = std::make_shared<ops::PrefixRendezvous>(
        "chainmail/", std::make_shared<LauncherRendezvous>(connection->launcher));
    connection->news = connection->launcher;
  } else {
    connection->store = connect_job_store(info, timeout);
    const std::string attempt = info.id + "/" + std::to_string(info.generation);
    connection->rendezvous =
        std::make_shared<ops::PrefixRendezvous>("chainmail/" + attempt + "/", connection->store);
    if (info.size > 1)
      connection->news = std::make_shared<ops::RendezvousNews>(connection->rendezvous);
  }
  set_log_prefix("[" + host_name() + "/" + std::to_string(info.rank) + "]");
  return connection;
}

}  // namespace

const JobConnection& job_connection() {
  static std::mutex mutex;
  // Never deleted, see the header: the kernel closes what it holds.
  static const JobConnection* connection = nullptr;
  const std::lock_guard lock(mutex);
  if (connection == nullptr) connection = connect().release();
  return *connection;
}

}  // namespace chainmail::internal
