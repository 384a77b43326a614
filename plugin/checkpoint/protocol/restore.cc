// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/checkpoint/protocol/restore.h"

#include <chainmail/checkpoint_error.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "base/log.h"
#include "plugin/checkpoint/store/generations.h"
#include "plugin/train/communicator/fields.h"

namespace chainmail::internal {

namespace {

struct Candidate {
  std::int64_t iteration = 0;
  std::uint64_t id = 0;
  bool operator==(const Candidate&) const = default;
};

// What the folders of all ranks, or of one, hold.
struct Inventory {
  std::vector<Candidate> candidates;
  std::string problems;  ///< of those without a manifest

  static constexpr char kObjectName[] = "inventory of checkpoints";
  static auto fields(auto& self) { return std::tie(self.candidates, self.problems); }
};

// Newest first. The leader of each folder speaks.
Inventory take_inventory(Communicator& communicator, const SavePlace& place,
                         const std::vector<Generation>& own) {
  Inventory mine;
  for (const Generation& generation : own) {
    if (!place.members.is_leader()) break;
    if (generation.manifest) {
      mine.candidates.push_back({generation.iteration, generation.manifest->id});
    } else {
      add_problem(mine.problems, generation.problem);
    }
  }
  Inventory inventory;
  for (const Inventory& of_rank : communicator.allgather_obj(mine)) {
    add_problem(inventory.problems, of_rank.problems);
    for (const Candidate& candidate : of_rank.candidates) {
      if (std::ranges::count(inventory.candidates, candidate) == 0) {
        inventory.candidates.push_back(candidate);
      }
    }
  }
  std::stable_sort(
      inventory.candidates.begin(), inventory.candidates.end(),
      [](const Candidate& a, const Candidate& b) { return a.iteration > b.iteration; });
  return inventory;
}

// What one rank has read of a generation.
struct Holding {
  std::optional<Manifest> manifest;          ///< its folder's
  std::map<std::string, std::string> files;  ///< checked contents
  RestoredParts parts;
  std::string problems;
};

// The members of a folder share the reading.
Holding read_share(const SavePlace& place, const std::vector<Generation>& own,
                   const Candidate& candidate) {
  Holding holding;
  holding.parts = RestoredParts(place.members.ranks.front());
  const auto found = std::find_if(own.begin(), own.end(), [&](const Generation& generation) {
    return generation.manifest && generation.iteration == candidate.iteration &&
           generation.manifest->id == candidate.id;
  });
  if (found == own.end()) return holding;
  holding.manifest = found->manifest;
  for (std::size_t f = 0; f < found->manifest->files.size(); ++f) {
    const ManifestFile& file = found->manifest->files[f];
    if (set_of_part_file(file.name)) continue;
    if (!file.is_here || f % place.members.ranks.size() != place.members.position()) continue;
    try {
      holding.files[file.name] = read_generation_file(*found, file);
    } catch (const std::exception& error) {
      add_problem(holding.problems, error.what());
    }
  }
  holding.parts.verify_share(place, *found, holding.problems);
  return holding;
}

// Who has which file of a generation, and what is wrong with it.
struct Survey {
  Manifest manifest;
  std::map<std::string, int> holders;
  std::vector<PartsReport> parts;  ///< of all ranks
  bool is_complete = true;         ///< somebody has each file
  std::string problems;
};

Survey survey(Communicator& communicator, const Holding& holding) {
  std::vector<std::string> own_names;
  for (const auto& [name, bytes] : holding.files) own_names.push_back(name);
  const auto all = communicator.allgather_obj(
      std::tuple(own_names, holding.problems, holding.manifest, holding.parts.report()));
  Survey result;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const auto& [names, problems, manifest, parts] = all[rank];
    for (const std::string& name : names) result.holders.emplace(name, static_cast<int>(rank));
    // Whoever sees a folder opens its files of parts and finds the same.
    if (result.problems.find(problems) == std::string::npos) add_problem(result.problems, problems);
    result.parts.push_back(parts);
    if (result.manifest.files.empty() && manifest) result.manifest = *manifest;
  }
  for (const ManifestFile& file : result.manifest.files) {
    if (result.holders.count(file.name) != 0 || set_of_part_file(file.name)) continue;
    result.is_complete = false;
    if (result.problems.empty()) result.problems = "nobody has " + file.name;
  }
  return result;
}

RestoredGeneration::File checked(const std::string& name, std::string bytes) {
  RestoredGeneration::File file{.name = name, .bytes = std::move(bytes), .index = {}};
  file.index = check_file(std::as_bytes(std::span(file.bytes)), name);
  return file;
}

// Sends every file from a rank that has read it to the ranks that need it.
RestoredGeneration share(Communicator& communicator, const SavePlace& place, const Survey& survey,
                         Holding holding) {
  RestoredGeneration restored;
  restored.manifest = survey.manifest;
  restored.parts = std::move(holding.parts);
  if (survey.manifest.set_count != place.set_count) {
    throw CheckpointError("the checkpoint has " + std::to_string(survey.manifest.set_count) +
                          " replica sets, the program " + std::to_string(place.set_count));
  }
  std::map<std::string, int> old_ranks;
  for (int rank = 0; rank < survey.manifest.world_size; ++rank) {
    old_ranks[rank_file_name(rank)] = rank;
  }
  restored.rank_files.resize(static_cast<std::size_t>(survey.manifest.world_size));
  std::string error;
  const auto take = [&](const std::string& name, std::string bytes) {
    RestoredGeneration::File file;
    error += error_of([&] { file = checked(name, std::move(bytes)); });
    return file;
  };
  for (const ManifestFile& file : survey.manifest.files) {
    if (set_of_part_file(file.name)) continue;
    std::string bytes =
        communicator.bcast_obj(holding.files[file.name], survey.holders.at(file.name));
    holding.files.erase(file.name);
    const auto old_rank = old_ranks.find(file.name);
    if (old_rank != old_ranks.end()) {
      restored.rank_files[static_cast<std::size_t>(old_rank->second)] =
          take(file.name, std::move(bytes));
    } else if (file.name == set_file_name(place.set)) {
      restored.set_file = take(file.name, std::move(bytes));
    }
  }
  agree_on_success(communicator, "the checkpoint was damaged on its way", error);
  return restored;
}

}  // namespace

std::optional<RestoredGeneration> find_newest_generation(Communicator& communicator,
                                                         const SavePlace& place) {
  std::vector<Generation> own;
  agree_on_success(communicator, "no checkpoint can be looked for",
                   error_of([&] { own = list_generations(place.run_folder); }));
  Inventory inventory = take_inventory(communicator, place, own);
  for (const Candidate& candidate : inventory.candidates) {
    Holding holding = read_share(place, own, candidate);
    Survey found = survey(communicator, holding);
    if (found.is_complete) {
      const std::string problem = holding.parts.complete(communicator, found.manifest, found.parts);
      found.is_complete = problem.empty();
      if (found.problems.empty()) found.problems = problem;
    }
    if (found.is_complete) {
      if (!inventory.problems.empty() && communicator.rank() == 0) {
        LogMessage(LogLevel::kWarning) << "checkpoints left out: " << inventory.problems;
      }
      return share(communicator, place, found, std::move(holding));
    }
    add_problem(inventory.problems, found.problems);
  }
  if (inventory.problems.empty()) return std::nullopt;
  throw CheckpointError("no checkpoint in " + place.run_folder + " is whole: " +
                        inventory.problems + "; remove them to start from the beginning");
}

}  // namespace chainmail::internal
