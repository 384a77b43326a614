// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/engine/create_group.h"

#include <utility>

#include "base/deadline.h"
#include "base/error.h"
#include "base/log.h"
#include "ops/comm/mpi/mpi_join.h"
#include "ops/engine/comms/comm_factory.h"
#include "ops/engine/comms/transport_check.h"
#include "ops/engine/group_core.h"
#include "ops/engine/plan/plan.h"

namespace chainmail::ops {
namespace {

/// Of the handles that users hold: when the last one goes, the group shuts down, which its own
/// threads may outlive.
struct ShutDown {
  std::shared_ptr<GroupCore> core;
  void operator()(Group* /*group*/) noexcept {
    try {
      core->shutdown();
    } catch (const std::exception& e) {
      internal::log_line(internal::LogLevel::kWarning,
                         "group " + core->options().name + " did not end in order: " + e.what());
    }
    core.reset();
  }
};

void check_arguments(int rank, const Topology& topology, const Rendezvous* rendezvous,
                     const GroupOptions& options, const std::vector<int>& global_ranks) {
  const std::string who = "create_group " + options.name + ": ";
  if (rank < 0 || rank >= topology.size()) {
    throw InvalidArgument(who + "rank " + std::to_string(rank) + " is not in 0 to " +
                          std::to_string(topology.size() - 1));
  }
  if (rendezvous == nullptr) throw InvalidArgument(who + "there is no rendezvous");
  if (options.algorithm == Algorithm::kSingleNode && topology.node_count() > 1) {
    throw InvalidArgument(who + "algorithm single_node over " + topology.describe() +
                          "; use hierarchical, two_dimensional, flat or auto");
  }
  if (options.timeout.count() <= 0 || options.chunk_bytes == 0) {
    throw InvalidArgument(who + "the time limit and chunk_bytes must be positive");
  }
  if (options.encryption != Encryption::kOff && options.secret.empty() && topology.size() > 1) {
    throw InvalidArgument(who + "encryption \"" + to_string(options.encryption) +
                          "\" needs a secret that the ranks share, and there is none");
  }
  if (options.cross == CrossTransport::kMpi) {
    check_unprotected_transport(options, topology, "MPI", "use tcp (CHAINMAIL_CROSS=tcp)");
  }
  if (!global_ranks.empty() && global_ranks.size() != static_cast<std::size_t>(topology.size())) {
    throw InvalidArgument(who + std::to_string(global_ranks.size()) + " global ranks for " +
                          std::to_string(topology.size()) + " ranks");
  }
}

}  // namespace

std::shared_ptr<Group> create_group_with(const CommFactory& factory, int rank, Topology topology,
                                         std::shared_ptr<Rendezvous> rendezvous,
                                         GroupOptions options, std::vector<int> global_ranks,
                                         std::shared_ptr<FailureNews> news) {
  check_arguments(rank, topology, rendezvous.get(), options, global_ranks);
  if (global_ranks.empty()) global_ranks = all_ranks(topology.size());
  auto core = std::make_shared<GroupCore>(rank, std::move(topology), rendezvous, std::move(options),
                                          std::move(global_ranks), std::move(news), factory);
  core->start(factory, rendezvous);
  return {core.get(), ShutDown{core}};
}

std::shared_ptr<Group> create_group(int rank, Topology topology,
                                    std::shared_ptr<Rendezvous> rendezvous, GroupOptions options,
                                    std::vector<int> global_ranks,
                                    std::shared_ptr<FailureNews> news) {
  check_arguments(rank, topology, rendezvous.get(), options, global_ranks);
  if (global_ranks.empty()) global_ranks = all_ranks(topology.size());
  if (topology.size() > 1) {
    rendezvous = with_transport_check(std::move(rendezvous), rank, topology, options, global_ranks);
  }
  std::shared_ptr<MpiWorld> mpi;
  if (options.cross == CrossTransport::kMpi && topology.size() > 1) {
    mpi = join_mpi({rank, global_ranks, options.host}, *rendezvous,
                   internal::Deadline::after(options.timeout));
  }
  const CommFactory factory = default_comm_factory(options, std::move(mpi));
  return create_group_with(factory, rank, std::move(topology), std::move(rendezvous),
                           std::move(options), std::move(global_ranks), std::move(news));
}

}  // namespace chainmail::ops
