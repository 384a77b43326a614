// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/checkpoint/protocol/restore.h"

#include <chainmail/checkpoint_error.h>

#include <algorithm>
#include <map>
#include <sstream>
#include <utility>

#include "base/log.h"
#include "plugin/checkpoint/store/generations.h"

namespace chainmail::internal {

namespace {

struct Candidate {
  std::int64_t iteration = 0;
  std::uint64_t id = 0;
  bool operator==(const Candidate&) const = default;
};

// What the folders of all ranks hold, newest first.
struct Inventory {
  std::vector<Candidate> candidates;
  std::string problems;  ///< of those without a manifest
};

// One line per generation: "+ iteration id" or "- problem". The leader of each folder speaks.
Inventory take_inventory(Communicator& communicator, const SavePlace& place,
                         const std::vector<Generation>& own) {
  std::string lines;
  for (const Generation& generation : own) {
    lines += generation.manifest ? "+ " + std::to_string(generation.iteration) + ' ' +
                                       std::to_string(generation.manifest->id) + '\n'
                                 : "- " + generation.problem + '\n';
  }
  Inventory inventory;
  for (const std::string& text :
       communicator.allgather_obj(place.members.is_leader() ? lines : "")) {
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) {
      Candidate candidate;
      std::istringstream words(line.substr(1));
      if (line.front() == '-') {
        inventory.problems += (inventory.problems.empty() ? "" : "; ") + line.substr(2);
      } else if (words >> candidate.iteration >> candidate.id &&
                 std::find(inventory.candidates.begin(), inventory.candidates.end(), candidate) ==
                     inventory.candidates.end()) {
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
  std::string manifest;                      ///< empty: its folder has none
  std::map<std::string, std::string> files;  ///< checked contents
  std::string problems;
};

// The members of a folder share the reading.
Holding read_share(const SavePlace& place, const std::vector<Generation>& own,
                   const Candidate& candidate) {
  Holding holding;
  const auto found = std::find_if(own.begin(), own.end(), [&](const Generation& generation) {
    return generation.manifest && generation.iteration == candidate.iteration &&
           generation.manifest->id == candidate.id;
  });
  if (found == own.end()) return holding;
  holding.manifest = print_manifest(*found->manifest);
  for (std::size_t f = 0; f < found->manifest->files.size(); ++f) {
    const ManifestFile& file = found->manifest->files[f];
    if (!file.is_here || f % place.members.ranks.size() != place.members.position()) continue;
    try {
      holding.files[file.name] = read_generation_file(*found, file);
    } catch (const std::exception& error) {
      holding.problems += (holding.problems.empty() ? "" : "; ") + std::string(error.what());
    }
  }
  return holding;
}

// Who has which file of a generation, and what is wrong with it.
struct Survey {
  Manifest manifest;
  std::map<std::string, int> holders;
  std::string problems;
};

// Three texts per rank: the names of its files, problems, the manifest.
Survey survey(Communicator& communicator, const Holding& holding) {
  std::string names;
  for (const auto& [name, bytes] : holding.files) names += name + '\n';
  const std::vector<std::string> all_names = communicator.allgather_obj(names);
  const std::vector<std::string> all_problems = communicator.allgather_obj(holding.problems);
  const std::vector<std::string> all_manifests = communicator.allgather_obj(holding.manifest);
  Survey result;
  for (std::size_t rank = 0; rank < all_names.size(); ++rank) {
    std::istringstream stream(all_names[rank]);
    for (std::string name; std::getline(stream, name);) {
      result.holders.emplace(name, static_cast<int>(rank));
    }
    if (!all_problems[rank].empty()) {
      result.problems += (result.problems.empty() ? "" : "; ") + all_problems[rank];
    }
    if (result.manifest.files.empty() && !all_manifests[rank].empty()) {
      result.manifest = parse_manifest(all_manifests[rank], "manifest of a rank");
    }
  }
  for (const ManifestFile& file : result.manifest.files) {
    if (result.holders.count(file.name) == 0 && result.problems.empty()) {
      result.problems = "nobody has " + file.name;
    }
  }
  return result;
}

bool is_complete(const Survey& survey) {
  return std::all_of(
      survey.manifest.files.begin(), survey.manifest.files.end(),
      [&](const ManifestFile& file) { return survey.holders.count(file.name) != 0; });
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
    const Survey found = survey(communicator, holding);
    if (is_complete(found)) {
      if (!inventory.problems.empty() && communicator.rank() == 0) {
        LogMessage(LogLevel::kWarning) << "checkpoints left out: " << inventory.problems;
      }
      return share(communicator, place, found, std::move(holding));
    }
    inventory.problems += (inventory.problems.empty() ? "" : "; ") + found.problems;
  }
  if (inventory.problems.empty()) return std::nullopt;
  throw CheckpointError("no checkpoint in " + place.run_folder + " is whole: " +
                        inventory.problems + "; remove them to start from the beginning");
}

}  // namespace chainmail::internal
