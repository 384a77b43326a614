// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What a program has told its elastic job to be its state, as bytes that another member can go on
// from: those of a checkpoint's file, so with a digest of every tensor.
//
// One thread. No communication here.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "plugin/checkpoint/items/items.h"
#include "plugin/checkpoint/store/file_image.h"

namespace chainmail::internal {

class RegisteredState {
 public:
  struct Kind {
    bool has_fixed_shape =
        false;                  ///< from the begin on it has the tensors that it will always have
    bool is_comparable = true;  ///< equal states have equal bytes
  };
  /// Throws InvalidArgument for a name that is there already, or that a checkpoint would refuse.
  void add(CheckpointItem item, Kind kind);
  /// Whether equal states have equal bytes.
  [[nodiscard]] bool is_comparable() const noexcept;
  /// All of it as of now, for the caller to seal.
  void fill(FileImage& image) const;
  [[nodiscard]] const std::vector<CheckpointItem>& items() const noexcept { return items_; }
  struct PartDigest {
    std::string name;  ///< "item/tensor"
    std::uint64_t digest = 0;
  };
  /// Of each part that can be compared, as of now, in an order that is the same on all members.
  [[nodiscard]] std::vector<PartDigest> digests();
  /// Makes the state that of `bytes`, which another member has saved. Throws CheckpointError for
  /// bytes that are damaged, or of other items or shapes; then the state is undefined.
  void load(std::span<const std::byte> bytes);
  /// A line for each part, and for each tensor whose type and shape are fixed: members with others
  /// do not train together.
  [[nodiscard]] std::string describe() const;

 private:
  std::vector<CheckpointItem> items_;
  std::vector<Kind> kinds_;  ///< of each
};

}  // namespace chainmail::internal
