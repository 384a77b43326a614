// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/comm/comm.h"

#include <algorithm>
#include <cstring>
#include <new>

namespace chainmail::ops {

Reduction Reduction::from(std::size_t element) const noexcept {
  Reduction part = *this;
  part.compressed_count -= std::min(element, compressed_count);
  for (std::byte** residual : {&part.contribution_residual, &part.result_residual}) {
    if (*residual != nullptr) *residual += element * sizeof(float);
  }
  return part;
}

std::shared_ptr<std::byte> allocate_private(std::size_t bytes) {
  constexpr std::align_val_t kPage{4096};
  auto* memory = static_cast<std::byte*>(::operator new(std::max<std::size_t>(bytes, 1), kPage));
  std::memset(memory, 0, bytes);
  return {memory, [](std::byte* old) { ::operator delete(old, kPage); }};
}

std::shared_ptr<std::byte> Comm::allocate(std::size_t bytes, const OpContext& /*context*/) {
  return allocate_private(bytes);
}

}  // namespace chainmail::ops
