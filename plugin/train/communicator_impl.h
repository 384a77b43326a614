// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What a Communicator is made of: the job's World, an engine Group, and the buffers it packs into.
//
// Thread and collective rules are the Communicator's.

#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <chainmail/communicator.h>

#include "ops/engine/group.h"
#include "plugin/job/world.h"
#include "plugin/train/pack_buffer.h"

namespace chainmail {

struct Communicator::Impl {
  std::string name;
  CommunicatorOptions options;
  std::shared_ptr<World> world;
  std::shared_ptr<ops::Group> group;
  std::vector<int> world_ranks;  ///< of each rank of this communicator
  internal::PackBuffer pack_buffer;
  std::uint64_t splits = 0;  ///< so far; part of the names of sub-groups
  int exceptions_at_start = 0;
  bool is_finalized = false;
  std::exception_ptr failure;  ///< found by the training layer, on all ranks alike

  bool packs() const { return name != "naive"; }
  /// Over world_ranks: one of ours, or torch's own where the communicator's name says so.
  std::shared_ptr<ops::Group> create_group(ops::GroupOptions group_options) const;
  /// Throws what killed this communicator, or InvalidArgument after finalize().
  void check_usable() const;
  /// Reduces one plain tensor in place. `shapes` are the tensors that it stands for.
  void reduce(const at::Tensor& flat, ops::ReduceOp op, ops::WireFormat wire,
              at::ArrayRef<at::Tensor> shapes);
  void reduce_all(at::ArrayRef<at::Tensor> tensors, ops::ReduceOp op, ops::WireFormat wire);
  void broadcast_bytes(std::byte* data, std::size_t bytes, int root,
                       at::ArrayRef<at::Tensor> shapes);
  void check_root(int root, const char* operation) const;
  /// Before all ranks throw an error that they have agreed on: nobody leaves, and is taken for
  /// dead, while others still wait for the last bytes of that agreement. Bounded, never throws.
  void let_all_hear() noexcept;
};

namespace internal {

/// create_communicator over a given world; `group_name` must be new in the job.
[[nodiscard]] std::shared_ptr<Communicator> make_communicator(std::shared_ptr<World> world,
                                                              std::string_view name,
                                                              const CommunicatorOptions& options,
                                                              const std::string& group_name);

/// Makes every later call on `communicator` throw `error`, and throws it. For errors that all ranks
/// find at the same place, so that nobody has to be told. Collective.
[[noreturn]] void fail_on_all_ranks(Communicator& communicator, std::exception_ptr error);

}  // namespace internal
}  // namespace chainmail
