// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Collectives that are part of a model: gradients go back through them. ChainerMN's functions.
//
// Collective, and so is their backward: every rank calls the same functions in the same order, and
// runs backward() through them or none does. They use a second group of the communicator's ranks,
// so gradients that an optimizer exchanges meanwhile cannot come between. A rank that stays away is
// reported after the communicator's timeout, to all that wait for it.
//
// backward() on every rank gives the gradients of the *sum* of all ranks' losses. An optimizer that
// takes the mean of the parameters' gradients then steps by the gradient of the mean loss.

#pragma once

#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include <chainmail/communicator.h>
#include <chainmail/export.h>

/// Collectives that gradients go back through.
namespace chainmail::functions {

/// The element-wise sum over all ranks, as a new tensor, the same bits on every rank. `x` is a
/// dense CPU tensor of the same shape and dtype everywhere; never rounded to allreduce_grad_dtype.
/// Backward: the sum of all ranks' gradients. Can be differentiated again.
/// @throws InvalidArgument  no such tensor
/// @throws MismatchError    ranks have different shapes or dtypes, or are at another function
[[nodiscard]] CHAINMAIL_API at::Tensor allreduce(const std::shared_ptr<Communicator>& communicator,
                                                 const at::Tensor& x);

/// The tensors of all ranks, in rank order, on every rank. Shapes may differ, the dtype may not; at
/// most 14 dimensions. Backward: every rank gets the sum of the gradients that the ranks have for
/// its tensor; results that a rank did not use count as zero. Can be differentiated again.
/// @throws InvalidArgument  no such tensor
/// @throws MismatchError    ranks have different dtypes, or are at another function
[[nodiscard]] CHAINMAIL_API std::vector<at::Tensor> allgather(
    const std::shared_ptr<Communicator>& communicator, const at::Tensor& x);

}  // namespace chainmail::functions
