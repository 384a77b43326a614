// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/nn/sharded/former_memory.h"

#include <utility>

#include <ATen/ATen.h>

namespace chainmail::internal {

void FormerMemory::remember(const std::string& unit, const std::vector<NamedTensor>& parameters) {
  std::erase_if(pieces_, [](const Piece& piece) { return piece.storage.expired(); });
  for (const NamedTensor& parameter : parameters) {
    const at::Tensor& tensor = parameter.tensor;
    pieces_.push_back({parameter.name + " of unit " + unit, tensor.storage().getWeakStorageImpl(),
                       tensor.storage_offset(), tensor.sizes().vec(), tensor.strides().vec(),
                       tensor.scalar_type()});
  }
}

std::vector<NamedTensor> FormerMemory::in_use() const {
  std::vector<NamedTensor> tensors;
  for (const Piece& piece : pieces_) {
    auto storage = piece.storage.lock();
    if (!storage) continue;
    tensors.push_back({piece.name, at::empty({0}, c10::TensorOptions(piece.dtype))
                                       .set_(c10::Storage(std::move(storage)), piece.offset,
                                             piece.sizes, piece.strides)});
  }
  return tensors;
}

}  // namespace chainmail::internal
