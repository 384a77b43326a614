// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// One collective call with its tensors, ready to be repeated on a group, and what it must give.
//
// Sizes are nccl-tests': of the whole, so that all_gather gives `count` elements and reduce_scatter
// takes them. Not thread-safe; every rank makes the same exercises.

#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "ops/types.h"
#include "tools/bench/contestants/contestant.h"

namespace chainmail::bench {

struct Exercise {
  std::vector<at::Tensor> inputs;
  std::vector<at::Tensor> outputs;   ///< the same as inputs where c10d works in place
  std::vector<at::Tensor> expected;  ///< like outputs; none where this rank gets nothing
  std::function<void(c10d::ProcessGroup&)> run;  ///< returns when done

  /// Wrong elements of this rank, after a run between whose nodes means travelled as `wire`: the
  /// values are exact in 16 bits, and as integers within what such a wire may round away.
  std::int64_t count_wrong(ops::WireFormat wire = ops::WireFormat::kNative) const;
};

/// Names of all exercises, such as "all_reduce".
[[nodiscard]] std::vector<std::string> exercise_names();

/// Throws InvalidArgument for an unknown dtype.
[[nodiscard]] at::ScalarType parse_dtype(const std::string& name);

/// Throws InvalidArgument for an unknown reduction.
void check_redop(const std::string& name);

/// The tensors are on `device` and hold values to be checked, once: what works in place does not
/// keep them. Throws InvalidArgument for an unknown op or reduction.
[[nodiscard]] Exercise make_exercise(const Case& what, const Ranks& ranks,
                                     c10::Device device = c10::kCPU);

/// Whether a wire may round what nodes send each other in `op`, where it makes means of float32.
[[nodiscard]] bool is_rounded_on_wires(const std::string& op);

/// busbw / algbw, as nccl-tests define it.
[[nodiscard]] double bus_factor(const std::string& op, int ranks);

}  // namespace chainmail::bench
