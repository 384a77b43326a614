// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include <chainmail/checkpoint.h>

#include <algorithm>
#include <utility>

#include "plugin/checkpoint/checkpointer_impl.h"
#include "plugin/train/communicator/communicator_impl.h"

namespace chainmail {

namespace {

// The set of each rank: as listed, and one more for ranks that no set lists.
std::vector<int> number_sets(const std::vector<std::vector<int>>& sets, int world_size) {
  constexpr int kNone = -1;
  std::vector<int> set_of_rank(static_cast<std::size_t>(world_size), kNone);
  for (std::size_t set = 0; set < sets.size(); ++set) {
    if (sets[set].empty()) {
      throw InvalidArgument("replica set " + std::to_string(set) + " is empty");
    }
    for (const int rank : sets[set]) {
      if (rank < 0 || rank >= world_size) {
        throw InvalidArgument("replica set " + std::to_string(set) + " has rank " +
                              std::to_string(rank) + "; there are ranks 0 to " +
                              std::to_string(world_size - 1));
      }
      int& place = set_of_rank[static_cast<std::size_t>(rank)];
      if (place != kNone) {
        throw InvalidArgument("rank " + std::to_string(rank) + " is in replica sets " +
                              std::to_string(place) + " and " + std::to_string(set));
      }
      place = static_cast<int>(set);
    }
  }
  std::replace(set_of_rank.begin(), set_of_rank.end(), kNone, static_cast<int>(sets.size()));
  return set_of_rank;
}

}  // namespace

void internal::check_checkpoint_options(const std::string& name, const CheckpointOptions& options) {
  if (name.empty() || name == "." || name == ".." ||
      name.find_first_of(std::string_view("/\0\n", 3)) != std::string::npos) {
    throw InvalidArgument("'" + name + "' is no name for a run: it becomes a folder");
  }
  if (options.path.empty() || options.keep < 1) {
    throw InvalidArgument("a checkpointer needs a path, and keeps at least one checkpoint");
  }
}

std::unique_ptr<MultiNodeCheckpointer::Impl> internal::make_checkpointer_impl(
    const std::shared_ptr<Communicator>& communicator, const std::string& name,
    const std::vector<std::vector<int>>& replica_sets, const CheckpointOptions& options,
    std::shared_ptr<FileSystem> files) {
  require_communicator(communicator, "a checkpointer");
  check_checkpoint_options(name, options);
  auto impl = std::make_unique<MultiNodeCheckpointer::Impl>();
  impl->communicator = communicator;
  impl->set_of_rank = number_sets(replica_sets, communicator->size());
  impl->is_async = options.is_async;
  SavePlace& place = impl->place;
  place.files = std::move(files);
  place.run_folder = options.path + '/' + name;
  place.members = find_folder_members(*communicator, *place.files, place.run_folder);
  // The members of an elastic job come and go, and save at its end each by itself.
  const bool watches = place.members.is_leader() && !communicator->impl().shards;
  agree_on_success(*communicator, "the folder of checkpoints cannot be read", error_of([&] {
    if (watches) place.watch = std::make_shared<FolderWatch>(place.run_folder);
  }));
  place.keep = options.keep;
  place.set = impl->set_of_rank.at(static_cast<std::size_t>(communicator->rank()));
  const auto first = std::find(impl->set_of_rank.begin(), impl->set_of_rank.end(), place.set);
  place.set_leader = static_cast<int>(first - impl->set_of_rank.begin());
  place.set_count = *std::max_element(impl->set_of_rank.begin(), impl->set_of_rank.end()) + 1;
  impl->writers = communicator->split(0, communicator->rank());
  impl->writers->impl().outlives_world = true;
  return impl;
}

std::unique_ptr<MultiNodeCheckpointer> internal::make_checkpointer(
    const std::shared_ptr<Communicator>& communicator, const std::string& name,
    const std::vector<std::vector<int>>& replica_sets, const CheckpointOptions& options,
    std::shared_ptr<FileSystem> files) {
  return std::make_unique<MultiNodeCheckpointer>(
      make_checkpointer_impl(communicator, name, replica_sets, options, std::move(files)));
}

std::unique_ptr<MultiNodeCheckpointer> create_multi_node_checkpointer(
    const std::string& name, const std::shared_ptr<Communicator>& communicator,
    const CheckpointOptions& options) {
  return multi_node_snapshot(communicator, name, {}, options);
}

std::unique_ptr<MultiNodeCheckpointer> multi_node_snapshot(
    const std::shared_ptr<Communicator>& communicator, const std::string& name,
    const std::vector<std::vector<int>>& replica_sets, const CheckpointOptions& options) {
  return internal::make_checkpointer(communicator, name, replica_sets, options,
                                     internal::posix_file_system());
}

}  // namespace chainmail
