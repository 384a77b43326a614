// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/checkpoint/protocol/part_agreement.h"

#include <chainmail/checkpoint_error.h>
#include <chainmail/train/agreed_error.h>

#include <algorithm>
#include <map>
#include <optional>
#include <span>
#include <utility>

#include "plugin/checkpoint/protocol/shared_folders.h"
#include "plugin/checkpoint/store/parts.h"

namespace chainmail::internal {

namespace {

constexpr const char* kAdvice =
    "; was the optimizer's state changed on some ranks only? maybe_load() on all ranks brings back "
    "that of the last checkpoint";

PartIndex read_head(const OwnParts& of_rank) {
  const auto head = std::as_bytes(std::span(of_rank.head));
  return {of_rank.file.name, check_index(head, of_rank.file.bytes, of_rank.file.name)};
}

std::vector<ManifestTensor> merge_tensors(const std::vector<OwnParts>& ranks) {
  struct Known {
    ManifestTensor tensor;
    std::size_t rank = 0;
  };
  std::map<std::pair<int, std::string>, Known> merged;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    for (const ManifestTensor& tensor : ranks[rank].tensors) {
      const auto [place, is_new] =
          merged.try_emplace({tensor.set, tensor.name}, Known{tensor, rank});
      const Known& known = place->second;
      if (is_new || known.tensor == tensor) continue;
      throw CheckpointError("'" + tensor.name + "' has " + std::to_string(known.tensor.elements) +
                            " elements on rank " + std::to_string(known.rank) + " and " +
                            std::to_string(tensor.elements) + " on rank " + std::to_string(rank));
    }
  }
  std::vector<ManifestTensor> tensors;
  for (auto& [key, known] : merged) tensors.push_back(std::move(known.tensor));
  return tensors;
}

using EntriesByName = std::map<std::string_view, const FileEntry*>;

EntriesByName entries_of(const FileIndex& index, const std::string& item) {
  EntriesByName entries;
  for (const FileEntry& entry : index.entries) {
    if (entry.name.starts_with(item + '/')) entries.emplace(entry.name, &entry);
  }
  return entries;
}

bool has_same_value(const FileEntry& one, const FileEntry& other) {
  return one.type == other.type && one.shape == other.shape && one.digest == other.digest;
}

// Nobody where the set has not all ranks that share the item.
const OwnParts* find_writer(const PartItem& copy, int set, const std::vector<OwnParts>& ranks) {
  const auto writes = [&](const PartItem& item) {
    return item.name == copy.name && item.slice == copy.slice && !item.is_copy;
  };
  const auto found = std::ranges::find_if(ranks, [&](const OwnParts& rank) {
    return rank.set == set && std::ranges::any_of(rank.items, writes);
  });
  return found == ranks.end() ? nullptr : &*found;
}

// `own` has what this rank has of `copy`.
void check_copy(const PartItem& copy, const FileIndex& own, const OwnParts* writer) {
  const bool has_file = writer != nullptr && !writer->file.name.empty();
  const PartIndex written = has_file ? read_head(*writer) : PartIndex{};
  const EntriesByName here = entries_of(own, copy.name);
  const EntriesByName there = entries_of(written.index, copy.name);
  const auto name_of = [](const auto& entry) { return "'" + std::string(entry.first) + "'"; };
  const std::string counts = " (of '" + copy.name + "' there are " + std::to_string(here.size()) +
                             " entries on this rank and " + std::to_string(there.size()) +
                             " on the rank that writes them)";
  for (const auto& entry : here) {
    const auto found = there.find(entry.first);
    if (found == there.end()) {
      throw CheckpointError("no rank of its replica set writes " + name_of(entry) + counts);
    }
    if (!has_same_value(*entry.second, *found->second)) {
      throw CheckpointError(name_of(entry) + " should be that of " + written.file + " and differs");
    }
  }
  for (const auto& entry : there) {
    if (here.count(entry.first) == 0) {
      throw CheckpointError(name_of(entry) + " should be that of " + written.file +
                            " and is missing" + counts);
    }
  }
}

// Each rank compares its own: all know what the others have written.
void agree_on_copies(Communicator& communicator, const SaveJob& job,
                     const std::vector<OwnParts>& ranks, const std::string& what) {
  const auto is_copy = [](const PartItem& item) { return item.is_copy; };
  const auto has_copies = [&](const OwnParts& rank) {
    return std::ranges::any_of(rank.items, is_copy);
  };
  if (std::ranges::none_of(ranks, has_copies)) return;
  const OwnParts& own = ranks[static_cast<std::size_t>(communicator.rank())];
  std::string problem = error_of([&] {
    for (const PartItem& item : own.items) {
      if (item.is_copy) check_copy(item, job.replica_index, find_writer(item, own.set, ranks));
    }
  });
  if (!problem.empty()) problem += kAdvice;
  agree_on_success(communicator, what, problem);
}

}  // namespace

std::string encoded_head(const FileIndex& index) {
  const std::vector<std::byte> head = encode_index(index);
  return {reinterpret_cast<const char*>(head.data()), head.size()};
}

OwnParts own_parts(const SavePlace& place, const SaveJob& job) {
  OwnParts own;
  own.set = place.set;
  own.tensors = job.tensors;
  own.items = job.part_items;
  return own;
}

std::vector<ManifestTensor> agree_on_parts(Communicator& communicator, const SaveJob& job,
                                           const std::vector<OwnParts>& ranks,
                                           const std::string& what) {
  std::vector<ManifestTensor> tensors;
  // All know the same and find the same.
  try {
    tensors = merge_tensors(ranks);
    std::map<int, std::vector<PartIndex>> parts;
    for (const OwnParts& of_rank : ranks) {
      if (!of_rank.file.name.empty()) parts[of_rank.set].push_back(read_head(of_rank));
    }
    for (const auto& [set, of_set] : parts) check_tiles(tensors, set, of_set);
  } catch (const CheckpointError& error) {
    throw Agreed(CheckpointError(what + ": " + error.what() + kAdvice));
  }
  agree_on_copies(communicator, job, ranks, what);
  return tensors;
}

}  // namespace chainmail::internal
