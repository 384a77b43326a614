// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Memory for whole units, used again and again: fresh pages cost more than what is copied to them.
//
// One thread at a time.

#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include <c10/core/Allocator.h>

namespace chainmail::internal {

/// Aligned like the memory of tensors.
struct Block {
  c10::DataPtr memory;
  std::size_t bytes = 0;

  [[nodiscard]] std::byte* data() const noexcept { return static_cast<std::byte*>(memory.get()); }
};

class BlockPool {
 public:
  /// From now on blocks have at least so many bytes.
  void make_room_for(std::size_t bytes);
  /// Uninitialized.
  [[nodiscard]] std::unique_ptr<Block> take();
  void give_back(std::unique_ptr<Block> block) noexcept;
  /// Of the blocks that are taken now, and when most of them were.
  std::size_t taken_bytes() const noexcept { return taken_bytes_; }
  std::size_t most_taken_bytes() const noexcept { return most_taken_bytes_; }

 private:
  std::size_t block_bytes_ = 0;
  std::size_t taken_bytes_ = 0;
  std::size_t most_taken_bytes_ = 0;
  std::vector<std::unique_ptr<Block>> free_;
};

}  // namespace chainmail::internal
