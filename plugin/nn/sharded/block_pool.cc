// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/nn/sharded/block_pool.h"

#include <algorithm>
#include <utility>

#include "plugin/train/sharding/page_memory.h"

namespace chainmail::internal {

namespace {

// A unit that computes, the next one on its way, and gradients on theirs.
constexpr std::size_t kMostFree = 3;

}  // namespace

void BlockPool::make_room_for(std::size_t bytes) {
  block_bytes_ = std::max(block_bytes_, bytes);
  std::erase_if(free_, [&](const auto& block) { return block->bytes < block_bytes_; });
}

std::unique_ptr<Block> BlockPool::take() {
  free_.reserve(kMostFree);
  std::unique_ptr<Block> block;
  if (free_.empty()) {
    block = std::make_unique<Block>();
    block->memory = allocate_pages(block_bytes_);
    block->bytes = block_bytes_;
  } else {
    block = std::move(free_.back());
    free_.pop_back();
  }
  taken_bytes_ += block->bytes;
  most_taken_bytes_ = std::max(most_taken_bytes_, taken_bytes_);
  return block;
}

void BlockPool::give_back(std::unique_ptr<Block> block) noexcept {
  if (block == nullptr) return;
  taken_bytes_ -= block->bytes;
  if (block->bytes >= block_bytes_ && free_.size() < kMostFree) free_.push_back(std::move(block));
}

}  // namespace chainmail::internal
