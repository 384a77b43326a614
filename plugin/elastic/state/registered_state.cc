// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/elastic/state/registered_state.h"

#include <algorithm>
#include <utility>

#include <chainmail/error.h>

#include "plugin/checkpoint/items/state_entries.h"

namespace chainmail::internal {

void RegisteredState::add(CheckpointItem item, Kind kind) {
  if (item.name.empty() || item.name.find_first_of("/\n") != std::string::npos) {
    throw InvalidArgument("'" + item.name + "' cannot be the name of a part of a job's state");
  }
  if (std::ranges::any_of(items_, [&](const auto& other) { return other.name == item.name; })) {
    throw InvalidArgument("there is a part '" + item.name + "' of this job's state already");
  }
  items_.push_back(std::move(item));
  kinds_.push_back(kind);
}

bool RegisteredState::is_comparable() const noexcept {
  return std::ranges::all_of(kinds_, &Kind::is_comparable);
}

void RegisteredState::fill(FileImage& image) const {
  StateEntries entries;
  for (const CheckpointItem& item : items_) entries.add(item.name, item.save());
  entries.fill(image);
}

std::vector<RegisteredState::PartDigest> RegisteredState::digests() {
  StateEntries entries;
  for (std::size_t i = 0; i < items_.size(); ++i) {
    if (kinds_[i].is_comparable) entries.add(items_[i].name, items_[i].save());
  }
  std::vector<PartDigest> digests;
  for (const FileEntry& entry : entries.index().entries) {
    digests.push_back({entry.name, entry.digest.low});
  }
  return digests;
}

void RegisteredState::load(std::span<const std::byte> bytes) {
  const FileIndex index = check_file(bytes, "the state of another member");
  for (const CheckpointItem& item : items_) {
    item.load({{read_state(item.name, index, bytes)}, 0});
    if (item.finish) item.finish();
  }
}

std::string RegisteredState::describe() const {
  std::string text;
  for (std::size_t i = 0; i < items_.size(); ++i) {
    text += "a part '" + items_[i].name + "'\n";
    if (!kinds_[i].has_fixed_shape) continue;
    StateEntries entries;
    entries.add(items_[i].name, items_[i].save());
    text += entries.shapes();
  }
  return text;
}

}  // namespace chainmail::internal
