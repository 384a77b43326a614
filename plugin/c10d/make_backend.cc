// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/c10d/make_backend.h"

#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <chrono>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"
#include "ops/core/failure/failure_news.h"
#include "ops/core/liveness.h"
#include "ops/engine/create_group.h"
#include "plugin/c10d/global_ranks.h"
#include "plugin/c10d/store/group/given_up.h"
#include "plugin/c10d/store/group/group_rendezvous.h"
#include "plugin/c10d/store/launcher_store.h"
#include "plugin/cuda/cuda_support.h"
#include "plugin/job/environment/env.h"
#include "plugin/job/environment/mpi_starter.h"
#include "plugin/job/environment/node_id.h"
#include "plugin/job/environment/settings.h"
#include "plugin/job/job_connection.h"
#include "plugin/job/launcher/launcher_topology.h"
#include "plugin/job/rendezvous/liveness_probe.h"

namespace chainmail {
namespace internal {
namespace {

// The launcher behind a store, if it is the launcher's.
std::shared_ptr<LauncherClient> launcher_of(c10::intrusive_ptr<c10d::Store> store) {
  if (auto* prefixed = dynamic_cast<c10d::PrefixStore*>(store.get())) {
    store = prefixed->getUnderlyingNonPrefixStore();
  }
  const auto* launcher = dynamic_cast<const LauncherStore*>(store.get());
  return launcher != nullptr ? launcher->client() : nullptr;
}

void check_arguments(int rank, int size, const BackendOptions& options) {
  if (size < 1 || rank < 0 || rank >= size) {
    throw InvalidArgument("group \"" + options.group_name + "\": rank " + std::to_string(rank) +
                          " of " + std::to_string(size) + " cannot be");
  }
  const auto check_count = [&](std::size_t count, const char* what) {
    if (count == 0 || count == static_cast<std::size_t>(size)) return;
    throw InvalidArgument("group \"" + options.group_name + "\" of " + std::to_string(size) +
                          " ranks got " + std::to_string(count) + " " + what +
                          "; one per rank is needed");
  };
  check_count(options.node_ids.size(), "node ids");
  check_count(options.global_ranks.size(), "global ranks");
  if (options.timeout.count() <= 0) {
    throw InvalidArgument("group \"" + options.group_name + "\": a timeout must be positive, got " +
                          std::to_string(options.timeout.count()) +
                          " ms (fractions of a millisecond are dropped); pass how long an "
                          "operation may stand still, at least 1 ms, or leave it out");
  }
}

ops::Algorithm algorithm_of(const std::string& name) {
  if (name != kPureNccl && name != kNonCudaAware) return ops::parse_algorithm(name);
  require_cuda("algorithm " + name);
  return name == kPureNccl ? ops::Algorithm::kFlat : ops::Algorithm::kHierarchical;
}

/// What the ranks of a group learn of each other when they join.
struct JoinedRanks {
  std::shared_ptr<ops::Rendezvous> rendezvous;
  std::shared_ptr<GroupRendezvous> keys;   ///< the same; null for a rank that is alone
  std::shared_ptr<ops::FailureNews> news;  ///< null for a rank that is alone
  std::vector<std::string> nodes;
  std::vector<int> global_ranks;
  std::string secret;
};

using EndOf = GroupRendezvous::EndOf;

/// Ends of ranks as the launcher knows them, by rank in the group. `global_ranks` may be empty
/// while they are unknown: then only a group of all ranks of the job has any.
EndOf ends_known_to(std::shared_ptr<LauncherClient> launcher, std::vector<int> global_ranks,
                    int size) {
  const std::size_t job_size = launcher->welcome().node_of_rank.size();
  if (global_ranks.empty() && job_size != static_cast<std::size_t>(size)) return nullptr;
  return [launcher = std::move(launcher), global_ranks = std::move(global_ranks)](int rank) {
    return launcher->end_of(global_ranks.empty() ? rank
                                                 : global_ranks.at(static_cast<std::size_t>(rank)));
  };
}

/// The group's rendezvous, extended by what is known of the ends of its ranks.
std::shared_ptr<ops::Rendezvous> with_ends(const std::shared_ptr<GroupRendezvous>& rendezvous,
                                           const EndOf& attendance,
                                           const std::vector<int>& global_ranks) {
  const auto end_of = [rendezvous, attendance,
                       global_ranks](int rank) -> std::optional<ops::RankEnd> {
    auto end = attendance ? attendance(rank) : std::nullopt;
    if (!end && rendezvous->has_left(rank)) end = ops::RankEnd{rank, "", "has left the group"};
    if (end) end->rank = global_ranks.at(static_cast<std::size_t>(rank));
    return end;
  };
  return std::make_shared<ops::LivenessRendezvous>(rendezvous, end_of);
}

JoinedRanks join(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                 const BackendOptions& options, const std::shared_ptr<LauncherClient>& launcher,
                 const EndOf& attendance, const Environment& environment,
                 std::optional<int> rank_in_job) {
  JoinedRanks joined;
  const std::optional<JobRank> place = job_rank(launcher.get(), environment);
  if (place && (launcher || !rank_in_job)) rank_in_job = place->rank;
  RankIdentity me{node_id(environment), rank_in_job.value_or(-1)};
  if (launcher) {
    const Welcome& welcome = launcher->welcome();
    me.node = "node " + std::to_string(welcome.node_of_rank.at(welcome.rank));
  }
  if (size == 1) {  // needs no store
    joined.rendezvous = std::make_shared<ops::LocalRendezvous>();
    joined.nodes = {me.node};
    joined.global_ranks = choose_global_ranks({me.global_rank}, launcher != nullptr, options);
    joined.news = launcher;
    return joined;
  }
  const auto rendezvous = std::make_shared<GroupRendezvous>(store, options.group_name, rank, size);
  const Deadline deadline = Deadline::after(options.timeout);
  std::vector<int> told;
  try {
    for (const std::string& text : rendezvous->enter(encode(me), deadline, attendance)) {
      RankIdentity identity = decode(text);
      joined.nodes.push_back(std::move(identity.node));
      told.push_back(identity.global_rank);
    }
    joined.secret = share_secret(*rendezvous, rank, deadline);
  } catch (const TimeoutError& absence) {
    throw_not_joined(absence, options, place, rank, size);
  } catch (const GaveUp& absence) {
    throw_gave_up(absence, options, place, rank, size);
  }
  joined.global_ranks = choose_global_ranks(std::move(told), launcher != nullptr, options);
  joined.news = rendezvous->news(launcher);
  joined.rendezvous = rendezvous;
  joined.keys = rendezvous;
  return joined;
}

ops::GroupOptions engine_options_with(const JobSettings& settings, const BackendOptions& options) {
  ops::GroupOptions group_options;
  group_options.name = options.group_name;
  group_options.algorithm = algorithm_of(options.algorithm);
  group_options.wire = ops::parse_wire_format(options.wire);
  group_options.cross = ops::parse_cross_transport(options.cross);
  group_options.timeout = options.timeout;
  group_options.host = host_name();
  apply(settings, group_options);
  return group_options;
}

}  // namespace

ops::GroupOptions engine_options(const BackendOptions& options) {
  return engine_options_with(read_settings(process_environment()), options);
}

void attach_engine_group(c10d::ProcessGroup& group, std::shared_ptr<ops::Group> engine,
                         std::shared_ptr<ops::Rendezvous> rendezvous,
                         const BackendOptions& options) {
  check_arguments(group.getRank(), group.getSize(), options);
  set_backend(group, c10::make_intrusive<ChainmailBackend>(
                         std::move(engine), std::move(rendezvous), options,
                         std::vector<std::uint64_t>(options.global_ranks.begin(),
                                                    options.global_ranks.end())));
}

c10::intrusive_ptr<ChainmailBackend> make_backend(const c10::intrusive_ptr<c10d::Store>& store,
                                                  int rank, int size, const BackendOptions& options,
                                                  std::optional<int> rank_in_job) {
  check_arguments(rank, size, options);
  const Environment environment = process_environment();
  JobSettings settings = read_settings(environment);
  ops::GroupOptions group_options = engine_options_with(settings, options);
  settings.cross = group_options.cross;
  if (group_options.cross == ops::CrossTransport::kMpi && size > 1) check_mpi_starter(environment);

  const auto launcher = launcher_of(store);
  EndOf attendance;
  if (launcher) attendance = ends_known_to(launcher, options.global_ranks, size);
  JoinedRanks joined =
      join(store, rank, size, options, launcher, attendance, environment, rank_in_job);
  if (!options.node_ids.empty()) joined.nodes = options.node_ids;
  ops::Topology topology = ops::Topology::from_node_ids(joined.nodes);
  if (launcher && group_options.interface.empty() && topology.node_count() > 1) {
    group_options.interface = launcher_interface(launcher->welcome(), environment);
  }
  group_options.secret = std::move(joined.secret);
  if (joined.keys) {
    if (launcher) {
      attendance = ends_known_to(launcher, joined.global_ranks, size);
    } else if (auto probe = start_liveness_probe(joined.keys, rank, topology, settings)) {
      attendance = [probe = std::move(probe)](int of) { return probe->end_of(of); };
    }
    joined.rendezvous = with_ends(joined.keys, attendance, joined.global_ranks);
  }
  auto group =
      ops::create_group(rank, std::move(topology), joined.rendezvous, std::move(group_options),
                        joined.global_ranks, std::move(joined.news));
  return c10::make_intrusive<ChainmailBackend>(
      std::move(group), std::move(joined.rendezvous), options,
      std::vector<std::uint64_t>(joined.global_ranks.begin(), joined.global_ranks.end()));
}

void set_backend(c10d::ProcessGroup& group, const c10::intrusive_ptr<ChainmailBackend>& backend) {
  // The default first: c10d keys backends by kind, too, and an unset default makes barriers fail.
  group.setDefaultBackend(c10d::ProcessGroup::BackendType::CUSTOM);
  for (const c10::DeviceType device : {c10::kCPU, c10::kCUDA}) {
    group.setBackend(device, c10d::ProcessGroup::BackendType::CUSTOM,
                     c10::intrusive_ptr<c10d::Backend>(backend));
  }
}

c10::intrusive_ptr<ChainmailBackend> backend_of(c10d::ProcessGroup& group) {
  const auto found = group.getBackend(c10::kCPU);
  auto backend = c10::dynamic_intrusive_pointer_cast<ChainmailBackend>(found);
  TORCH_CHECK(backend, "chainmail: the CPU backend of group \"", group.getGroupName(), "\" is ",
              found->getBackendName(),
              "; make the group with chainmail::make_process_group or chainmail::attach, and unset "
              "TORCH_DISTRIBUTED_DEBUG=DETAIL, which hides a backend behind torch's own checks");
  return backend;
}

c10::intrusive_ptr<ChainmailBackend> find_backend(const std::string& group_name) {
  c10::intrusive_ptr<c10d::ProcessGroup> group;
  try {
    group = c10d::resolve_process_group(group_name);
  } catch (const c10::Error&) {
    TORCH_CHECK_VALUE(false, "chainmail: no process group is registered as \"", group_name,
                      "\", or it is gone; make one with chainmail::make_process_group or "
                      "init_process_group, keep it, and pass its group_name");
  }
  return backend_of(*group);
}

BackendOptions parse_backend_options(std::string_view text) {
  BackendOptions options;
  while (!text.empty()) {
    const std::string_view part = text.substr(0, text.find(','));
    text.remove_prefix(std::min(part.size() + 1, text.size()));
    const auto equals = part.find('=');
    const std::string_view key = part.substr(0, equals);
    const std::string_view value =
        equals == std::string_view::npos ? std::string_view() : part.substr(equals + 1);
    if (key == "algorithm") {
      options.algorithm = value;
    } else if (key == "wire") {
      options.wire = value;
    } else if (key == "cross") {
      options.cross = value;
    } else if (const auto ms = whole_number<long long>(value); ms && key == "timeout_ms") {
      options.timeout = std::chrono::milliseconds(*ms);
    } else {
      throw InvalidArgument("cannot read the backend option \"" + std::string(part) +
                            "\"; valid are algorithm=NAME, wire=NAME, cross=NAME, timeout_ms=N, "
                            "separated by commas");
    }
  }
  return options;
}

}  // namespace internal

c10::intrusive_ptr<c10d::ProcessGroup> make_process_group(
    const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
    const BackendOptions& options) {
  auto backend = internal::make_backend(store, rank, size, options);
  auto group = c10::make_intrusive<c10d::ProcessGroup>(store, rank, size);
  internal::set_backend(*group, backend);
  group->setGroupName(options.group_name);
  c10d::register_process_group(options.group_name, group);
  backend->unregister_when_gone();
  return group;
}

}  // namespace chainmail
