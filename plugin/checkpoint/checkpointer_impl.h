// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What a MultiNodeCheckpointer is made of. Thread and collective rules are the checkpointer's.

#pragma once

#include <future>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <chainmail/checkpoint.h>

#include "plugin/checkpoint/items/items.h"
#include "plugin/checkpoint/protocol/restored_parts.h"
#include "plugin/checkpoint/protocol/save_protocol.h"

namespace chainmail {

struct MultiNodeCheckpointer::Impl {
  std::shared_ptr<Communicator> communicator;
  std::shared_ptr<Communicator> writers;  ///< the same ranks; used by the thread that writes
  internal::SavePlace place;
  bool is_async = true;
  std::vector<int> set_of_rank;
  std::vector<internal::CheckpointItem> items;
  internal::SaveJob job;          ///< the one under way; its memory serves the next one
  std::future<void> in_flight{};  ///< last: waits for its thread

  void add(internal::CheckpointItem item);
  /// The replica set, of several, that an item is a part of.
  std::optional<int> own_set_of(const internal::CheckpointItem& item) const;
  void prepare_items();
  /// `what` begins the errors of these.
  void finish_items(const std::string& what);
  /// Of `items_of_sets` each set has parts of its own.
  void load_parts(const internal::RestoredParts& parts, const std::set<std::string>& items_of_sets,
                  const std::string& what);
  void capture(std::int64_t iteration);
  void start();
  void wait();
};

namespace internal {

/// multi_node_snapshot over a given file system. Collective.
[[nodiscard]] std::unique_ptr<MultiNodeCheckpointer> make_checkpointer(
    const std::shared_ptr<Communicator>& communicator, const std::string& name,
    const std::vector<std::vector<int>>& replica_sets, const CheckpointOptions& options,
    std::shared_ptr<FileSystem> files);
/// What it is made of. Collective.
[[nodiscard]] std::unique_ptr<MultiNodeCheckpointer::Impl> make_checkpointer_impl(
    const std::shared_ptr<Communicator>& communicator, const std::string& name,
    const std::vector<std::vector<int>>& replica_sets, const CheckpointOptions& options,
    std::shared_ptr<FileSystem> files);
/// Throws InvalidArgument for a name that is no folder's, and options that make no sense.
void check_checkpoint_options(const std::string& name, const CheckpointOptions& options);

}  // namespace internal
}  // namespace chainmail
