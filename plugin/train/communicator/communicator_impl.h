// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What a Communicator is made of: the job's World, an engine Group, and the buffers it packs into.
//
// Thread and collective rules are the Communicator's.

#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <chainmail/communicator.h>

#include "ops/engine/create_group.h"
#include "ops/engine/group.h"
#include "plugin/c10d/device/device_context.h"
#include "plugin/job/world.h"
#include "plugin/train/pack_buffer.h"
#include "plugin/train/shards/shard_progress.h"

namespace chainmail {

namespace internal {
class UnitSet;
}  // namespace internal

struct Communicator::Impl {
  std::string name;
  CommunicatorOptions options;
  std::shared_ptr<World> world;
  std::shared_ptr<ops::Group> group;
  std::shared_ptr<ops::Group> graph_group;  ///< see in_graph(); null until it is needed
  std::uint64_t graph_messages = 0;         ///< sent so far by functions of graphs
  std::vector<int> world_ranks;             ///< of each rank of this communicator
  /// Of the GPUs that tensors were on; each is created on first use.
  std::unique_ptr<internal::DeviceContexts> device_contexts =
      std::make_unique<internal::DeviceContexts>(
          [this](c10::Device device, int number) { return create_device_group(device, number); });
  internal::PackBuffer pack_buffer;
  std::uint64_t splits = 0;                        ///< so far; part of the names of sub-groups
  std::vector<std::weak_ptr<Communicator>> parts;  ///< made by split(), which end with their world
  bool outlives_world = false;  ///< a thread of its own ends what it has begun there
  int exceptions_at_start = 0;
  bool is_finalized = false;
  std::chrono::nanoseconds waited{0};  ///< for gradients
  std::exception_ptr failure;          ///< found by the training layer, on all ranks alike
  /// Of a job that hands out shards: gradients are sums over them. Null: means over the ranks.
  std::shared_ptr<internal::ShardProgress> shards;
  std::weak_ptr<internal::UnitSet> units;  ///< of Sharded modules, which own it

  bool packs() const { return name != "naive"; }
  /// Over world_ranks: one of ours, or torch's own where the communicator's name says so.
  std::shared_ptr<ops::Group> create_group(ops::GroupOptions group_options) const;
  /// A second group of the same ranks, for collectives that are part of an autograd graph: buckets
  /// of gradients start while backward runs, at moments of their own, and two streams of operations
  /// in one group would be ordered differently on every rank. Collective when first called.
  ops::Group& in_graph();
  /// The group's counterpart on the `number`-th GPU that this communicator is given tensors of.
  std::shared_ptr<ops::DeviceGroup> create_device_group(c10::Device device, int number) const;
  /// The context of `device`, null for the CPU. Throws InvalidArgument where this
  /// communicator has none.
  std::shared_ptr<const internal::DeviceContext> device_context(c10::Device device) const;
  /// The same for gradients; throws for those on the CPU where the name asks for a GPU.
  std::shared_ptr<const internal::DeviceContext> device_context_for_gradients(
      c10::Device device) const;
  /// Throws what killed this communicator, or InvalidArgument after finalize().
  void check_usable() const;
  /// Reduces one plain tensor in place. `shapes` are the tensors that it stands for.
  void reduce(const at::Tensor& flat, ops::ReduceOp op, ops::WireFormat wire,
              at::ArrayRef<at::Tensor> shapes);
  void reduce_all(at::ArrayRef<at::Tensor> tensors, ops::ReduceOp op, ops::WireFormat wire);
  void check_root(int root, const char* operation) const;
  /// A barrier before all ranks throw an error that they have agreed on, so that none leaves, and
  /// is taken for dead, while others still wait for the last bytes of the agreement. At most 5 s,
  /// never throws.
  void wait_for_agreement() noexcept;
  /// All ranks are about to throw the same error: until the next operation of this thread, the end
  /// of a communicator of these ranks, or of some of them, is news to none.
  void mark_agreed() const;
};

namespace internal {

/// create_communicator over a given world; `group_name` must be new in the job.
[[nodiscard]] std::shared_ptr<Communicator> make_communicator(std::shared_ptr<World> world,
                                                              std::string_view name,
                                                              const CommunicatorOptions& options,
                                                              const std::string& group_name);

/// Of an elastic job: `communicator` becomes one over `world`, under a name that is the same on all
/// of its members. Collective over those; what was made from it before is of no use.
void enter_world(Communicator& communicator, std::shared_ptr<World> world);
/// The group is used no more, and goes with the next enter_world(); until then every call throws
/// `why`, and of communicators that were made by split() for ever.
void leave_world(Communicator& communicator, const std::exception_ptr& why);

/// Throws a MismatchError, and makes every later call on `communicator` throw it. For what all
/// ranks find at the same place, so that it need not be announced. Collective.
[[noreturn]] void fail_on_all_ranks(Communicator& communicator, const std::string& message);

}  // namespace internal
}  // namespace chainmail
