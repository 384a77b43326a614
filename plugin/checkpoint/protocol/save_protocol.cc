// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/checkpoint/protocol/save_protocol.h"

#include <chainmail/checkpoint_error.h>

#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

#include "plugin/checkpoint/protocol/part_agreement.h"
#include "plugin/checkpoint/store/generations.h"
#include "plugin/train/communicator/fields.h"

namespace chainmail::internal {

namespace {

// What a rank sends to the others about its part.
struct Contribution {
  int folder = 0;  ///< first rank that sees it
  int set = 0;
  EntryDigest set_digest;
  std::vector<ManifestFile> files;  ///< but that of parts
  OwnParts parts;

  static constexpr char kObjectName[] = "part of a checkpoint";
  static auto fields(auto& self) {
    return std::tie(self.folder, self.set, self.set_digest, self.files, self.parts);
  }
};

// Name and digest of each.
using Entries = std::vector<std::tuple<std::string, EntryDigest>>;

ManifestFile write_image(const SavePlace& place, const SaveJob& job, const std::string& name,
                         FileImage& image) {
  return write_generation_file(*place.files, place.run_folder, job.iteration, name, image);
}

// "model/l1.weight", which `other` has not as `first` has it.
std::string first_difference(const Entries& first, const Entries& other) {
  const auto [a, b] = std::ranges::mismatch(first, other);
  return a == first.end() || b == other.end() ? "their number" : std::get<std::string>(*a);
}

// All ranks of a set must have the same: what only one of them writes has to stand for all.
void expect_equal_sets(Communicator& communicator, const SavePlace& place, const SaveJob& job,
                       const std::vector<Contribution>& ranks, const std::string& what) {
  std::vector<int> leader_of(ranks.size());
  bool are_equal = true;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    std::size_t leader = 0;
    while (ranks[leader].set != ranks[rank].set) ++leader;
    leader_of[rank] = static_cast<int>(leader);
    are_equal = are_equal && ranks[leader].set_digest == ranks[rank].set_digest;
  }
  if (are_equal) return;
  const FileIndex& index =
      place.set_leader == communicator.rank() ? job.set_image.index() : job.set_index;
  Entries own;
  for (const FileEntry& entry : index.entries) own.emplace_back(entry.name, entry.digest);
  const std::vector<Entries> all = communicator.allgather_obj(own);
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const auto leader = static_cast<std::size_t>(leader_of[rank]);
    if (all[rank] != all[leader]) {
      throw CheckpointError(what + ": ranks " + std::to_string(leader) + " and " +
                            std::to_string(rank) + " should have the same and differ in '" +
                            first_difference(all[leader], all[rank]) +
                            "'; was the model changed on one rank only?");
    }
  }
  throw CheckpointError(what + ": ranks have different shapes");
}

// This rank's files, written and flushed.
Contribution write_own_files(const SavePlace& place, SaveJob& job, int rank) {
  Contribution own;
  own.folder = place.members.ranks.front();
  own.set = place.set;
  if (place.set_leader == rank) {
    own.files.push_back(write_image(place, job, set_file_name(place.set), job.set_image));
    own.set_digest = file_digest(job.set_image.index());
  } else {
    own.set_digest = file_digest(job.set_index);
  }
  if (job.has_rank_image) {
    own.files.push_back(write_image(place, job, rank_file_name(rank), job.rank_image));
  }
  own.parts = own_parts(place, job);
  if (job.has_part_image) {
    own.parts.file = write_image(place, job, part_file_name(place.set, rank), job.part_image);
    own.parts.head = encoded_head(job.part_image.index());
  }
  return own;
}

Manifest make_manifest(const SavePlace& place, const SaveJob& job,
                       const std::vector<Contribution>& ranks, const std::vector<OwnParts>& parts,
                       std::vector<ManifestTensor> tensors) {
  Manifest manifest{.iteration = job.iteration,
                    .id = job.id,
                    .world_size = static_cast<int>(ranks.size()),
                    .set_count = place.set_count};
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    std::vector<ManifestFile> files = ranks[rank].files;
    if (!parts[rank].file.name.empty()) files.push_back(parts[rank].file);
    for (ManifestFile& file : files) {
      file.is_here = ranks[rank].folder == place.members.rank;
      manifest.files.push_back(std::move(file));
    }
  }
  manifest.tensors = std::move(tensors);
  return manifest;
}

// `has_begun` from when on there may be something of this save.
void write_and_publish(Communicator& communicator, const SavePlace& place, SaveJob& job,
                       const std::string& what, bool& has_begun) {
  const bool is_leader = place.members.is_leader();
  agree_on_success(communicator, what, error_of([&] {
                     if (!is_leader) return;
                     if (place.watch) {
                       place.watch->expect_no_other();
                       place.watch->add_own(job.iteration, job.id);
                     }
                     has_begun = true;
                     prepare_generation(*place.files, place.run_folder, job.iteration);
                   }));
  Contribution own;
  agree_on_success(communicator, what,
                   error_of([&] { own = write_own_files(place, job, communicator.rank()); }));
  std::vector<Contribution> ranks = communicator.allgather_obj(own);
  expect_equal_sets(communicator, place, job, ranks, what);
  std::vector<OwnParts> parts;
  for (Contribution& of_rank : ranks) parts.push_back(std::move(of_rank.parts));
  std::vector<ManifestTensor> tensors = agree_on_parts(communicator, job, parts, what);
  agree_on_success(communicator, what, error_of([&] {
                     if (is_leader) {
                       publish_generation(
                           *place.files, place.run_folder,
                           make_manifest(place, job, ranks, parts, std::move(tensors)));
                     }
                   }));
}

}  // namespace

void write_generation(Communicator& communicator, const SavePlace& place, SaveJob& job) {
  const std::string of = " of iteration " + std::to_string(job.iteration);
  bool has_begun = false;
  try {
    write_and_publish(communicator, place, job,
                      "the checkpoint" + of + " was not written, older ones are untouched",
                      has_begun);
  } catch (const std::exception&) {
    if (has_begun) discard_generation(*place.files, place.run_folder, job.iteration);
    throw;
  }
  agree_on_success(communicator, "the checkpoint" + of + " is whole, but older ones stay",
                   error_of([&] {
                     if (place.members.is_leader()) {
                       prune_generations(*place.files, place.run_folder, job.iteration, place.keep);
                     }
                   }));
}

}  // namespace chainmail::internal
