// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include <chainmail/checkpoint.h>
#include <chainmail/train/agreement.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <random>
#include <system_error>
#include <tuple>
#include <utility>

#include <c10/util/Exception.h>

#include "base/log.h"
#include "plugin/checkpoint/checkpointer_impl.h"
#include "plugin/checkpoint/items/optimizer/wire_residuals.h"
#include "plugin/checkpoint/items/state_entries.h"
#include "plugin/checkpoint/items/values.h"
#include "plugin/checkpoint/protocol/restore.h"
#include "plugin/checkpoint/store/generations.h"
#include "plugin/train/communicator/communicator_impl.h"
#include "plugin/train/communicator/fields.h"

namespace chainmail {

using internal::CheckpointItem;
using internal::ItemScope;
using internal::SavedStates;
using internal::StateEntries;

namespace {

/// In the state of an item that is a set's, of several.
constexpr const char* kReplicaSet = "replica set";

StateEntries entries_of(const CheckpointItem& item, std::optional<int> set) {
  CheckpointState state = item.save();
  if (set && !state.values().empty()) state.set_integer(kReplicaSet, *set);
  StateEntries entries;
  entries.add(item.name, state);
  return entries;
}

// What all ranks must say alike, or compare, before a save.
struct Notice {
  std::string iteration;
  std::string names;
  std::uint64_t id = 0;
  std::vector<internal::EntryDigest> digests;  ///< of each compared item

  static constexpr char kObjectName[] = "notice of a save";
  static auto fields(auto& self) {
    return std::tie(self.iteration, self.names, self.id, self.digests);
  }
};

// Which compared items differ within a set: the same on all ranks.
std::vector<bool> find_different(const std::vector<Notice>& notices,
                                 const std::vector<int>& set_of_rank) {
  std::vector<bool> is_different(notices.front().digests.size());
  for (std::size_t rank = 0; rank < notices.size(); ++rank) {
    for (const auto member : {&Notice::iteration, &Notice::names}) {
      if (notices[rank].*member != notices[0].*member) {
        throw InvalidArgument("ranks save different things: rank 0 " + notices[0].*member +
                              ", rank " + std::to_string(rank) + " " + notices[rank].*member);
      }
    }
    const auto leader = static_cast<std::size_t>(std::ranges::find(set_of_rank, set_of_rank[rank]) -
                                                 set_of_rank.begin());
    for (std::size_t i = 0; i < is_different.size(); ++i) {
      is_different[i] =
          is_different[i] || notices[rank].digests.at(i) != notices[leader].digests.at(i);
    }
  }
  return is_different;
}

// Of all items: what this rank writes, and what another one writes of which this one has a copy.
struct Parts {
  StateEntries own;
  StateEntries copies;
  std::vector<internal::ManifestTensor> tensors;  ///< of the own ones
  std::vector<internal::PartItem> items;
};

void add_parts(const CheckpointItem& item, int set, Parts& parts) {
  if (!item.save_parts) return;
  const internal::RankParts saved = item.save_parts();
  parts.items.push_back({item.name, saved.slice, saved.is_copy});
  (saved.is_copy ? parts.copies : parts.own).add(item.name, saved.entries);
  if (saved.is_copy) return;
  for (const auto& [tensor, elements] : saved.elements) {
    parts.tensors.push_back({set, elements, item.name + '/' + tensor});
  }
}

std::uint64_t random_id() {
  std::random_device random;
  return (static_cast<std::uint64_t>(random()) << 32) | random();
}

bool says_set(const CheckpointState& state) { return state.has(kReplicaSet); }

// Where the ranks that saved have said which set they are of: what is left of `saved` for `rank` is
// its own set's.
void keep_own_set(SavedStates& saved, int rank, const std::vector<int>& set_of_rank) {
  if (std::ranges::none_of(saved.ranks, says_set)) return;
  const int set = set_of_rank.at(static_cast<std::size_t>(rank));
  std::erase_if(saved.ranks, [&](const CheckpointState& state) {
    return !says_set(state) || state.integer(kReplicaSet) != set;
  });
  if (saved.ranks.empty()) saved.ranks.emplace_back();
  saved.rank =
      static_cast<int>(std::ranges::count(set_of_rank.begin(), set_of_rank.begin() + rank, set));
}

// For `rank`, whose set, where the item is a set's, is that of `set_of_rank`.
SavedStates states_of(const CheckpointItem& item, const internal::RestoredGeneration& restored,
                      int rank, const std::vector<int>* set_of_rank) {
  const auto read = [&](const internal::RestoredGeneration::File& file) {
    return internal::read_state(item.name, file.index, std::as_bytes(std::span(file.bytes)));
  };
  SavedStates saved{{}, rank};
  for (const auto& file : restored.rank_files) saved.ranks.push_back(read(file));
  if (set_of_rank != nullptr) keep_own_set(saved, rank, *set_of_rank);
  const bool has_any = std::ranges::any_of(
      saved.ranks, [](const CheckpointState& state) { return !state.values().empty(); });
  if (item.scope == ItemScope::kReplicated && has_any && !item.refusal_of_many.empty()) {
    throw CheckpointError("'" + item.name + "' " + item.refusal_of_many);
  }
  const bool is_per_rank =
      item.scope == ItemScope::kPerRank || (item.scope == ItemScope::kCompared && has_any);
  if (!is_per_rank) return {{read(restored.set_file)}, rank};
  return saved;
}

// What `work` on an item throws, with the item's name.
template <typename Work>
void name_errors(const CheckpointItem& item, const Work& work) {
  try {
    work();
  } catch (const c10::Error& error) {
    throw CheckpointError("'" + item.name + "': " + error.what_without_backtrace());
  } catch (const std::exception& error) {
    throw CheckpointError("'" + item.name + "': " + error.what());
  }
}

// What `item` wants of the tensors in parts that are its own.
internal::PartWishes wishes_of(const CheckpointItem& item, const internal::PartTensors& all) {
  const std::string prefix = item.name + '/';
  internal::PartTensors own;
  for (auto tensor = all.lower_bound(prefix);
       tensor != all.end() && tensor->first.starts_with(prefix); ++tensor) {
    own.emplace(tensor->first.substr(prefix.size()), tensor->second);
  }
  if (!item.wish_parts) {
    if (own.empty()) return {};
    throw CheckpointError("the checkpoint has parts of '" + own.begin()->first +
                          "' of it, as of an optimizer, and it is something else in the program: "
                          "add an optimizer by this name, or use another name for the run");
  }
  internal::PartWishes wished = item.wish_parts(own);
  for (internal::PartWish& wish : wished.wishes) {
    wish.set = own.at(wish.range.tensor).set;
    wish.range.tensor.insert(0, prefix);
  }
  return wished;
}

template <typename Value>
CheckpointItem value_item(const std::string& name, Value* value) {
  if (value == nullptr) throw InvalidArgument("add('" + name + "'): there is no value");
  return {
      .name = name,
      .scope = ItemScope::kCompared,
      .save =
          [value] {
            CheckpointState state;
            internal::put(state, "value", *value);
            return state;
          },
      .load = [value](const SavedStates& saved) { internal::get(saved.own(), "value", *value); }};
}

}  // namespace

void MultiNodeCheckpointer::Impl::add(CheckpointItem item) {
  if (item.name.empty() || item.name.find_first_of("/\n") != std::string::npos) {
    throw InvalidArgument("'" + item.name + "' cannot be the name of a part of a checkpoint");
  }
  internal::check_name(item.name + '/');
  for (const CheckpointItem& other : items) {
    if (other.name == item.name) {
      throw InvalidArgument("there is a part '" + item.name + "' of this checkpoint already");
    }
  }
  items.push_back(std::move(item));
}

std::optional<int> MultiNodeCheckpointer::Impl::own_set_of(const CheckpointItem& item) const {
  if (place.set_count == 1 || item.job_ranks.empty()) return std::nullopt;
  const std::vector<int>& job_ranks = communicator->impl().world_ranks;
  const bool is_within = std::ranges::all_of(item.job_ranks, [&](int job_rank) {
    const auto rank = std::ranges::find(job_ranks, job_rank) - job_ranks.begin();
    return static_cast<std::size_t>(rank) < set_of_rank.size() &&
           set_of_rank[static_cast<std::size_t>(rank)] == place.set;
  });
  return is_within ? std::optional(place.set) : std::nullopt;
}

void MultiNodeCheckpointer::Impl::prepare_items() {
  for (const CheckpointItem& item : items) {
    if (item.prepare) item.prepare();
  }
}

// What these throw they throw on all ranks.
void MultiNodeCheckpointer::Impl::finish_items(const std::string& what) {
  for (const CheckpointItem& item : items) {
    if (!item.finish) continue;
    try {
      item.finish();
    } catch (const InvalidArgument& error) {
      throw CheckpointError(what + ": '" + item.name + "': " + error.what());
    }
  }
}

void MultiNodeCheckpointer::Impl::load_parts(const internal::RestoredParts& parts,
                                             const std::set<std::string>& items_of_sets,
                                             const std::string& what) {
  std::vector<internal::PartWish> wishes;
  std::vector<internal::PartWishes> of_items;
  internal::agree_on_success(*communicator, what, internal::error_of([&] {
    const internal::PartTensors of_set = parts.tensors(place.set);
    const internal::PartTensors of_all = parts.tensors(std::nullopt);
    for (const CheckpointItem& item : items) {
      const bool is_in_all = item.has_parts_in_all_sets && !items_of_sets.contains(item.name);
      name_errors(item, [&] { of_items.push_back(wishes_of(item, is_in_all ? of_all : of_set)); });
      const auto& added = of_items.back().wishes;
      wishes.insert(wishes.end(), added.begin(), added.end());
    }
  }));
  parts.read(*communicator, wishes, what);
  internal::agree_on_success(*communicator, what, internal::error_of([&] {
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (of_items[i].take) name_errors(items[i], of_items[i].take);
    }
  }));
}

void MultiNodeCheckpointer::Impl::wait() {
  if (in_flight.valid()) in_flight.get();
}

// Copies what this rank will write; of what another rank writes for it, digests.
void MultiNodeCheckpointer::Impl::capture(std::int64_t iteration) {
  Notice notice{"iteration " + std::to_string(iteration), "", random_id(), {}};
  std::vector<StateEntries> entries;
  Parts parts;
  internal::throw_if_any_failed(*communicator, internal::error_of([&] {
    if (iteration < 0) {
      throw InvalidArgument("iteration " + std::to_string(iteration) + " is negative");
    }
    for (const CheckpointItem& item : items) {
      notice.names += item.name + ", ";
      entries.push_back(entries_of(item, own_set_of(item)));
      add_parts(item, place.set, parts);
      if (item.scope == ItemScope::kCompared) {
        notice.digests.push_back(internal::file_digest(entries.back().index()));
      }
    }
  }));
  const std::vector<Notice> notices = communicator->allgather_obj(notice);
  const std::vector<bool> is_different = find_different(notices, set_of_rank);
  job.iteration = iteration;
  job.id = notices[0].id;

  internal::throw_if_any_failed(*communicator, internal::error_of([&] {
    StateEntries common;
    StateEntries own;
    std::size_t compared = 0;
    for (std::size_t i = 0; i < items.size(); ++i) {
      const bool is_own = items[i].scope == ItemScope::kPerRank ||
                          (items[i].scope == ItemScope::kCompared && is_different[compared++]);
      (is_own ? own : common).append(std::move(entries[i]));
    }
    if (place.set_leader == communicator->rank()) {
      common.fill(job.set_image);
    } else {
      job.set_index = common.index();
    }
    job.has_rank_image = !own.empty();
    own.fill(job.rank_image);
    job.has_part_image = !parts.own.empty();
    if (job.has_part_image) parts.own.fill(job.part_image);
    job.replica_index = parts.copies.index();
    job.tensors = std::move(parts.tensors);
    job.part_items = std::move(parts.items);
  }));
}

void MultiNodeCheckpointer::Impl::start() {
  const auto work = [this] {
    const auto begin = std::chrono::steady_clock::now();
    internal::write_generation(*writers, place, job);
    if (place.members.is_leader()) {
      const std::chrono::duration<double, std::milli> taken =
          std::chrono::steady_clock::now() - begin;
      internal::LogMessage(internal::LogLevel::kInfo)
          << "the checkpoint of iteration " << job.iteration << " in " << place.run_folder
          << " was written in " << static_cast<std::int64_t>(taken.count()) << " ms";
    }
  };
  if (is_async) {
    try {
      in_flight = std::async(std::launch::async, work);
      return;
    } catch (const std::system_error&) {
      // No thread to be had; the other ranks wait for this one's part.
    }
  }
  work();
}

MultiNodeCheckpointer::MultiNodeCheckpointer(std::unique_ptr<Impl> impl) noexcept
    : impl_(std::move(impl)) {}

MultiNodeCheckpointer::~MultiNodeCheckpointer() {
  const std::string error = internal::error_of([&] { impl_->wait(); });
  if (!error.empty()) internal::log_line(internal::LogLevel::kError, error);
}

void MultiNodeCheckpointer::add(const std::string& name, ModuleRef model) {
  if (!model) throw InvalidArgument("add('" + name + "'): there is no model");
  impl_->add(internal::parameters_item(name, model));
  impl_->add(internal::buffers_item(name + " buffers", model));
}

void MultiNodeCheckpointer::add(const std::string& name, torch::optim::Optimizer& optimizer) {
  impl_->add(internal::optimizer_item(name, optimizer));
}

void MultiNodeCheckpointer::add(const std::string& name, MultiNodeOptimizer& optimizer) {
  CheckpointItem item = internal::multi_node_optimizer_item(name, optimizer);
  if (item.save_parts && impl_->place.set_count > 1 && !impl_->own_set_of(item)) {
    throw InvalidArgument(
        "add('" + name +
        "'): its ranks have its state in parts, are of several replica sets, and each set is saved "
        "as a whole: make one optimizer per set, over communicator->split(set, rank), or the "
        "checkpointer without sets");
  }
  impl_->add(std::move(item));
  impl_->add(internal::wire_residuals_item(name, optimizer));
}

void MultiNodeCheckpointer::add(const std::string& name, const at::Generator& generator) {
  if (!generator.defined()) throw InvalidArgument("add('" + name + "'): there is no generator");
  impl_->add(internal::generator_item(name, generator));
}

void MultiNodeCheckpointer::add(const std::string& name, std::int64_t* value) {
  impl_->add(value_item(name, value));
}

void MultiNodeCheckpointer::add(const std::string& name, double* value) {
  impl_->add(value_item(name, value));
}

void MultiNodeCheckpointer::add(const std::string& name, std::string* value) {
  impl_->add(value_item(name, value));
}

CheckpointItem internal::callbacks_item(const std::string& name, CheckpointCallbacks callbacks) {
  return {.name = name,
          .scope = ItemScope::kReplicated,
          .save = std::move(callbacks.save),
          .load = [load = std::move(callbacks.load)](const SavedStates& saved) {
            load(saved.ranks.front());
          }};
}

void MultiNodeCheckpointer::add(const std::string& name, CheckpointCallbacks callbacks) {
  impl_->add(internal::callbacks_item(name, std::move(callbacks)));
}

void MultiNodeCheckpointer::add(const std::string& name, PerRankCallbacks callbacks) {
  impl_->add({.name = name,
              .scope = ItemScope::kPerRank,
              .save = std::move(callbacks.save),
              .load = [load = std::move(callbacks.load)](const SavedStates& saved) {
                load(saved.ranks);
              }});
}

void MultiNodeCheckpointer::save(std::int64_t iteration) {
  impl_->wait();
  impl_->prepare_items();
  impl_->capture(iteration);
  impl_->start();
}

void MultiNodeCheckpointer::wait() { impl_->wait(); }

std::optional<std::int64_t> MultiNodeCheckpointer::maybe_load() {
  impl_->wait();
  Communicator& communicator = *impl_->communicator;
  const auto restored = internal::find_newest_generation(communicator, impl_->place);
  internal::agree_on_success(communicator, "checkpoints cannot be listed", internal::error_of([&] {
                               if (impl_->place.watch) impl_->place.watch->know_all();
                             }));
  if (!restored) return std::nullopt;
  impl_->prepare_items();
  const std::string what = "cannot resume from " + impl_->place.run_folder + '/' +
                           internal::generation_name(restored->manifest.iteration);
  std::set<std::string> items_of_sets;
  internal::agree_on_success(communicator, what, internal::error_of([&] {
                               for (const CheckpointItem& item : impl_->items) {
                                 name_errors(item, [&] {
                                   const bool is_of_set = impl_->own_set_of(item).has_value();
                                   const SavedStates saved =
                                       states_of(item, *restored, communicator.rank(),
                                                 is_of_set ? &impl_->set_of_rank : nullptr);
                                   if (is_of_set || std::ranges::any_of(saved.ranks, says_set)) {
                                     items_of_sets.insert(item.name);
                                   }
                                   item.load(saved);
                                 });
                               }
                             }));
  impl_->finish_items(what);
  impl_->load_parts(restored->parts, items_of_sets, what);
  return restored->manifest.iteration;
}

}  // namespace chainmail
