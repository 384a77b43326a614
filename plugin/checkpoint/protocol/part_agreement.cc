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

#include "plugin/checkpoint/store/parts.h"
#include "plugin/train/communicator/fields.h"

namespace chainmail::internal {

namespace {

using PartsOfSets = std::map<int, std::vector<PartIndex>>;

PartsOfSets read_heads(const std::vector<OwnParts>& ranks) {
  PartsOfSets parts;
  for (const OwnParts& of_rank : ranks) {
    if (of_rank.file.name.empty()) continue;
    const auto head = std::as_bytes(std::span(of_rank.head));
    parts[of_rank.set].push_back(
        {of_rank.file.name, check_index(head, of_rank.file.bytes, of_rank.file.name)});
  }
  return parts;
}

std::vector<ManifestTensor> merge_tensors(const std::vector<OwnParts>& ranks) {
  std::map<std::pair<int, std::string>, ManifestTensor> merged;
  for (const OwnParts& of_rank : ranks) {
    for (const ManifestTensor& tensor : of_rank.tensors) {
      const auto [place, is_new] = merged.try_emplace({tensor.set, tensor.name}, tensor);
      if (!is_new && place->second != tensor) {
        throw CheckpointError("'" + tensor.name + "' has " + std::to_string(tensor.elements) +
                              " elements on one rank and " +
                              std::to_string(place->second.elements) + " on another");
      }
    }
  }
  std::vector<ManifestTensor> tensors;
  for (auto& [key, tensor] : merged) tensors.push_back(std::move(tensor));
  return tensors;
}

// As a rank with copies of a part sends them, where they are not those of one file.
using Copies = std::vector<std::tuple<std::string, EntryDigest>>;

void check_copies(const Copies& copies, int rank, const std::vector<PartIndex>& parts) {
  std::map<std::string, std::pair<EntryDigest, std::string>> written;
  for (const PartIndex& part : parts) {
    for (const FileEntry& entry : part.index.entries) {
      written[entry.name] = {entry.digest, part.file};
    }
  }
  for (const auto& [name, digest] : copies) {
    const auto found = written.find(name);
    if (found == written.end()) {
      throw CheckpointError("rank " + std::to_string(rank) + " has '" + name +
                            "', which no rank has written");
    }
    if (found->second.first != digest) {
      throw CheckpointError("'" + name + "' of rank " + std::to_string(rank) +
                            " should be that of " + found->second.second + " and differs");
    }
  }
}

bool is_copy_of_a_file(const OwnParts& rank, const std::vector<OwnParts>& ranks) {
  return !rank.has_replica || std::ranges::any_of(ranks, [&](const OwnParts& writer) {
    return writer.set == rank.set && !writer.file.name.empty() &&
           writer.file.digest == rank.replica;
  });
}

}  // namespace

OwnParts own_parts(const SavePlace& place, const SaveJob& job, int rank) {
  OwnParts own;
  own.set = place.set;
  own.tensors = job.tensors;
  if (job.has_part_image) {
    const FileIndex& index = job.part_image.index();
    const std::vector<std::byte> head = encode_index(index);
    own.file = {part_file_name(place.set, rank), index.file_bytes, entry_digest(head)};
    own.head.assign(reinterpret_cast<const char*>(head.data()), head.size());
  }
  own.has_replica = !job.replica_index.entries.empty();
  if (own.has_replica) own.replica = file_digest(job.replica_index);
  return own;
}

std::vector<ManifestTensor> agree_on_parts(Communicator& communicator, const SaveJob& job,
                                           const std::vector<OwnParts>& ranks,
                                           const std::string& what) {
  // All know the same and find the same.
  try {
    PartsOfSets parts = read_heads(ranks);
    std::vector<ManifestTensor> tensors = merge_tensors(ranks);
    for (const auto& [set, of_set] : parts) check_tiles(tensors, set, of_set);
    if (!std::ranges::all_of(
            ranks, [&](const OwnParts& rank) { return is_copy_of_a_file(rank, ranks); })) {
      Copies own;
      for (const FileEntry& entry : job.replica_index.entries) {
        own.emplace_back(entry.name, entry.digest);
      }
      const std::vector<Copies> all = communicator.allgather_obj(own);
      for (std::size_t rank = 0; rank < all.size(); ++rank) {
        check_copies(all[rank], static_cast<int>(rank), parts[ranks[rank].set]);
      }
    }
    return tensors;
  } catch (const CheckpointError& error) {
    throw Agreed(CheckpointError(what + ": " + error.what()));
  }
}

}  // namespace chainmail::internal
