// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/job/world.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/membership/wire.h"
#include "base/net/socket.h"
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
// What a launcher needs to end a process, by far.
constexpr std::chrono::minutes kEndTimeout{5};

// In an elastic job a loss costs a step, and a host comes back: as long as for a rank that is
// stopped.
constexpr std::chrono::seconds kElasticSilenceLimit{4};

std::atomic<bool> has_been_alone{false};  ///< as a member of an elastic job is at first

class JobWorld final : public World {
 public:
  JobWorld(const JobConnection& connection, const internal::Environment& environment)
      : connection_(connection),
        settings_(internal::read_settings(environment)),
        starter_(to_string(connection.info.starter)),
        host_(internal::host_name()),
        rank_(connection.info.rank) {
    ids_ = ops::all_ranks(connection.info.size);
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

  /// A world of an elastic job.
  JobWorld(const JobConnection& connection, const internal::Environment& environment,
           MemberWorld plan)
      : connection_(connection),
        settings_(internal::read_settings(environment)),
        starter_(to_string(connection.info.starter)),
        host_(internal::host_name()),
        ids_(std::move(plan.members)),
        prefix_(plan.generation == 0 ? "alone" + std::to_string(ids_.front()) + "/"
                                     : membership::world_prefix(plan.generation)),
        silence_limit_(kElasticSilenceLimit) {
    const internal::Welcome& welcome = connection.launcher->welcome();
    const auto own = std::ranges::find(ids_, static_cast<int>(welcome.rank));
    if (own == ids_.end()) {
      throw InvalidArgument("member " + std::to_string(welcome.rank) + " is not in world " +
                            std::to_string(plan.generation));
    }
    rank_ = static_cast<int>(own - ids_.begin());
    std::vector<std::string> nodes;
    for (const std::uint32_t host : plan.hosts) nodes.push_back(std::to_string(host));
    topology_ = ops::Topology::from_node_ids(nodes);
    interface_ = internal::launcher_interface(welcome, environment);
    secret_ = welcome.secret;
  }

  int rank() const noexcept override { return rank_; }
  int size() const noexcept override { return static_cast<int>(ids_.size()); }
  int number_of(int rank) const override { return ids_.at(static_cast<std::size_t>(rank)); }
  const ops::Topology& topology() const noexcept override { return topology_; }
  const std::string& starter() const noexcept override { return starter_; }
  const std::string& host() const noexcept override { return host_; }

  std::shared_ptr<ops::Group> create_group(ops::GroupOptions options) override {
    return create_subgroup(ops::all_ranks(size()), std::move(options));
  }

  std::shared_ptr<ops::Group> create_subgroup(const std::vector<int>& ranks,
                                              ops::GroupOptions options) override {
    const int own = complete(ranks, options);
    options.name = prefix_ + options.name;
    if (options.cross == ops::CrossTransport::kMpi && ranks.size() > 1) {
      internal::check_mpi_starter(internal::process_environment());
    }
    std::shared_ptr<ops::Rendezvous> rendezvous = std::make_shared<ops::PrefixRendezvous>(
        "group/" + options.name + "/", connection_.rendezvous);
    // See start_liveness_probe() for MPI.
    const bool has_probe = probe_ && (options.cross != ops::CrossTransport::kMpi ||
                                      topology_.subset(ranks).node_count() == 1);
    std::vector<int> ids;
    for (const int rank : ranks) ids.push_back(ids_[static_cast<std::size_t>(rank)]);
    if (connection_.launcher || has_probe) rendezvous = with_ends(std::move(rendezvous), ids);
    return ops::create_group(own, topology_.subset(ranks), std::move(rendezvous),
                             std::move(options), ids,
                             ranks.size() > 1 ? connection_.news : nullptr);
  }

  std::shared_ptr<ops::Group> create_torch_group(internal::TorchBackend backend,
                                                 const std::vector<int>& ranks,
                                                 ops::GroupOptions options) override {
    const int own = complete(ranks, options);
    return internal::make_torch_group(backend, own, topology_.subset(ranks), std::move(options));
  }

  std::shared_ptr<ops::Rendezvous> create_rendezvous(const std::string& name) override {
    return std::make_shared<ops::PrefixRendezvous>(prefix_ + name + "/", connection_.rendezvous);
  }

  void report_step(std::uint64_t step) noexcept override {
    if (connection_.launcher) connection_.launcher->report_step(step);
  }

 private:
  // Extended by what is known of the ends of those ranks of the job.
  std::shared_ptr<ops::Rendezvous> with_ends(std::shared_ptr<ops::Rendezvous> rendezvous,
                                             const std::vector<int>& ids) const {
    // A group may outlive the world that has made it.
    const auto end_of = [launcher = connection_.launcher,
                         probe = probe_](int rank) -> std::optional<ops::RankEnd> {
      if (launcher) return launcher->end_of(rank);
      return probe ? probe->end_of(rank) : std::nullopt;
    };
    return ops::rendezvous_of(
        ids, std::make_shared<ops::LivenessRendezvous>(std::move(rendezvous), end_of));
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
    options.silence_limit = silence_limit_;
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
  int rank_ = 0;
  std::vector<int> ids_;  ///< of each rank: its number in the job
  std::string prefix_;    ///< of names, which are new in each world
  std::chrono::milliseconds silence_limit_ = internal::kSilenceLimit;
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
  require_fixed_size();
  const std::lock_guard lock(mutex);
  if (!world) {
    world = std::make_shared<JobWorld>(internal::job_connection(), internal::process_environment());
  }
  return world;
}

bool is_in_elastic_job() {
  const JobConnection& connection = internal::job_connection();
  return connection.launcher && connection.launcher->welcome().is_elastic;
}

bool is_member() { return has_been_alone; }

void require_fixed_size() {
  if (!is_in_elastic_job()) return;
  if (is_member()) {
    throw InvalidArgument(
        "this job is elastic (launcher --elastic), so that its ranks may change: its communicator "
        "is that of create_elastic_job(), in Python its groups are those of chainmail.elastic.Job");
  }
  internal::job_connection().launcher->ask_for_fixed_size();
  std::this_thread::sleep_for(kEndTimeout);
  throw InvalidArgument(
      "this job is elastic (launcher --elastic), and its launcher has not started this program "
      "anew as one of fixed size; make a create_elastic_job(), or leave out --elastic");
}

std::shared_ptr<World> make_world(MemberWorld plan) {
  return std::make_shared<JobWorld>(internal::job_connection(), internal::process_environment(),
                                    std::move(plan));
}

std::shared_ptr<World> make_world_alone() {
  has_been_alone = true;
  const auto own = static_cast<int>(internal::job_connection().launcher->welcome().rank);
  return make_world({.members = {own}, .hosts = {0}});
}

}  // namespace chainmail
