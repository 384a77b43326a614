// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Memory that operations borrow, kept from call to call.
//
// Not thread-safe.

#pragma once

#include <cstddef>
#include <memory>
#include <new>

namespace chainmail::ops {

class Scratch {
 public:
  /// At least `bytes`, on a cache line, valid until the next get() of more.
  std::byte* get(std::size_t bytes) {
    if (bytes > capacity_) {
      trim(0);
      memory_.reset(static_cast<std::byte*>(::operator new(bytes, kLine)));
      capacity_ = bytes;
    }
    return memory_.get();
  }
  /// Gives memory of more than `most` bytes back.
  void trim(std::size_t most) noexcept {
    if (capacity_ <= most) return;
    memory_.reset();
    capacity_ = 0;
  }

 private:
  static constexpr std::align_val_t kLine{64};
  struct Free {
    void operator()(std::byte* memory) const noexcept { ::operator delete(memory, kLine); }
  };
  std::unique_ptr<std::byte, Free> memory_;
  std::size_t capacity_ = 0;
};

}  // namespace chainmail::ops
