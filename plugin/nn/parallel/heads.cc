// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/nn/parallel/heads.h"

#include <algorithm>

#include <chainmail/error.h>
#include <chainmail/train/agreed_error.h>

#include "plugin/nn/parallel/exchange_node.h"
#include "plugin/train/communicator/parts.h"

namespace chainmail::internal {

Head head_of(at::ArrayRef<at::Tensor> tensors, std::size_t wanted) {
  Head head;
  if (tensors.size() != wanted) {
    head.problem = std::to_string(tensors.size()) + " tensors for " + std::to_string(wanted) +
                   (wanted == 1 ? " place" : " ranks");
    return head;
  }
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::string reason = why_not_movable(tensors[i]);
    if (!reason.empty()) {
      head.problem = "tensor " + std::to_string(i) + " " + reason;
      return head;
    }
    head.shapes.push_back(shape_of(tensors[i]));
    head.needs_gradient.push_back(needs_gradient(tensors[i]) ? 1 : 0);
  }
  return head;
}

bool needs_any(const Head& head) {
  return std::ranges::any_of(head.needs_gradient, [](std::uint8_t needs) { return needs != 0; });
}

Head head_from_bytes(std::string_view bytes) {
  auto head = from_bytes<Head>(bytes);
  bool is_possible = head.shapes.size() == head.needs_gradient.size() || !head.problem.empty();
  for (const std::uint8_t needs : head.needs_gradient) is_possible = is_possible && needs <= 1;
  for (const TensorShape& shape : head.shapes) static_cast<void>(bytes_of(shape));
  if (!is_possible) {
    throw MismatchError("the shapes of " + std::to_string(head.shapes.size()) + " tensors come " +
                        "with " + std::to_string(head.needs_gradient.size()) +
                        " notes on gradients: the ranks do not run the same program");
  }
  return head;
}

std::vector<Head> exchange_heads(Communicator& communicator, const Head& own,
                                 const std::string& function) {
  ops::Group& group = communicator.impl().in_graph();
  const Label label = label_of(function);
  std::string bytes = to_bytes(own);
  std::vector<std::uint64_t> lengths(static_cast<std::size_t>(group.size()));
  const std::uint64_t length = bytes.size();
  all_gather(group, &length, lengths.data(), sizeof length, label);
  const std::size_t longest = *std::max_element(lengths.begin(), lengths.end());
  bytes.resize(longest);
  std::string all(longest * lengths.size(), '\0');
  all_gather(group, bytes.data(), all.data(), longest, label);

  std::vector<Head> heads;
  for (std::size_t r = 0; r < lengths.size(); ++r) {
    heads.push_back(head_from_bytes(std::string_view(all).substr(r * longest, lengths[r])));
  }
  for (std::size_t r = 0; r < heads.size(); ++r) {
    if (!heads[r].problem.empty()) {
      communicator.impl().mark_agreed();
      throw Agreed(
          InvalidArgument(function + ": rank " + std::to_string(r) + ": " + heads[r].problem));
    }
  }
  return heads;
}

std::vector<at::Tensor> plain_values(at::ArrayRef<at::Tensor> tensors, const char* function) {
  std::vector<at::Tensor> values;
  for (const at::Tensor& tensor : tensors) values.push_back(plain_values(tensor, function));
  return values;
}

}  // namespace chainmail::internal
