// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Memory of every rank of a node that all of them have mapped, so that what lies there is reduced
// where it is: an unnamed file with a part per rank.
//
// Each mapping has one owner. The parts are plain bytes; who may touch them when is up to the Comm.

#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/unique_fd.h"

namespace chainmail::ops::shm {

/// How another rank of the node finds the file and knows that it is the right one.
struct BufferOffer {
  std::int32_t pid = 0;  ///< 0: there is none
  std::int32_t fd = -1;
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::uint64_t bytes = 0;
};

class SharedBuffer {
 public:
  /// A file for `ranks` parts of `part_bytes`, nothing of it reserved yet. Throws SystemError.
  [[nodiscard]] static internal::UniqueFd make_file(std::size_t ranks, std::size_t part_bytes);
  [[nodiscard]] static BufferOffer offer(const internal::UniqueFd& file);
  /// Throws SystemError when the file cannot be opened or is another one.
  [[nodiscard]] static internal::UniqueFd open_file(const BufferOffer& offer);

  /// Maps all parts and reserves the pages of `own`, so that they lie near that rank's core and a
  /// full machine is an error here and never a SIGBUS later. Throws SystemError that says the size.
  SharedBuffer(const internal::UniqueFd& file, int own, std::size_t ranks, std::size_t part_bytes);
  SharedBuffer(const SharedBuffer&) = delete;
  SharedBuffer& operator=(const SharedBuffer&) = delete;
  ~SharedBuffer();

  std::byte* part(int rank) const noexcept {
    return memory_ + static_cast<std::size_t>(rank) * part_bytes_;
  }
  std::size_t part_bytes() const noexcept { return part_bytes_; }

  /// Parts begin on pages.
  [[nodiscard]] static std::size_t rounded(std::size_t bytes) noexcept;

 private:
  std::size_t ranks_;
  std::size_t part_bytes_;
  std::byte* memory_ = nullptr;
};

}  // namespace chainmail::ops::shm
