// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Byte-wise collectives and point-to-point operations for tensors and objects, with a label by
// which the ranks check that they mean the same thing.
//
// Collective, except for send_part() and recv_part(). All of them block.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>

#include "ops/engine/group.h"

namespace chainmail::internal {

/// Describes what is sent; a MismatchError on all ranks unless it is equal on all ranks.
struct Label {
  std::uint32_t hash = 0;
  std::function<std::string()> describe;
};
[[nodiscard]] Label label_of(at::ArrayRef<at::Tensor> tensors);
[[nodiscard]] Label label_of(std::string text);

/// `bytes` of root, in one message or in several of at most `chunk_bytes`.
void broadcast(ops::Group& group, std::byte* data, std::size_t bytes, int root, const Label& label);
void broadcast_in_chunks(ops::Group& group, std::byte* data, std::size_t bytes, int root,
                         std::size_t chunk_bytes, const Label& label);

/// `bytes` of every rank in rank order.
void all_gather(ops::Group& group, const void* input, void* output, std::size_t bytes,
                const Label& label);

/// What one rank sends to another, or receives from it; equal sizes at both ends.
struct Part {
  std::byte* data = nullptr;
  std::size_t bytes = 0;
};

/// Fills received[r] with the part of each rank r. The sizes are equal on all ranks.
void all_gather_parts(ops::Group& group, const Part& own, const std::vector<Part>& received,
                      const Label& label);

/// Sends sent[r] to each rank r and fills received[r] from it, at most `chunk_bytes` of each at a
/// time. No part on any rank is larger than `longest`, equal on all ranks.
void move_parts(ops::Group& group, const std::vector<Part>& sent, const std::vector<Part>& received,
                std::size_t longest, std::size_t chunk_bytes, const Label& label);

/// Between two ranks, in chunks. Throws InvalidArgument for a negative tag, this rank itself or
/// none of the group.
void send_part(ops::Group& group, Part part, int destination, int tag, std::size_t chunk_bytes,
               const Label& label);
void recv_part(ops::Group& group, Part part, int source, int tag, std::size_t chunk_bytes,
               const Label& label);

}  // namespace chainmail::internal
