// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Where a layer that is cut over the ranks begins and ends, for models of which every rank computes
// the whole loss. Megatron-LM's pairs (Shoeybi et al., 2019): what communicates forward does not
// backward, and the other way round, so that each rank has the gradient of one loss, not of the sum
// of all ranks' equal ones.
//
// Collective, forward or backward; every rank has the same graph. Through the communicator's second
// group. Backward does not communicate for what needs no gradient.

#pragma once

#include <cstdint>
#include <memory>

#include <ATen/core/Tensor.h>

#include <chainmail/communicator.h>

namespace chainmail::internal {

/// This rank's part of `size` elements, in rank order; the first ranks have one more where they
/// cannot be equal.
struct Cut {
  std::int64_t begin = 0;
  std::int64_t length = 0;
};
[[nodiscard]] Cut cut_of(std::int64_t size, int rank, int ranks);

/// A tensor that all ranks have, for parts of a layer: `x` itself. Backward: the sum over the
/// ranks.
[[nodiscard]] at::Tensor enter_parts(const std::shared_ptr<Communicator>& communicator,
                                     const at::Tensor& x);
/// The sum of what the parts made, on all ranks. Backward: the gradient as it is.
[[nodiscard]] at::Tensor sum_parts(const std::shared_ptr<Communicator>& communicator,
                                   const at::Tensor& x);
/// Every rank's part, one after another along `dimension`, on all ranks. Backward: this rank's part
/// of the gradient.
[[nodiscard]] at::Tensor join_parts(const std::shared_ptr<Communicator>& communicator,
                                    const at::Tensor& x, std::int64_t dimension);
/// This rank's part of a tensor that all ranks have. Backward: every rank's gradients, joined.
[[nodiscard]] at::Tensor take_part(const std::shared_ptr<Communicator>& communicator,
                                   const at::Tensor& x, std::int64_t dimension);

}  // namespace chainmail::internal
