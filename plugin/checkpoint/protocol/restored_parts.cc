// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/checkpoint/protocol/restored_parts.h"

#include <chainmail/checkpoint_error.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <unordered_map>
#include <utility>

#include "plugin/checkpoint/protocol/part_agreement.h"
#include "plugin/train/communicator/fields.h"

namespace chainmail::internal {

namespace {

// A file that has become unreadable gives an error for each entry.
void keep_first(std::string& problem, const std::string& other) {
  if (problem.empty()) problem = other;
}

// Which ranks' folders have which files: all who see such a folder have verified their shares.
std::unordered_map<std::string, std::vector<int>> find_holders(
    const std::vector<PartsReport>& reports) {
  std::unordered_map<int, std::vector<int>> ranks_of;  // by folder
  std::unordered_map<std::string, std::unordered_map<int, std::size_t>> verified;
  for (std::size_t rank = 0; rank < reports.size(); ++rank) {
    ranks_of[reports[rank].folder].push_back(static_cast<int>(rank));
    for (const std::string& file : reports[rank].files) ++verified[file][reports[rank].folder];
  }
  std::unordered_map<std::string, std::vector<int>> holders;
  for (const auto& [file, folders] : verified) {
    std::vector<int>& of_file = holders[file];
    for (const auto& [folder, count] : folders) {
      const std::vector<int>& ranks = ranks_of.at(folder);
      if (count == ranks.size()) of_file.insert(of_file.end(), ranks.begin(), ranks.end());
    }
    std::ranges::sort(of_file);
  }
  return holders;
}

// Copies what `wish` wants of an entry's data.
void give(const FileEntry& entry, const TensorRange& has, std::span<const std::byte> data,
          const PartWish& wish) {
  if (entry.shape.empty()) {
    std::memcpy(wish.into.data(), data.data(), std::min(data.size(), wish.into.size()));
    return;
  }
  const std::uint64_t begin = std::max(has.begin, wish.range.begin);
  const std::uint64_t end = std::min(has.end, wish.range.end);
  const std::size_t size = element_bytes(entry.type);
  const auto from = data.subspan(static_cast<std::size_t>(begin - has.begin) * size,
                                 static_cast<std::size_t>(end - begin) * size);
  const auto to =
      wish.into.subspan(static_cast<std::size_t>(begin - wish.range.begin) * size, from.size());
  std::memcpy(to.data(), from.data(), from.size());
}

// By tensor.
using WishesOf = std::multimap<std::string, const PartWish*>;

std::vector<const PartWish*> wishes_for(const WishesOf& wishes, int set, const TensorRange& range) {
  std::vector<const PartWish*> found;
  const auto [first, last] = wishes.equal_range(range.tensor);
  for (auto wish = first; wish != last; ++wish) {
    const TensorRange& wanted = wish->second->range;
    if (wish->second->set != set) continue;
    if (wanted.begin < range.end && range.begin < wanted.end) found.push_back(wish->second);
  }
  return found;
}

}  // namespace

void RestoredParts::verify_share(const SavePlace& place, const Generation& generation,
                                 std::string& problems) {
  generation_ = generation;
  std::size_t entry = 0;  // of all files
  for (const ManifestFile& file : generation.manifest.value().files) {
    if (!file.is_here || !set_of_part_file(file.name)) continue;
    try {
      PartReader reader(generation, file);
      for (std::size_t e = 0; e < reader.index().entries.size(); ++e) {
        if (entry++ % place.members.ranks.size() == place.members.position()) (void)reader.read(e);
      }
      here_[file.name] = reader.index();
      report_.files.push_back(file.name);
    } catch (const std::exception& error) {
      add_problem(problems, error.what());
    }
  }
}

std::string RestoredParts::complete(Communicator& communicator, const Manifest& manifest,
                                    const std::vector<PartsReport>& reports) {
  tensors_ = manifest.tensors;
  auto holders = find_holders(reports);
  std::map<int, std::vector<PartIndex>> parts;
  std::string problem;
  for (const ManifestFile& file : manifest.files) {
    const std::optional<int> set = set_of_part_file(file.name);
    if (!set) continue;
    File part;
    part.file = file;
    part.set = *set;
    part.holders = std::move(holders[file.name]);
    if (part.holders.empty()) return "nobody has " + file.name + " whole";
    part.is_everywhere = part.holders.size() == reports.size();
    const auto here = here_.find(file.name);
    if (here != here_.end()) part.index = here->second;
    if (!part.is_everywhere) {
      // What travels is checked by whoever it reaches, before it is used.
      const bool sends = communicator.rank() == part.holders.front();
      const std::string head = communicator.bcast_obj(
          sends ? encoded_head(part.index) : std::string(), part.holders.front());
      add_problem(problem, error_of([&] {
                    part.index = check_index(std::as_bytes(std::span(head)), file.bytes, file.name);
                  }));
    }
    parts[*set].push_back({file.name, part.index});
    files_.push_back(std::move(part));
  }
  for (int set = 0; problem.empty() && set < manifest.set_count; ++set) {
    problem = error_of([&] { check_tiles(tensors_, set, parts[set]); });
  }
  if (files_.empty()) return problem;
  for (const std::string& of_rank : communicator.allgather_obj(problem)) {
    if (!of_rank.empty()) return generation_name(manifest.iteration) + ": " + of_rank;
  }
  return "";
}

std::map<std::string, PartTensor> RestoredParts::tensors(std::optional<int> set) const {
  std::map<std::string, PartTensor> found;
  for (const ManifestTensor& tensor : tensors_) {
    if (set && tensor.set != *set) continue;
    found.try_emplace(tensor.name, PartTensor{.elements = tensor.elements, .set = tensor.set});
  }
  for (const File& file : files_) {
    if (set && file.set != *set) continue;
    for (const FileEntry& entry : file.index.entries) {
      PartTensor& tensor = found.at(parse_range(entry.name).value().tensor);
      if (tensor.set != file.set) continue;
      tensor.type = entry.type;
      tensor.is_shared = entry.shape.empty();
    }
  }
  return found;
}

// The data of an entry, read here or received; empty, with a problem, where that fails.
std::span<const std::byte> RestoredParts::fetch(Communicator& communicator, const File& file,
                                                std::size_t entry, Source& source,
                                                std::string& problem) const {
  const int holder = file.holders[entry % file.holders.size()];
  std::span<const std::byte> data;
  if (file.is_everywhere || communicator.rank() == holder) {
    keep_first(problem, error_of([&] {
                 if (!source.reader) source.reader.emplace(generation_, file.file);
                 data = source.reader->read(entry);
               }));
  }
  if (file.is_everywhere) return data;
  source.received.assign(reinterpret_cast<const char*>(data.data()), data.size());
  source.received = communicator.bcast_obj(source.received, holder);
  data = std::as_bytes(std::span(source.received));
  const FileEntry& expected = file.index.entries[entry];
  if (data.size() == expected.bytes && entry_digest(data) == expected.digest) return data;
  keep_first(problem, file.file.name + ": '" + expected.name + "' did not arrive whole");
  return {};
}

void RestoredParts::read(Communicator& communicator, std::span<const PartWish> wishes,
                         const std::string& what) const {
  WishesOf wishes_of;
  for (const PartWish& wish : wishes) wishes_of.emplace(wish.range.tensor, &wish);
  std::string problem;
  for (const File& file : files_) {
    Source source;
    for (std::size_t e = 0; e < file.index.entries.size(); ++e) {
      const FileEntry& entry = file.index.entries[e];
      const TensorRange range = parse_range(entry.name).value();
      const std::vector<const PartWish*> takers = wishes_for(wishes_of, file.set, range);
      if (file.is_everywhere && takers.empty()) continue;
      const std::span<const std::byte> data = fetch(communicator, file, e, source, problem);
      if (data.empty()) continue;
      for (const PartWish* const wish : takers) give(entry, range, data, *wish);
    }
  }
  agree_on_success(communicator, what + ": parts became unreadable", problem);
}

}  // namespace chainmail::internal
