// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Byte-wise collectives and point-to-point operations for tensors and objects, with a label by
// which the ranks check that they mean the same thing.
//
// Collective, except for transfers. All of them block, but for a transfer that keeps its bytes.
// Chunks are of object_chunk_bytes at most.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>

#include "plugin/train/communicator/communicator_impl.h"

namespace chainmail::internal {

/// Describes what is sent; a MismatchError on all ranks unless it is equal on all ranks.
struct Label {
  std::uint32_t hash = 0;
  std::function<std::string()> describe;
};
[[nodiscard]] Label label_of(at::ArrayRef<at::Tensor> tensors);
[[nodiscard]] Label label_of(std::string text);

/// Bytes that one rank sends, or receives; equal sizes at both ends.
struct Part {
  std::byte* data = nullptr;
  std::size_t bytes = 0;
};
/// All of a contiguous tensor, or of `bytes`.
[[nodiscard]] Part part_of(const at::Tensor& tensor);
[[nodiscard]] Part part_of(std::string& bytes);

/// The sum or mean of `flat`, in place. `shapes` are the tensors that it stands for.
[[nodiscard]] ops::Collective all_reduce_of(const at::Tensor& flat, ops::ReduceOp op,
                                            ops::WireFormat wire, at::ArrayRef<at::Tensor> shapes);

/// What root has, in one message or in chunks.
void broadcast(ops::Group& group, Part part, int root, const Label& label);
void broadcast_in_chunks(ops::Group& group, std::size_t chunk_bytes, Part part, int root,
                         const Label& label);

/// `bytes` of every rank in rank order.
void all_gather(ops::Group& group, const void* input, void* output, std::size_t bytes,
                const Label& label);

/// Fills received[r] with the bytes of each rank r. The sizes are equal on all ranks.
void all_gather_parts(ops::Group& group, const std::byte* own, const std::vector<Part>& received,
                      const Label& label);

/// Sends sent[r] to each rank r and fills received[r] from it, in chunks. No part on any rank is
/// larger than `longest`, equal on all ranks.
void move_parts(ops::Group& group, std::size_t chunk_bytes, const std::vector<Part>& sent,
                const std::vector<Part>& received, std::size_t longest, const Label& label);

/// Throws InvalidArgument for a negative tag or a rank that is none of the group.
void check_peer(const Communicator::Impl& communicator, ops::OpKind kind, int peer, int tag);

/// A send or receive, in chunks. Throws InvalidArgument as check_peer(), and for this rank itself.
void transfer(const Communicator::Impl& communicator, ops::OpKind kind, Part part, int peer,
              int tag, const Label& label);

/// Tags from here on are of messages in autograd's graphs, below they are users'.
inline constexpr std::uint32_t kGraphTags = std::uint32_t{1} << 31;
/// The same without those checks and with any tag. With `keep`, which owns the bytes, it returns at
/// once; an error of the transfer is then that of later operations.
void transfer_with_tag(const Communicator::Impl& communicator, ops::OpKind kind, Part part,
                       int peer, std::uint32_t tag, const Label& label,
                       const std::shared_ptr<const void>& keep);

}  // namespace chainmail::internal
