// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/c10d/collectives/checks.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <string>

#include "plugin/tensor/tensor_bytes.h"

namespace chainmail::internal {

void check_tensors(at::TensorList tensors, const char* what) {
  TORCH_CHECK(!tensors.empty(), "chainmail: ", what, " needs at least one tensor");
  for (const at::Tensor& tensor : tensors) {
    const std::string reason = why_not_dense(tensor);
    TORCH_CHECK(reason.empty(), "chainmail: ", what, ": a tensor ", reason);
    TORCH_CHECK(tensor.scalar_type() == tensors[0].scalar_type(), "chainmail: ", what,
                " needs tensors of one type, got ", tensors[0].scalar_type(), " and ",
                tensor.scalar_type());
    TORCH_CHECK(tensor.device() == tensors[0].device(), "chainmail: ", what,
                " needs tensors on one device, got ", tensors[0].device(), " and ",
                tensor.device());
  }
}

const at::Tensor& only_tensor(const std::vector<at::Tensor>& tensors, const char* what) {
  TORCH_CHECK(tensors.size() == 1, "chainmail: ", what, " takes one tensor, got ", tensors.size());
  check_tensors(tensors, what);
  return tensors[0];
}

void check_list_per_rank(const std::vector<std::vector<at::Tensor>>& lists, std::size_t count,
                         const char* what, const char* which) {
  TORCH_CHECK(lists.size() == 1 && lists[0].size() == count, "chainmail: ", what,
              " needs one list of ", count, " ", which);
  check_tensors(lists[0], what);
}

void check_writable(at::TensorList tensors, const char* what) {
  check_tensors(tensors, what);
  for (const at::Tensor& tensor : tensors) {
    const std::string reason = why_not_writable(tensor);
    TORCH_CHECK(reason.empty(), "chainmail: ", what, " cannot write to a tensor that ", reason);
  }
}

void check_like(at::TensorList tensors, const at::Tensor& like, const char* what) {
  for (const at::Tensor& tensor : tensors) {
    TORCH_CHECK(tensor.sizes() == like.sizes() && tensor.scalar_type() == like.scalar_type(),
                "chainmail: ", what, ": all tensors must have the same shape and type; got ",
                tensor.sizes(), " ", tensor.scalar_type(), " and ", like.sizes(), " ",
                like.scalar_type());
    TORCH_CHECK(tensor.device() == like.device(), "chainmail: ", what,
                " needs tensors on one device, got ", like.device(), " and ", tensor.device());
  }
}

bool have_one_count(at::TensorList tensors) {
  return std::all_of(tensors.begin(), tensors.end(), [&](const at::Tensor& tensor) {
    return tensor.numel() == tensors[0].numel();
  });
}

void check_same_type(const at::Tensor& input, const at::Tensor& output, const char* what) {
  TORCH_CHECK(output.scalar_type() == input.scalar_type(), "chainmail: ", what, ": the input is ",
              input.scalar_type(), ", the output ", output.scalar_type());
  TORCH_CHECK(output.device() == input.device(), "chainmail: ", what, ": the input is on ",
              input.device(), ", the output on ", output.device());
}

}  // namespace chainmail::internal
