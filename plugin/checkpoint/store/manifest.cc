// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/checkpoint/store/manifest.h"

#include <chainmail/checkpoint_error.h>

#include <algorithm>
#include <set>

#include "base/bytes.h"

namespace chainmail::internal {

namespace {

constexpr std::string_view kFirstWord = "chainmail-checkpoint ";
constexpr int kVersion = 1;
constexpr int kVersionWithParts = 2;
constexpr int kMaxRanks = 1 << 20;

struct PartFile {
  int set = 0;
  int rank = 0;
};

std::optional<PartFile> parse_part_file(std::string_view name) {
  constexpr std::string_view kSet = "set-";
  constexpr std::string_view kPart = ".part-";
  constexpr std::string_view kEnd = ".bin";
  const std::size_t middle = name.find(kPart);
  if (middle == std::string_view::npos || !name.starts_with(kSet) || !name.ends_with(kEnd)) {
    return std::nullopt;
  }
  const auto set = whole_number<int>(name.substr(kSet.size(), middle - kSet.size()));
  name.remove_prefix(middle + kPart.size());
  const auto rank = whole_number<int>(name.substr(0, name.size() - kEnd.size()));
  if (!set || !rank || *set < 0 || *rank < 0) return std::nullopt;
  return PartFile{*set, *rank};
}

[[noreturn]] void fail(const std::string& path, const std::string& problem) {
  throw CheckpointError(path + ": " + problem);
}

// Takes words off the front; every one must be there.
class WordReader {
 public:
  WordReader(std::string_view text, const std::string& path) : rest_(text), path_(path) {}

  std::string_view until(char end) {
    const std::size_t length = rest_.find(end);
    if (length == std::string_view::npos) fail(path_, "manifest: ends too early");
    const std::string_view word = rest_.substr(0, length);
    rest_.remove_prefix(length + 1);
    return word;
  }
  void expect(std::string_view text) {
    if (!rest_.starts_with(text)) fail(path_, "manifest: '" + std::string(text) + "' is missing");
    rest_.remove_prefix(text.size());
  }
  template <typename T>
  T number(std::string_view word, int base = 10) {
    const auto value = whole_number<T>(word, base);
    if (!value) fail(path_, "manifest: '" + std::string(word) + "' is no number");
    return *value;
  }
  bool starts_with(std::string_view text) const { return rest_.starts_with(text); }
  bool is_at_end() const { return rest_.empty(); }

 private:
  std::string_view rest_;
  const std::string& path_;
};

bool has_parts(const Manifest& manifest) {
  return !manifest.tensors.empty() ||
         std::ranges::any_of(manifest.files, [](const ManifestFile& file) {
           return set_of_part_file(file.name).has_value();
         });
}

std::string print_body(const Manifest& manifest) {
  std::string text(kFirstWord);
  text += std::to_string(has_parts(manifest) ? kVersionWithParts : kVersion) + "\niteration " +
          std::to_string(manifest.iteration) + "\nid " + to_hex(manifest.id) + "\nworld " +
          std::to_string(manifest.world_size) + "\nsets " + std::to_string(manifest.set_count) +
          '\n';
  for (const ManifestFile& file : manifest.files) {
    text += std::string("file ") + (file.is_here ? "here " : "elsewhere ") + file.name + ' ' +
            std::to_string(file.bytes) + ' ' + to_hex(file.digest) + '\n';
  }
  for (const ManifestTensor& tensor : manifest.tensors) {
    text += "tensor " + std::to_string(tensor.set) + ' ' + std::to_string(tensor.elements) + ' ' +
            tensor.name + '\n';
  }
  return text;
}

std::string digest_line(const std::string& body) {
  return "digest " + to_hex(entry_digest(std::as_bytes(std::span(body)))) + '\n';
}

ManifestFile parse_file(WordReader& reader) {
  ManifestFile file;
  const std::string_view where = reader.until(' ');
  file.is_here = where == "here";
  file.name = reader.until(' ');
  file.bytes = reader.number<std::uint64_t>(reader.until(' '));
  const std::string_view digest = reader.until('\n');
  const std::size_t half = std::min<std::size_t>(16, digest.size());
  file.digest.high = reader.number<std::uint64_t>(digest.substr(0, half), 16);
  file.digest.low = reader.number<std::uint64_t>(digest.substr(half), 16);
  return file;
}

ManifestTensor parse_tensor(WordReader& reader) {
  ManifestTensor tensor;
  tensor.set = reader.number<int>(reader.until(' '));
  tensor.elements = reader.number<std::uint64_t>(reader.until(' '));
  tensor.name = reader.until('\n');
  return tensor;
}

// A file per set; of each rank at most one of its own and one of parts, in the set that it is of.
void check_files(const Manifest& manifest, const std::string& path) {
  std::set<std::string> allowed;
  for (int rank = 0; rank < manifest.world_size; ++rank) allowed.insert(rank_file_name(rank));
  for (int set = 0; set < manifest.set_count; ++set) allowed.insert(set_file_name(set));
  std::set<int> with_parts;  // ranks
  for (const ManifestFile& file : manifest.files) {
    const std::optional<PartFile> part = parse_part_file(file.name);
    const bool is_expected = part ? part->set < manifest.set_count &&
                                        part->rank < manifest.world_size &&
                                        file.name == part_file_name(part->set, part->rank) &&
                                        with_parts.insert(part->rank).second
                                  : allowed.erase(file.name) != 0;
    if (!is_expected) {
      fail(path, "manifest: file '" + file.name + "' is not expected, or there twice");
    }
  }
  for (int set = 0; set < manifest.set_count; ++set) {
    if (allowed.count(set_file_name(set)) != 0) {
      fail(path, "manifest: " + set_file_name(set) + " is missing");
    }
  }
}

void check_tensors(const Manifest& manifest, const std::string& path) {
  const auto key = [](const ManifestTensor& tensor) { return std::tie(tensor.set, tensor.name); };
  for (std::size_t t = 0; t < manifest.tensors.size(); ++t) {
    const ManifestTensor& tensor = manifest.tensors[t];
    const bool is_in_order = t == 0 || key(manifest.tensors[t - 1]) < key(tensor);
    if (!is_in_order || tensor.set < 0 || tensor.set >= manifest.set_count ||
        tensor.elements == 0) {
      fail(path, "manifest: tensor '" + tensor.name + "' is not expected, or there twice");
    }
  }
}

void check_version(WordReader& reader, const std::string& path) {
  reader.expect(kFirstWord);
  const int version = reader.number<int>(reader.until('\n'));
  if (version != kVersion && version != kVersionWithParts) {
    fail(path, "manifest: format version " + std::to_string(version) + ", this build reads " +
                   std::to_string(kVersion) + " and " + std::to_string(kVersionWithParts));
  }
}

}  // namespace

std::string set_file_name(int set) { return "set-" + std::to_string(set) + ".bin"; }

std::string rank_file_name(int rank) { return "rank-" + std::to_string(rank) + ".bin"; }

std::string part_file_name(int set, int rank) {
  return "set-" + std::to_string(set) + ".part-" + std::to_string(rank) + ".bin";
}

std::optional<int> set_of_part_file(std::string_view name) {
  const std::optional<PartFile> part = parse_part_file(name);
  return part ? std::optional(part->set) : std::nullopt;
}

std::string print_manifest(const Manifest& manifest) {
  const std::string body = print_body(manifest);
  return body + digest_line(body);
}

Manifest parse_manifest(std::string_view text, const std::string& path) {
  // The digest first: damage should be called damage, whatever it looks like.
  const std::size_t last_line = text.rfind("digest ");
  if (last_line == std::string_view::npos ||
      text.substr(last_line) != digest_line(std::string(text.substr(0, last_line)))) {
    fail(path, "manifest: differs from its digest");
  }
  Manifest manifest;
  WordReader reader(text.substr(0, last_line), path);
  check_version(reader, path);
  reader.expect("iteration ");
  manifest.iteration = reader.number<std::int64_t>(reader.until('\n'));
  reader.expect("id ");
  manifest.id = reader.number<std::uint64_t>(reader.until('\n'), 16);
  reader.expect("world ");
  manifest.world_size = reader.number<int>(reader.until('\n'));
  reader.expect("sets ");
  manifest.set_count = reader.number<int>(reader.until('\n'));
  while (reader.starts_with("file ")) {
    reader.expect("file ");
    manifest.files.push_back(parse_file(reader));
  }
  while (!reader.is_at_end()) {
    reader.expect("tensor ");
    manifest.tensors.push_back(parse_tensor(reader));
  }
  if (manifest.iteration < 0 || manifest.world_size < 1 || manifest.world_size > kMaxRanks ||
      manifest.set_count < 1 || manifest.set_count > manifest.world_size) {
    fail(path, "manifest: numbers that cannot be");
  }
  check_files(manifest, path);
  check_tensors(manifest, path);
  if (print_body(manifest) != text.substr(0, last_line)) {
    fail(path, "manifest: not as this build writes it");
  }
  return manifest;
}

}  // namespace chainmail::internal
