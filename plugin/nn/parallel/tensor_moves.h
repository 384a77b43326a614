// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Tensors whose shapes both ends know, between ranks, through the communicator's second group. What
// functions in graphs are made of, forward and backward.
//
// Collective. Tensors are dense and on the CPU. An undefined tensor, or the shape of none, is one
// that does not travel. `function` is for messages and is compared.

#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include <chainmail/communicator.h>

#include "plugin/nn/parallel/heads.h"

namespace chainmail::internal {

/// The shapes of those that need a gradient, kNoTensor for the rest.
[[nodiscard]] std::vector<TensorShape> without_unneeded(const Head& head);
/// Bytes of the largest.
[[nodiscard]] std::size_t longest_of(const std::vector<TensorShape>& shapes);

/// What a rank gets.
struct Moves {
  std::vector<TensorShape> received;  ///< of each rank
  std::size_t longest = 0;  ///< bytes of no tensor on any rank are more; equal on all ranks
};

/// Sends sent[r] to each rank r; returns what came from each.
[[nodiscard]] std::vector<at::Tensor> move_tensors(Communicator& communicator,
                                                   const std::vector<at::Tensor>& sent,
                                                   const Moves& moves, const char* function);
/// All ranks' tensors at root, where `shapes` are, and nothing elsewhere.
[[nodiscard]] std::vector<at::Tensor> gather_tensors(Communicator& communicator,
                                                     const at::Tensor& own,
                                                     const std::vector<TensorShape>& shapes,
                                                     int root, const char* function);
/// This rank's of root's, if `wanted` says that it gets one. `sent` is root's alone.
[[nodiscard]] at::Tensor scatter_tensors(Communicator& communicator,
                                         const std::vector<at::Tensor>& sent,
                                         const std::vector<TensorShape>& shapes,
                                         const std::vector<std::uint8_t>& wanted, int root,
                                         const char* function);
/// Every rank's on every rank.
[[nodiscard]] std::vector<at::Tensor> all_gather_tensors(Communicator& communicator,
                                                         const at::Tensor& own,
                                                         const std::vector<TensorShape>& shapes);
/// root's, which alone passes one, as a new tensor.
[[nodiscard]] at::Tensor broadcast_tensor(Communicator& communicator, const at::Tensor& own,
                                          const TensorShape& shape, int root);

}  // namespace chainmail::internal
