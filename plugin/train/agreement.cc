// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include <chainmail/train/agreed_error.h>
#include <chainmail/train/agreement.h>

#include <algorithm>
#include <vector>

#include <ATen/ATen.h>

#include "base/bytes.h"
#include "plugin/tensor/tensor_bytes.h"
#include "plugin/train/communicator/communicator_impl.h"
#include "plugin/train/tensor_checks.h"

namespace chainmail {

namespace internal {

void throw_if_any_failed(Communicator& communicator, const std::string& error) {
  const std::string own = error.empty() ? "" : communicator.impl().world->host() + ": " + error;
  const std::vector<std::string> errors = communicator.allgather_obj(own);
  std::string message;
  std::string others;
  int other_count = 0;
  for (std::size_t r = 0; r < errors.size(); ++r) {
    if (errors[r].empty()) continue;
    if (message.empty()) {
      message = "rank " + std::to_string(r) + " on " + errors[r];
    } else {
      others += (others.empty() ? "" : ", ") + std::to_string(r);
      ++other_count;
    }
  }
  if (message.empty()) return;
  communicator.impl().wait_for_agreement();
  communicator.impl().mark_agreed();
  const std::string also =
      other_count == 0 ? "" : (other_count == 1 ? " (and rank " : " (and ranks ") + others + ")";
  throw Agreed(InvalidArgument(message + also));
}

}  // namespace internal

std::uint64_t digest(at::ArrayRef<at::Tensor> tensors) {
  internal::check_dense(tensors, "digest");
  const at::NoGradGuard no_grad;
  internal::StreamHash hash;
  for (const at::Tensor& tensor : tensors) {
    const at::Tensor here = tensor.to(c10::kCPU);
    const at::Tensor plain =
        internal::is_flat(here) ? here : here.clone(at::MemoryFormat::Contiguous);
    hash.add({static_cast<const std::byte*>(plain.const_data_ptr()), plain.nbytes()});
  }
  return hash.value();
}

std::uint64_t verify_equal(Communicator& communicator, at::ArrayRef<at::Tensor> tensors) {
  const std::uint64_t own = digest(tensors);
  const std::vector<std::string> all = communicator.allgather_obj(internal::to_hex(own));
  std::string different;
  for (std::size_t r = 0; r < all.size(); ++r) {
    if (all[r] != all.front()) {
      different += (different.empty() ? "" : ", ") + std::string("rank ") + std::to_string(r) +
                   " has " + all[r];
    }
  }
  if (!different.empty()) {
    internal::fail_on_all_ranks(communicator, "ranks have different tensors: rank 0 has digest " +
                                                  all.front() + ", " + different);
  }
  return own;
}

}  // namespace chainmail
