// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/train/tensor_checks.h"

#include <chainmail/error.h>

#include <string>

#include "plugin/tensor/element_type.h"
#include "plugin/tensor/tensor_bytes.h"

namespace chainmail::internal {

ops::DataType engine_type(c10::ScalarType type, const char* operation) {
  if (const auto known = data_type_of(type)) return *known;
  throw InvalidArgument(std::string(operation) + " does not support tensors of type " +
                        c10::toString(type) + "; supported are " + kKnownTypes);
}

void check_dense(at::ArrayRef<at::Tensor> tensors, const char* operation) {
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    std::string reason = why_not_dense(tensors[i]);
    if (reason.empty()) reason = why_not_writable(tensors[i]);
    if (reason.empty() && tensors[i].device() != tensors.front().device()) {
      reason = "is on " + tensors[i].device().str() + " and the first one on " +
               tensors.front().device().str() + "; pass those of one device together";
    }
    if (!reason.empty()) {
      throw InvalidArgument(std::string(operation) + ": tensor " + std::to_string(i) + " " +
                            reason);
    }
  }
}

}  // namespace chainmail::internal
