// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/train/wire/wire_residuals.h"

#include <sys/mman.h>

#include <memory>

#include <ATen/ATen.h>

#include "plugin/train/sharding/page_memory.h"

namespace chainmail::internal {

namespace {

at::Tensor lazy_zeros(std::size_t elements) {
  const std::size_t bytes = elements * sizeof(float);
  const auto memory = std::make_shared<c10::DataPtr>(allocate_pages(bytes));
  // Other ranks' elements lie between a rank's own, and huge pages would have them, too.
  static_cast<void>(::madvise(memory->get(), bytes, MADV_NOHUGEPAGE));
  return at::from_blob(
      memory->get(), {static_cast<std::int64_t>(elements)}, [memory](void* /*data*/) {},
      c10::TensorOptions(c10::kFloat));
}

std::byte* first_byte(const at::Tensor& tensor) {
  return static_cast<std::byte*>(tensor.mutable_data_ptr());
}

}  // namespace

WireResiduals::WireResiduals(std::size_t elements)
    : contributions_(lazy_zeros(elements)), results_(lazy_zeros(elements)) {}

ops::WireFeedback WireResiduals::next() noexcept {
  return {first_byte(contributions_), first_byte(results_), exchanges_++};
}

}  // namespace chainmail::internal
