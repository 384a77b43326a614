// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Communication that is part of a model: gradients go back through it. ChainerMN's functions.
//
// All but send and recv are collective, and so is their backward: every rank calls the same
// functions in the same order, and runs backward() through them or none does. They use a second
// group of the communicator's ranks, so gradients that an optimizer exchanges meanwhile cannot come
// between. A rank that stays away is reported after the communicator's timeout, to all that wait
// for it.
//
// backward() on every rank gives the gradients of the *sum* of all ranks' losses. An optimizer that
// takes the mean of the parameters' gradients then steps by the gradient of the mean loss.
//
// Backward goes through a function once, or as often as all ranks retain the graph, and throws
// InvalidArgument otherwise; allreduce, allgather and reduce_scatter do as torch's own functions.
//
// What leaves no tensor that a rank's loss is made of is lost to its backward, and a rank that
// waits for it there waits in vain: that is what delegates and pseudo_connect() are for, as in
// ChainerMN. <chainmail/nn/parallel/chain.h> has the same functions without that care.
//
// Tensors are dense and on the CPU, of any dtype that the function can work with; float16 and
// bfloat16 travel as they are.

#pragma once

#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>

#include <chainmail/communicator.h>
#include <chainmail/export.h>

/// Collectives that gradients go back through.
namespace chainmail::functions {

/// The element-wise sum over all ranks, as a new tensor, the same bits on every rank. `x` is
/// of the same shape and dtype everywhere; never rounded to allreduce_grad_dtype.
/// Backward: the sum of all ranks' gradients. Can be differentiated again.
/// @throws InvalidArgument  no such tensor
/// @throws MismatchError    ranks have different shapes or dtypes, or are at another function
[[nodiscard]] CHAINMAIL_API at::Tensor allreduce(const std::shared_ptr<Communicator>& communicator,
                                                 const at::Tensor& x);

/// The tensors of all ranks, in rank order, on every rank. Shapes may differ, the dtype may not; at
/// most 14 dimensions. Backward: every rank gets the sum of the gradients that the ranks have for
/// its tensor; results that a rank did not use count as zero: reduce_scatter(). Can be
/// differentiated again.
/// @throws InvalidArgument  no such tensor
/// @throws MismatchError    ranks have different dtypes, or are at another function
[[nodiscard]] CHAINMAIL_API std::vector<at::Tensor> allgather(
    const std::shared_ptr<Communicator>& communicator, const at::Tensor& x);

/// The sum over all ranks of what each has in place of this rank, as a new tensor: `xs` has one
/// tensor per rank, of one dtype. Parts may differ in shape, but xs[r] has the same one on every
/// rank. Moves half of what allreduce() does where all parts have as many elements. Backward:
/// allgather(). Can be differentiated again.
/// @throws InvalidArgument  not one such tensor per rank, or several dtypes
/// @throws MismatchError    ranks have different shapes or dtypes, or are at another function
[[nodiscard]] CHAINMAIL_API at::Tensor reduce_scatter(
    const std::shared_ptr<Communicator>& communicator, at::ArrayRef<at::Tensor> xs);

/// Sends a tensor, or a list, to `rank`, which calls recv(); only the two do. Sends a copy and does
/// not wait, whatever the size. The n-th send with a tag meets the n-th recv with that tag; tags
/// are apart from those of Communicator::send().
/// @returns a delegate, a zero whose backward receives the gradient of `x` from `rank`: make it
///          part of the loss (pseudo_connect()), pass it to the next recv(), or call backward() on
///          it. Without a tensor in `x` that needs a gradient nothing comes back.
/// @throws InvalidArgument  a tensor that cannot be sent, none, this rank itself, no rank, a tag
///                          outside 0 .. 2^30 - 1. backward(): create_graph, which it cannot
[[nodiscard]] CHAINMAIL_API at::Tensor send(at::ArrayRef<at::Tensor> x,
                                            const std::shared_ptr<Communicator>& communicator,
                                            int rank, int tag = 0);

/// The tensor that `rank` sends with that tag, and which needs a gradient if it does there. Only
/// the two ranks call. Backward: sends the gradient to `rank`, then goes on with `delegate`'s, if
/// there is one; a tensor that needs no gradient at `rank` leads to that alone. Integers lead
/// nowhere: use pseudo_connect().
/// @throws InvalidArgument  as send(); the message has several tensors
[[nodiscard]] CHAINMAIL_API at::Tensor recv(const std::shared_ptr<Communicator>& communicator,
                                            int rank, const at::Tensor& delegate = {}, int tag = 0);
/// The same for a list. For those without a gradient a few bytes go back that say so, and the
/// sender's backward goes on without one, as in one process.
/// @throws InvalidArgument  as send()
[[nodiscard]] CHAINMAIL_API std::vector<at::Tensor> recv_list(
    const std::shared_ptr<Communicator>& communicator, int rank, const at::Tensor& delegate = {},
    int tag = 0);

/// root's tensor on every rank, as a new one; what others pass is ignored. Backward: root gets the
/// sum of all ranks' gradients.
/// @throws InvalidArgument  on all ranks, naming the rank: no such tensor; root is not a rank.
///                          backward(): create_graph. So for the next three
/// @throws MismatchError    ranks are at another function, or name another root
[[nodiscard]] CHAINMAIL_API at::Tensor bcast(const std::shared_ptr<Communicator>& communicator,
                                             const at::Tensor& x, int root = 0);

/// The tensors of all ranks in rank order at root; elsewhere one delegate, as of send(). Shapes and
/// dtypes may differ. Backward: each rank gets the gradient of its own.
[[nodiscard]] CHAINMAIL_API std::vector<at::Tensor> gather(
    const std::shared_ptr<Communicator>& communicator, const at::Tensor& x, int root = 0);

/// This rank's of root's `xs`, one tensor per rank, whose shapes and dtypes may differ; what others
/// pass is ignored. Backward: root gets the gradients.
[[nodiscard]] CHAINMAIL_API at::Tensor scatter(const std::shared_ptr<Communicator>& communicator,
                                               at::ArrayRef<at::Tensor> xs, int root = 0);

/// Sends xs[r] to each rank r and returns what each sent to this one, in rank order. Shapes and
/// dtypes may differ. Backward: the gradients go the other way.
[[nodiscard]] CHAINMAIL_API std::vector<at::Tensor> alltoall(
    const std::shared_ptr<Communicator>& communicator, at::ArrayRef<at::Tensor> xs);

/// `x` itself, in the same memory, behind whose backward comes that of `delegate`. Local.
/// @throws InvalidArgument  one of the two is undefined
[[nodiscard]] CHAINMAIL_API at::Tensor pseudo_connect(const at::Tensor& delegate,
                                                      const at::Tensor& x);
/// The same for a list.
[[nodiscard]] CHAINMAIL_API std::vector<at::Tensor> pseudo_connect(const at::Tensor& delegate,
                                                                   at::ArrayRef<at::Tensor> xs);

}  // namespace chainmail::functions
