// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Memory in which many tensors travel as one. Grows and is kept, so that a training loop allocates
// in its first step only.
//
// One thread at a time. No communication here.

#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>

namespace chainmail::internal {

class PackBuffer {
 public:
  /// Copies the tensors one after another into this buffer; all have the same dtype. Returns the
  /// buffer as one flat tensor, valid until the next call; unpack() of
  /// plugin/tensor copies it back.
  at::Tensor pack(at::ArrayRef<at::Tensor> tensors);

 private:
  at::Tensor bytes_;
};

/// Positions of tensors grouped by dtype, in the order of first appearance: the same on all ranks
/// when the lists are.
[[nodiscard]] std::vector<std::vector<at::Tensor>> group_by_dtype(at::ArrayRef<at::Tensor> tensors);

}  // namespace chainmail::internal
