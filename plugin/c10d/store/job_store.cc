// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The stores of jobs: torch's TCPStore where others started the ranks, the launcher's where we did.

#include <chainmail/backend.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <chrono>
#include <future>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/net/socket.h"
#include "plugin/c10d/store/launcher_store.h"
#include "plugin/c10d/store/store_rendezvous.h"
#include "plugin/job/job_connection.h"
#include "plugin/job/rendezvous/port_announcer.h"
#include "plugin/job/rendezvous/reachability.h"
#include "plugin/job/world.h"

namespace chainmail {
namespace internal {
namespace {

constexpr char kLoopback[] = "127.0.0.1";
constexpr int kBacklog = 1024;

c10d::TCPStoreOptions store_options(std::uint16_t port, bool is_server,
                                    std::chrono::milliseconds timeout) {
  c10d::TCPStoreOptions options;
  options.port = port;
  options.isServer = is_server;
  options.waitWorkers = false;  // every exchange waits for the ranks it needs, and names them
  options.timeout = timeout;
  options.multiTenant = true;
  return options;
}

// Torch's connect has a time limit, which it mostly exceeds between two attempts; its requests to a
// stopped server have none. A thread that hangs in either is detached.
c10::intrusive_ptr<c10d::Store> open_store(const std::string& host,
                                           const c10d::TCPStoreOptions& options) {
  constexpr std::chrono::seconds kGrace{1};
  using Opened = c10::intrusive_ptr<c10d::Store>;
  std::packaged_task<Opened()> open(
      [host, options]() -> Opened { return c10::make_intrusive<c10d::TCPStore>(host, options); });
  auto opened = open.get_future();
  std::thread(std::move(open)).detach();
  if (opened.wait_for(Deadline::bounded(options.timeout)) == std::future_status::ready) {
    return opened.get();
  }
  const Deadline grace = Deadline::after(kGrace);
  const Reachability found = why_no_answer(host, options.port, grace);
  try {
    if (opened.wait_for(grace.left()) == std::future_status::ready) return opened.get();
  } catch (const std::exception&) {
    if (found.takes_connections) throw;  // otherwise torch's error says less
  }
  throw TimeoutError(found.problem, {0});
}

std::shared_ptr<ops::Rendezvous> open_store_on_this_node(const JobInfo& info,
                                                         std::chrono::milliseconds timeout) {
  if (info.rank != 0) {
    const std::uint16_t port = ask_port(info.id, Deadline::after(timeout));
    return std::make_shared<StoreRendezvous>(
        open_store(kLoopback, store_options(port, false, timeout)));
  }
  // TCPStore's own socket would listen everywhere.
  UniqueFd socket = listen_on(loopback_address(), kBacklog);
  auto options = store_options(local_address(socket.get()).port(), true, timeout);
  options.masterListenFd = socket.release();  // the store owns it now
  options.multiTenant = false;
  auto store = open_store(kLoopback, options);
  auto announcer = std::make_shared<PortAnnouncer>(info.id, options.port);
  return std::make_shared<StoreRendezvous>(std::move(store), std::move(announcer));
}

std::string out_of_reach(const JobInfo& info, const std::exception& error) {
  return std::string(to_string(info.starter)) + ": rank " + std::to_string(info.rank) +
         " cannot reach the job's store at " + info.host + ":" + std::to_string(info.port) +
         "; MASTER_ADDR and MASTER_PORT choose another place. " + error.what();
}

}  // namespace

std::shared_ptr<ops::Rendezvous> connect_job_store(const JobInfo& info,
                                                   std::chrono::milliseconds timeout) {
  switch (info.store) {
    case StoreLocation::kInProcess:
      return std::make_shared<StoreRendezvous>(c10::make_intrusive<c10d::HashStore>());
    case StoreLocation::kLocalSocket:
      return open_store_on_this_node(info, timeout);
    case StoreLocation::kTcp:
      try {
        return std::make_shared<StoreRendezvous>(open_store(
            info.host, store_options(info.port, info.rank == 0 && info.rank_0_serves, timeout)));
      } catch (const TimeoutError& error) {
        throw TimeoutError(out_of_reach(info, error), error.missing_ranks());
      } catch (const std::exception& error) {
        throw SystemError(out_of_reach(info, error), 0);
      }
    case StoreLocation::kLauncher:
      break;
  }
  throw InvalidArgument("a job of our launcher has its store in the launcher");
}

}  // namespace internal

c10::intrusive_ptr<c10d::Store> make_job_store(std::chrono::milliseconds timeout) {
  if (!is_member()) require_fixed_size();
  const internal::JobConnection& job = internal::job_connection();
  if (job.launcher) {
    return c10::make_intrusive<internal::LauncherStore>(job.launcher, "store/", timeout);
  }
  const auto& rendezvous = dynamic_cast<const internal::StoreRendezvous&>(*job.store);
  auto store = c10::make_intrusive<c10d::PrefixStore>(
      "chainmail-store/" + job.info.id + "/" + std::to_string(job.info.generation),
      rendezvous.link()->clone(internal::Deadline::after(timeout)));
  store->setTimeout(timeout);
  return store;
}

c10::intrusive_ptr<c10d::ProcessGroup> make_process_group(const BackendOptions& options) {
  const internal::JobInfo& info = internal::job_connection().info;
  return make_process_group(make_job_store(options.timeout), info.rank, info.size, options);
}

}  // namespace chainmail
