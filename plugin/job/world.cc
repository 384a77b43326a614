// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/job/world.h"

#include <algorithm>
#include <mutex>
#include <optional>
#include <set>
#include <utility>

#include "base/error.h"
#include "ops/core/liveness.h"
#include "ops/engine/create_group.h"
#include "plugin/job/environment/env.h"
#include "plugin/job/environment/mpi_starter.h"
#include "plugin/job/environment/node_id.h"
#include "plugin/job/environment/settings.h"
#include "plugin/job/job_connection.h"
#include "plugin/job/launcher/launcher_topology.h"
#include "plugin/job/rendezvous/liveness_probe.h"

namespace chainmail {
namespace {

using internal::Deadline;
using internal::JobConnection;

constexpr std::chrono::minutes kJoinTimeout{5};

class JobWorld final : public World {
 public:
  JobWorld(const JobConnection& connection, const internal::Environment& environment)
      : connection_(connection),
        settings_(internal::read_settings(environment)),
        starter_(to_string(connection.info.starter)),
        host_(internal::host_name()) {
    const Deadline deadline = Deadline::after(settings_.timeout.value_or(kJoinTimeout));
    if (connection.launcher) {
      // All ranks must learn the nodes in the same way, so no rank's environment decides.
      const internal::Welcome& welcome = connection.launcher->welcome();
      topology_ = internal::launcher_topology(welcome, connection.info);
      interface_ = internal::launcher_interface(welcome, environment);
      secret_ = welcome.secret;
      return;
    }
    topology_ = ops::Topology::from_node_ids(
        internal::exchange(*connection.rendezvous, "node", rank(), connection.info.size,
                           internal::node_id(environment), deadline));
    probe_ = internal::start_liveness_probe(connection.rendezvous, rank(), topology_, settings_);
    secret_ = internal::share_secret(*connection.rendezvous, rank(), deadline);
  }

  int rank() const noexcept override { return connection_.info.rank; }
  int size() const noexcept override { return connection_.info.size; }
  const ops::Topology& topology() const noexcept override { return topology_; }
  const std::string& starter() const noexcept override { return starter_; }
  const std::string& host() const noexcept override { return host_; }

  std::shared_ptr<ops::Group> create_group(ops::GroupOptions options) override {
    return create_subgroup(ops::all_ranks(size()), std::move(options));
  }

  std::shared_ptr<ops::Group> create_subgroup(const std::vector<int>& ranks,
                                              ops::GroupOptions options) override {
    const int own = complete(ranks, options);
    if (options.cross == ops::CrossTransport::kMpi && ranks.size() > 1) {
      internal::check_mpi_starter(internal::process_environment());
    }
    std::shared_ptr<ops::Rendezvous> rendezvous = std::make_shared<ops::PrefixRendezvous>(
        "group/" + options.name + "/", connection_.rendezvous);
    // See start_liveness_probe() for MPI.
    const bool has_probe = probe_ && (options.cross != ops::CrossTransport::kMpi ||
                                      topology_.subset(ranks).node_count() == 1);
    if (connection_.launcher || has_probe) rendezvous = with_ends(std::move(rendezvous), ranks);
    return ops::create_group(own, topology_.subset(ranks), std::move(rendezvous),
                             std::move(options), ranks,
                             ranks.size() > 1 ? connection_.news : nullptr);
  }

  std::shared_ptr<ops::Group> create_torch_group(internal::TorchBackend backend,
                                                 const std::vector<int>& ranks,
                                                 ops::GroupOptions options) override {
    const int own = complete(ranks, options);
    return internal::make_torch_group(backend, own, topology_.subset(ranks), std::move(options));
  }

  std::shared_ptr<ops::Rendezvous> create_rendezvous(const std::string& name) override {
    return std::make_shared<ops::PrefixRendezvous>(name + "/", connection_.rendezvous);
  }

  void report_step(std::uint64_t step) noexcept override {
    if (connection_.launcher) connection_.launcher->report_step(step);
  }

 private:
  // Extended by what is known of the ends of `ranks`.
  std::shared_ptr<ops::Rendezvous> with_ends(std::shared_ptr<ops::Rendezvous> rendezvous,
                                             const std::vector<int>& ranks) const {
    return ops::rendezvous_of(
        ranks, std::make_shared<ops::LivenessRendezvous>(
                   std::move(rendezvous), [this](int rank) { return end_of(rank); }));
  }

  std::optional<ops::RankEnd> end_of(int rank) const {
    if (connection_.launcher) return connection_.launcher->end_of(rank);
    return probe_ ? probe_->end_of(rank) : std::nullopt;
  }

  // Checks the ranks, fills in the options that come from the job, and returns this rank's index.
  int complete(const std::vector<int>& ranks, ops::GroupOptions& options) const {
    const std::set<int> distinct(ranks.begin(), ranks.end());
    if (ranks.empty() || distinct.size() != ranks.size() || *distinct.begin() < 0 ||
        *distinct.rbegin() >= size()) {
      throw InvalidArgument("group \"" + options.name +
                            "\": its ranks must be distinct and from 0 "
                            "to " +
                            std::to_string(size() - 1));
    }
    const auto mine = std::find(ranks.begin(), ranks.end(), rank());
    if (mine == ranks.end()) {
      throw InvalidArgument("group \"" + options.name + "\" does not contain this rank " +
                            std::to_string(rank()) + "; only its members may create it");
    }
    options.generation = connection_.info.generation;
    options.secret = secret_;
    options.host = host_;
    if (options.interface.empty() && topology_.subset(ranks).node_count() > 1) {
      options.interface = interface_;
    }
    internal::apply(settings_, options);
    return static_cast<int>(mine - ranks.begin());
  }

  const JobConnection& connection_;
  const internal::JobSettings settings_;
  const std::string starter_;
  const std::string host_;
  ops::Topology topology_ = ops::Topology::single_node(1);
  std::string interface_;  ///< for traffic between nodes; empty: the socket chooses
  std::string secret_;
  std::shared_ptr<ops::RankLiveness> probe_;  ///< null under the launcher, which knows
};

}  // namespace

std::shared_ptr<World> job_world() {
  static std::mutex mutex;
  // Kept as long as the connection it stands for, that is, as long as the process.
  static auto& world = *new std::shared_ptr<World>();
  const std::lock_guard lock(mutex);
  if (!world) {
    world = std::make_shared<JobWorld>(internal::job_connection(), internal::process_environment());
  }
  return world;
}

}  // namespace chainmail
