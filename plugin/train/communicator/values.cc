// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/train/communicator/values.h"

#include <limits>

#include <ATen/ATen.h>

#include <chainmail/error.h>

#include "plugin/tensor/tensor_bytes.h"

namespace chainmail::internal {

std::string why_not_movable(const at::Tensor& tensor) {
  std::string reason = why_not_dense_cpu(tensor);
  if (reason.empty() && tensor.is_quantized()) {
    reason = "is quantized; pass tensor.int_repr() and its scale";
  }
  return reason;
}

TensorShape shape_of(const at::Tensor& tensor) {
  return {static_cast<std::int8_t>(tensor.scalar_type()), tensor.sizes().vec()};
}

at::Tensor plain_values(const at::Tensor& tensor, const char* operation) {
  const std::string reason = why_not_movable(tensor);
  if (!reason.empty()) throw InvalidArgument(std::string(operation) + ": a tensor " + reason);
  const at::NoGradGuard no_grad;
  return resolved(tensor.detach()).contiguous();
}

std::size_t bytes_of(const TensorShape& shape) {
  const auto type = static_cast<c10::ScalarType>(shape.type);
  bool is_possible = shape.type >= 0 && type < c10::ScalarType::Undefined && !c10::isQIntType(type);
  std::size_t bytes = is_possible ? c10::elementSize(type) : 0;
  for (const std::int64_t size : shape.sizes) {
    is_possible = is_possible && size >= 0 &&
                  (size == 0 || bytes <= std::numeric_limits<std::int64_t>::max() /
                                             static_cast<std::size_t>(size));
    bytes = is_possible ? bytes * static_cast<std::size_t>(size) : 0;
  }
  if (!is_possible) {
    throw MismatchError("a tensor of type " + std::to_string(shape.type) + " in " +
                        std::to_string(shape.sizes.size()) +
                        " dimensions cannot be: the ranks do not run the same program");
  }
  return bytes;
}

at::Tensor empty_of(const TensorShape& shape) {
  static_cast<void>(bytes_of(shape));
  return at::empty(shape.sizes, c10::TensorOptions(static_cast<c10::ScalarType>(shape.type)));
}

}  // namespace chainmail::internal
