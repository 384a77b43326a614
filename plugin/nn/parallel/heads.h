// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What goes before the tensors of a function in a graph: their types and shapes, and for which of
// them gradients are to come back.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>

#include <chainmail/communicator.h>

#include "plugin/train/communicator/fields.h"
#include "plugin/train/communicator/values.h"

namespace chainmail::internal {

/// Of the tensors of one rank.
struct Head {
  std::string problem;  ///< of an argument, for all ranks to throw
  std::vector<TensorShape> shapes;
  std::vector<std::uint8_t> needs_gradient;

  static constexpr char kObjectName[] = "tensors in a graph";
  static auto fields(auto& self) {
    return std::tie(self.problem, self.shapes, self.needs_gradient);
  }
};

/// Local. A tensor that cannot be sent, or another number of tensors than `wanted`, is a problem.
[[nodiscard]] Head head_of(at::ArrayRef<at::Tensor> tensors, std::size_t wanted);
[[nodiscard]] bool needs_any(const Head& head);

/// Another rank's. Throws MismatchError for what head_of() does not make.
[[nodiscard]] Head head_from_bytes(std::string_view bytes);

/// Every rank's, through the communicator's second group. Collective. Throws InvalidArgument on all
/// ranks when one has a problem, MismatchError on all where they are not at the same `function`,
/// which says what must agree: "gather to rank 1".
[[nodiscard]] std::vector<Head> exchange_heads(Communicator& communicator, const Head& own,
                                               const std::string& function);

/// Contiguous, or InvalidArgument for what is not dense and on the CPU.
[[nodiscard]] std::vector<at::Tensor> plain_values(at::ArrayRef<at::Tensor> tensors,
                                                   const char* function);

}  // namespace chainmail::internal
