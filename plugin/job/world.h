// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// This process's place in its job, and groups over the job's ranks. Free of torch and c10d, so
// that the training layer can use it; the rendezvous behind it may be a c10d::Store.
//
// Thread-safe. create_group and create_subgroup are collective over the ranks concerned.

#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ops/core/rendezvous.h"
#include "ops/engine/create_group.h"
#include "ops/engine/group.h"
#include "ops/topology.h"
#include "plugin/job/torch_group.h"

namespace chainmail {

class World {
 public:
  virtual ~World() = default;
  virtual int rank() const noexcept = 0;
  virtual int size() const noexcept = 0;
  virtual const ops::Topology& topology() const noexcept = 0;
  /// By which the launcher and errors know that rank of this world.
  virtual int number_of(int rank) const = 0;
  /// Who started this process: "launcher", "torchrun", "mpirun", "srun" or "alone".
  virtual const std::string& starter() const noexcept = 0;
  virtual const std::string& host() const noexcept = 0;

  /// A group over all ranks; `options.name` must be new in the job. Fills in secret, host,
  /// generation.
  virtual std::shared_ptr<ops::Group> create_group(ops::GroupOptions options) = 0;
  /// A group over the given world ranks, in that order; only they call.
  virtual std::shared_ptr<ops::Group> create_subgroup(const std::vector<int>& ranks,
                                                      ops::GroupOptions options) = 0;
  /// A rendezvous of its own under `name`, which must be new in the job.
  virtual std::shared_ptr<ops::Rendezvous> create_rendezvous(const std::string& name) = 0;
  /// Tells the launcher how far training is (no-op under other starters).
  virtual void report_step(std::uint64_t step) noexcept = 0;
  /// create_subgroup over one of torch's own process groups, to compare with.
  virtual std::shared_ptr<ops::Group> create_torch_group(internal::TorchBackend backend,
                                                         const std::vector<int>& ranks,
                                                         ops::GroupOptions options) = 0;
};

/// The world of this process, found in the environment at the first call (docs/env.md). Throws
/// InvalidArgument when the environment names a job but is incomplete or contradictory. In an
/// elastic job: require_fixed_size().
[[nodiscard]] std::shared_ptr<World> job_world();

/// One world of an elastic job.
struct MemberWorld {
  std::uint32_t generation = 0;
  std::vector<int> members;          ///< by rank: the numbers that the launcher knows them by
  std::vector<std::uint32_t> hosts;  ///< of each
};

/// Whether the launcher says that ranks may come and go. Joins the job.
[[nodiscard]] bool is_in_elastic_job();
/// Whether this process has come to create_elastic_job, or to its like, in such a job.
[[nodiscard]] bool is_member();
/// Nothing where ranks keep their number. In an elastic job, which has one world after another, the
/// launcher is asked to start all ranks anew as a job of fixed size, and ends this process. Throws
/// InvalidArgument in a process that is a member, and where the launcher does not end it in time.
void require_fixed_size();
/// This process's place in `plan`. Errors and the launcher's news name members by their numbers.
[[nodiscard]] std::shared_ptr<World> make_world(MemberWorld plan);
/// Of this process alone, as long as it waits for its first world.
[[nodiscard]] std::shared_ptr<World> make_world_alone();

}  // namespace chainmail
