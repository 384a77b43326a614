// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/nn/parallel/tensor_moves.h"

#include <algorithm>
#include <string>

#include <ATen/ATen.h>

#include "plugin/train/communicator/parts.h"

namespace chainmail::internal {

namespace {

std::vector<at::Tensor> room_for(const std::vector<TensorShape>& shapes) {
  std::vector<at::Tensor> room;
  for (const TensorShape& shape : shapes) {
    room.push_back(shape.type == kNoTensor ? at::Tensor() : empty_of(shape));
  }
  return room;
}

Part part_or_none(const at::Tensor& tensor) { return tensor.defined() ? part_of(tensor) : Part(); }

std::vector<Part> parts_of(const std::vector<at::Tensor>& tensors) {
  std::vector<Part> parts;
  for (const at::Tensor& tensor : tensors) parts.push_back(part_or_none(tensor));
  return parts;
}

void move(Communicator& communicator, const std::vector<Part>& sent,
          const std::vector<Part>& received, std::size_t longest, const char* function) {
  Communicator::Impl& impl = communicator.impl();
  move_parts(impl.in_graph(), impl.options.object_chunk_bytes, sent, received, longest,
             label_of(function));
}

}  // namespace

std::vector<TensorShape> without_unneeded(const Head& head) {
  std::vector<TensorShape> shapes = head.shapes;
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    if (head.needs_gradient[i] == 0) shapes[i] = {};
  }
  return shapes;
}

std::size_t longest_of(const std::vector<TensorShape>& shapes) {
  std::size_t longest = 0;
  for (const TensorShape& shape : shapes) {
    if (shape.type != kNoTensor) longest = std::max(longest, bytes_of(shape));
  }
  return longest;
}

std::vector<at::Tensor> move_tensors(Communicator& communicator,
                                     const std::vector<at::Tensor>& sent, const Moves& moves,
                                     const char* function) {
  std::vector<at::Tensor> values;
  for (const at::Tensor& tensor : sent) {
    values.push_back(tensor.defined() ? plain_values(tensor, function) : tensor);
  }
  std::vector<at::Tensor> received = room_for(moves.received);
  move(communicator, parts_of(values), parts_of(received), moves.longest, function);
  return received;
}

std::vector<at::Tensor> gather_tensors(Communicator& communicator, const at::Tensor& own,
                                       const std::vector<TensorShape>& shapes, int root,
                                       const char* function) {
  const at::Tensor values = own.defined() ? plain_values(own, function) : own;
  std::vector<at::Tensor> result;
  std::vector<Part> sent(shapes.size());
  std::vector<Part> received(shapes.size());
  sent[static_cast<std::size_t>(root)] = part_or_none(values);
  if (communicator.rank() == root) {
    result = room_for(shapes);
    received = parts_of(result);
  }
  move(communicator, sent, received, longest_of(shapes), function);
  return result;
}

at::Tensor scatter_tensors(Communicator& communicator, const std::vector<at::Tensor>& sent,
                           const std::vector<TensorShape>& shapes,
                           const std::vector<std::uint8_t>& wanted, int root,
                           const char* function) {
  std::vector<at::Tensor> values;
  std::vector<Part> parts(shapes.size());
  std::vector<Part> received(shapes.size());
  if (communicator.rank() == root) {
    for (const at::Tensor& tensor : sent) {
      values.push_back(tensor.defined() ? plain_values(tensor, function) : tensor);
    }
    parts = parts_of(values);
  }
  const auto own = static_cast<std::size_t>(communicator.rank());
  const at::Tensor result = wanted[own] != 0 ? empty_of(shapes[own]) : at::Tensor();
  received[static_cast<std::size_t>(root)] = part_or_none(result);
  move(communicator, parts, received, longest_of(shapes), function);
  return result;
}

std::vector<at::Tensor> all_gather_tensors(Communicator& communicator, const at::Tensor& own,
                                           const std::vector<TensorShape>& shapes) {
  const at::Tensor values = plain_values(own, "allgather");
  std::vector<at::Tensor> result = room_for(shapes);
  all_gather_parts(communicator.impl().in_graph(), part_of(values).data, parts_of(result),
                   {.hash = 0, .describe = label_of(result).describe});
  return result;
}

at::Tensor broadcast_tensor(Communicator& communicator, const at::Tensor& own,
                            const TensorShape& shape, int root) {
  Communicator::Impl& impl = communicator.impl();
  const at::Tensor result = empty_of(shape);
  if (own.defined()) result.copy_(own);
  broadcast_in_chunks(impl.in_graph(), impl.options.object_chunk_bytes, part_of(result), root,
                      label_of(result));
  return result;
}

}  // namespace chainmail::internal
