// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/checkpoint/store/generations.h"

#include <chainmail/checkpoint_error.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "base/error.h"

namespace chainmail::internal {

namespace {

constexpr std::string_view kPrefix = "gen-";
constexpr std::string_view kTemporary = ".tmp";
constexpr std::string_view kReplaced = ".old";
constexpr std::size_t kDigits = 12;
constexpr std::chrono::hours kWillTime{1};
constexpr std::uint64_t kMaxManifestBytes = std::uint64_t{256} << 20;

struct FolderName {
  std::int64_t iteration = 0;
  std::string_view ending;
};

std::optional<FolderName> parse_name(std::string_view name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  FolderName parsed;
  const auto [end, error] =
      std::from_chars(name.data(), name.data() + name.size(), parsed.iteration);
  const auto digits = static_cast<std::size_t>(end - name.data());
  parsed.ending = name.substr(digits);
  const bool is_ending_known =
      parsed.ending.empty() || parsed.ending == kTemporary || parsed.ending == kReplaced;
  return error == std::errc{} && digits >= kDigits && parsed.iteration >= 0 && is_ending_known
             ? std::optional(parsed)
             : std::nullopt;
}

// Names of what is in a folder; none when there is no folder.
std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  std::filesystem::directory_iterator entry(folder, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    names.push_back(entry->path().filename().string());
  }
  if (error && error != std::errc::no_such_file_or_directory) {
    throw CheckpointError(folder + ": cannot be listed: " + error.message());
  }
  return names;
}

std::string path_of(const std::string& run_folder, std::int64_t iteration,
                    std::string_view ending = "") {
  return run_folder + '/' + generation_name(iteration) + std::string(ending);
}

void remove_folder(FileSystem& files, const std::string& folder) {
  for (const std::string& name : names_in(folder)) files.remove(folder + '/' + name);
  files.remove(folder);
}

// Its process may have been killed, or the disk have been full; or it is somebody else's who
// writes.
void remove_old_will(const std::string& folder) {
  std::error_code error;
  const auto written = std::filesystem::last_write_time(folder, error);
  if (error || std::filesystem::file_time_type::clock::now() - written < kWillTime) return;
  std::filesystem::remove_all(folder, error);
}

// Cheap: that the files are there, as long as they should be.
bool has_all_files(const Generation& generation) {
  return generation.manifest &&
         std::all_of(generation.manifest->files.begin(), generation.manifest->files.end(),
                     [&](const ManifestFile& file) {
                       std::error_code error;
                       const auto size =
                           std::filesystem::file_size(generation.folder + '/' + file.name, error);
                       return !file.is_here || (!error && size == file.bytes);
                     });
}

}  // namespace

std::string generation_name(std::int64_t iteration) {
  std::string digits = std::to_string(iteration);
  digits.insert(0, kDigits - std::min(kDigits, digits.size()), '0');
  return std::string(kPrefix) + digits;
}

std::string unfinished_name(std::int64_t iteration) {
  return generation_name(iteration) + std::string(kTemporary);
}

std::vector<std::string> unfinished_generations(const std::string& run_folder) {
  std::vector<std::string> names = names_in(run_folder);
  std::erase_if(names, [](const std::string& name) {
    const auto parsed = parse_name(name);
    return !parsed || parsed->ending != kTemporary;
  });
  return names;
}

std::vector<Generation> list_generations(const std::string& run_folder) {
  std::vector<Generation> generations;
  for (const std::string& name : names_in(run_folder)) {
    const auto parsed = parse_name(name);
    if (!parsed || parsed->ending == kTemporary) continue;
    Generation generation;
    generation.folder = run_folder + '/' + name;
    generation.iteration = parsed->iteration;
    const std::string path = generation.folder + '/' + kManifestName;
    try {
      generation.manifest = parse_manifest(read_small_file(path, kMaxManifestBytes), path);
      if (generation.manifest->iteration != parsed->iteration) {
        generation.problem = path + ": manifest: is that of iteration " +
                             std::to_string(generation.manifest->iteration);
        generation.manifest.reset();
      }
    } catch (const CheckpointError& error) {
      generation.problem = error.what();
    }
    generations.push_back(std::move(generation));
  }
  // A replaced one after the one that replaces it.
  std::sort(generations.begin(), generations.end(), [](const Generation& a, const Generation& b) {
    return a.iteration != b.iteration ? a.iteration > b.iteration : a.folder < b.folder;
  });
  return generations;
}

void prepare_generation(FileSystem& files, const std::string& run_folder, std::int64_t iteration) {
  make_folders(files, run_folder);
  for (const std::string& name : names_in(run_folder)) {
    const auto parsed = parse_name(name);
    if (parsed && parsed->ending == kTemporary) remove_folder(files, run_folder + '/' + name);
    if (name.starts_with(kWillPrefix)) remove_old_will(run_folder + '/' + name);
  }
  files.make_folder(path_of(run_folder, iteration, kTemporary));
}

ManifestFile write_generation_file(FileSystem& files, const std::string& run_folder,
                                   std::int64_t iteration, const std::string& name,
                                   FileImage& image) {
  const std::string path = path_of(run_folder, iteration, kTemporary) + '/' + name;
  UniqueFd file = files.create(path);
  image.seal([&](std::uint64_t offset, std::span<const std::byte> bytes) {
    files.write(file, offset, bytes, path);
  });
  files.sync(file, path);
  files.close(std::move(file), path);
  return {name, image.bytes().size(), file_digest(image.index()), true};
}

void publish_generation(FileSystem& files, const std::string& run_folder,
                        const Manifest& manifest) {
  const std::string text = print_manifest(manifest);
  const std::string temporary = path_of(run_folder, manifest.iteration, kTemporary);
  const std::string path = temporary + '/' + kManifestName;
  UniqueFd file = files.create(path);
  files.write(file, 0, std::as_bytes(std::span(text)), path);
  files.sync(file, path);
  files.close(std::move(file), path);
  const std::string final_name = path_of(run_folder, manifest.iteration);
  const std::string replaced = path_of(run_folder, manifest.iteration, kReplaced);
  files.sync_folder(temporary);
  std::error_code error;
  const bool replaces = std::filesystem::exists(final_name, error);
  if (replaces) {
    // A folder cannot be renamed onto another. The old one keeps its contents until the new one has
    // its name; readers know both.
    remove_folder(files, replaced);
    files.rename(final_name, replaced);
  }
  files.rename(temporary, final_name);
  files.sync_folder(run_folder);
  if (std::filesystem::exists(replaced, error)) remove_folder(files, replaced);
}

void discard_generation(FileSystem& files, const std::string& run_folder,
                        std::int64_t iteration) noexcept {
  try {
    remove_folder(files, path_of(run_folder, iteration, kTemporary));
  } catch (const std::exception&) {
    // The next save removes it; what made this one fail is being reported.
  }
}

void prune_generations(FileSystem& files, const std::string& run_folder, std::int64_t newest,
                       int keep) {
  int kept = 1;
  std::int64_t last_kept = newest;
  for (const Generation& generation : list_generations(run_folder)) {
    if (generation.iteration >= newest) continue;
    if (kept < keep && generation.iteration != last_kept) {
      // A damaged one stays until there are enough others: somebody may want to look at it.
      if (has_all_files(generation)) {
        ++kept;
        last_kept = generation.iteration;
      }
      continue;
    }
    // Under a name that no reader takes for a generation, before the first file goes.
    const std::string doomed = path_of(run_folder, generation.iteration, kTemporary);
    files.rename(generation.folder, doomed);
    remove_folder(files, doomed);
  }
}

std::string read_generation_file(const Generation& generation, const ManifestFile& file) {
  const std::string path = generation.folder + '/' + file.name;
  std::string bytes = read_whole_file(path, file.bytes);
  const FileIndex index = check_file(std::as_bytes(std::span(bytes)), path);
  if (file_digest(index) != file.digest) {
    throw CheckpointError(path + ": is not the file that the manifest names");
  }
  return bytes;
}

}  // namespace chainmail::internal
