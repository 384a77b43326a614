// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/train/tensor_bytes.h"

#include <algorithm>
#include <sstream>
#include <vector>

#include <ATen/MemoryOverlap.h>
#include <ATen/core/Tensor.h>

#include <chainmail/error.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace chainmail::internal {

namespace {

constexpr std::size_t kShapesInMessage = 4;

}  // namespace

ops::DataType engine_type(c10::ScalarType type, const char* operation) {
  switch (type) {  // NOLINT: torch has dozens of types; the others are refused below
    case c10::ScalarType::Byte:
      return ops::DataType::kUInt8;
    case c10::ScalarType::Char:
      return ops::DataType::kInt8;
    case c10::ScalarType::Short:
      return ops::DataType::kInt16;
    case c10::ScalarType::Int:
      return ops::DataType::kInt32;
    case c10::ScalarType::Long:
      return ops::DataType::kInt64;
    case c10::ScalarType::Bool:
      return ops::DataType::kBool;
    case c10::ScalarType::Half:
      return ops::DataType::kFloat16;
    case c10::ScalarType::BFloat16:
      return ops::DataType::kBFloat16;
    case c10::ScalarType::Float:
      return ops::DataType::kFloat32;
    case c10::ScalarType::Double:
      return ops::DataType::kFloat64;
    default:
      throw InvalidArgument(std::string(operation) + " does not support tensors of type " +
                            c10::toString(type) +
                            "; supported are uint8, int8, int16, int32, int64, bool, float16, "
                            "bfloat16, float32 and float64");
  }
}

void check_dense_cpu(at::ArrayRef<at::Tensor> tensors, const char* operation) {
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const at::Tensor& tensor = tensors[i];
    const std::string what = std::string(operation) + ": tensor " + std::to_string(i);
    if (!tensor.defined()) {
      throw InvalidArgument(what + " is undefined");
    }
    if (tensor.layout() != c10::kStrided) {
      throw InvalidArgument(what + " is not dense; pass tensor.to_dense()");
    }
    if (!tensor.device().is_cpu()) {
      throw InvalidArgument(what + " is on " + tensor.device().str() +
                            "; this communicator takes CPU tensors");
    }
    // An expanded tensor has several indices for one element: a result cannot be written into it.
    if (at::has_internal_overlap(tensor) == at::MemOverlap::Yes) {
      throw InvalidArgument(what + " has elements that share memory (an expanded tensor); pass " +
                            "tensor.contiguous()");
    }
  }
}

bool is_plain(const at::Tensor& tensor) {
  return tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg();
}

void mark_written(const at::Tensor& tensor) {
  if (!tensor.is_inference()) {  // inference tensors have no version to count
    tensor.unsafeGetTensorImpl()->bump_version();
  }
}

std::uint32_t shape_hash(at::ArrayRef<at::Tensor> tensors) {
  std::vector<std::int64_t> words;
  words.reserve(tensors.size() * 4);
  for (const at::Tensor& tensor : tensors) {
    words.push_back(static_cast<std::int64_t>(tensor.scalar_type()));
    words.push_back(tensor.dim());
    words.insert(words.end(), tensor.sizes().begin(), tensor.sizes().end());
  }
  return static_cast<std::uint32_t>(XXH3_64bits(words.data(), words.size() * sizeof(std::int64_t)));
}

std::string describe_tensors(at::ArrayRef<at::Tensor> tensors) {
  std::ostringstream text;
  for (std::size_t i = 0; i < std::min(tensors.size(), kShapesInMessage); ++i) {
    text << (i == 0 ? "" : ", ") << tensors[i].sizes() << ' '
         << c10::toString(tensors[i].scalar_type());
  }
  if (tensors.size() > kShapesInMessage) {
    text << ", ... (" << tensors.size() << " tensors)";
  }
  return text.str();
}

}  // namespace chainmail::internal
