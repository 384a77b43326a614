// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Memory for the few buckets that are on their way at a time, where gradients are freed as soon as
// their means are known: ZeRO stage 2 (Rajbhandari et al., SC 2020).
//
// One thread per rank. Local.

#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace chainmail::internal {

class BucketPool {
 public:
  /// How many may be taken at a time.
  static constexpr std::size_t kBuffers = 3;

  /// `elements` in a row, with any values.
  /// @throws InvalidArgument  kBuffers are out
  [[nodiscard]] at::Tensor take(std::int64_t elements, c10::ScalarType dtype);
  /// Nothing uses `row`, which take() gave, any more.
  void give_back(const at::Tensor& row);
  /// Of all buffers.
  [[nodiscard]] std::size_t bytes() const noexcept;

 private:
  struct Buffer {
    at::Tensor memory;
    bool is_out = false;
  };
  std::vector<Buffer> buffers_;
};

}  // namespace chainmail::internal
