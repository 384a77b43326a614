// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/checkpoint/items/state_entries.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>
#include <sstream>
#include <utility>

#include <ATen/ATen.h>

#include "plugin/tensor/tensor_bytes.h"

namespace chainmail::internal {

namespace {

// Of each EntryType of tensors, in the order of their numbers, of which kUInt8 is the first.
constexpr std::array<c10::ScalarType, 12> kTypes = {
    c10::kByte, c10::kChar,     c10::kShort, c10::kInt,    c10::kLong,         c10::kBool,
    c10::kHalf, c10::kBFloat16, c10::kFloat, c10::kDouble, c10::kComplexFloat, c10::kComplexDouble};
constexpr auto kFirst = static_cast<std::uint32_t>(EntryType::kUInt8);
static_assert(kFirst + kTypes.size() - 1 == static_cast<std::uint32_t>(EntryType::kComplex128));

FileEntry describe(const std::string& name, const CheckpointState::Value& value) {
  check_name(name);
  FileEntry entry;
  entry.name = name;
  if (const auto* const text = std::get_if<std::string>(&value)) {
    entry.shape = {text->size()};
    return entry;
  }
  const auto& tensor = std::get<at::Tensor>(value);
  const std::string problem = why_not_dense(tensor);
  const auto* const type = std::ranges::find(kTypes, tensor.scalar_type());
  if (!problem.empty() || type == kTypes.end()) {
    throw InvalidArgument("'" + name + "' cannot be saved: it " +
                          (problem.empty()
                               ? std::string("is of type ") + c10::toString(tensor.scalar_type())
                               : problem));
  }
  entry.type = static_cast<EntryType>(kFirst + (type - kTypes.begin()));
  for (const std::int64_t extent : tensor.sizes()) {
    entry.shape.push_back(static_cast<std::uint64_t>(extent));
  }
  return entry;
}

at::Tensor plain(const at::Tensor& tensor) {
  return resolved(tensor.detach().to(c10::kCPU)).contiguous();
}

}  // namespace

c10::ScalarType scalar_type_of(EntryType type) {
  return kTypes.at(static_cast<std::uint32_t>(type) - kFirst);
}

void check_name(const std::string& name) {
  if (name.size() > kMaxNameBytes) {
    throw InvalidArgument(
        "the name '" + name.substr(0, 40) + "...' has " + std::to_string(name.size()) +
        " bytes; a checkpoint takes names of up to " + std::to_string(kMaxNameBytes));
  }
}

void StateEntries::add(const std::string& item, const CheckpointState& state) {
  for (const auto& [key, value] : state.values()) {
    entries_.push_back(describe(item + '/' + key, value));
    values_.push_back(value);
  }
}

void StateEntries::append(StateEntries other) {
  entries_.insert(entries_.end(), std::make_move_iterator(other.entries_.begin()),
                  std::make_move_iterator(other.entries_.end()));
  values_.insert(values_.end(), std::make_move_iterator(other.values_.begin()),
                 std::make_move_iterator(other.values_.end()));
}

void StateEntries::fill(FileImage& image) const {
  const at::NoGradGuard no_grad;
  image.begin(entries_);
  for (std::size_t e = 0; e < entries_.size(); ++e) {
    const std::span<std::byte> place = image.data(e);
    if (place.empty()) continue;
    if (const auto* const text = std::get_if<std::string>(&values_[e])) {
      std::memcpy(place.data(), text->data(), place.size());
      continue;
    }
    const auto& tensor = std::get<at::Tensor>(values_[e]);
    at::from_blob(place.data(), tensor.sizes(), c10::TensorOptions(tensor.scalar_type()))
        .copy_(tensor);
  }
}

std::string StateEntries::shapes() const {
  std::ostringstream text;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    text << "'" << entries_[i].name << "' is ";
    if (const auto* const tensor = std::get_if<at::Tensor>(&values_[i])) {
      text << c10::toString(tensor->scalar_type()) << " " << tensor->sizes() << "\n";
    } else {
      text << "text\n";
    }
  }
  return text.str();
}

FileIndex StateEntries::index() const {
  const at::NoGradGuard no_grad;
  FileIndex index;
  index.entries = entries_;
  lay_out(index);
  for (std::size_t e = 0; e < entries_.size(); ++e) {
    if (const auto* const text = std::get_if<std::string>(&values_[e])) {
      index.entries[e].digest = entry_digest(std::as_bytes(std::span(*text)));
      continue;
    }
    const at::Tensor tensor = plain(std::get<at::Tensor>(values_[e]));
    index.entries[e].digest =
        entry_digest({static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()});
  }
  return index;
}

CheckpointState read_state(const std::string& item, const FileIndex& index,
                           std::span<const std::byte> file) {
  CheckpointState state;
  for (const FileEntry& entry : index.entries) {
    if (!entry.name.starts_with(item + '/')) continue;
    const std::string key = entry.name.substr(item.size() + 1);
    const auto bytes =
        file.subspan(static_cast<std::size_t>(entry.offset), static_cast<std::size_t>(entry.bytes));
    if (entry.type == EntryType::kBytes) {
      state.set_text(key, std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
      continue;
    }
    const std::vector<std::int64_t> sizes(entry.shape.begin(), entry.shape.end());
    at::Tensor tensor = at::empty(sizes, c10::TensorOptions(scalar_type_of(entry.type)));
    if (!bytes.empty()) std::memcpy(tensor.mutable_data_ptr(), bytes.data(), bytes.size());
    state.set_tensor(key, std::move(tensor));
  }
  return state;
}

}  // namespace chainmail::internal
