// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include <chainmail/nn/allreduce_persistent.h>

#include <unordered_set>
#include <utility>
#include <vector>

#include <torch/torch.h>

#include "plugin/train/communicator/communicator_impl.h"
#include "plugin/train/tensor_checks.h"

namespace chainmail {

AllreducePersistent::AllreducePersistent(ModuleRef model,
                                         std::shared_ptr<Communicator> communicator)
    : model_(std::move(model)), communicator_(std::move(communicator)) {
  if (!model_ || !communicator_) {
    throw InvalidArgument("AllreducePersistent needs a model and a communicator");
  }
}

void AllreducePersistent::operator()() {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> buffers;
  std::unordered_set<const c10::TensorImpl*> seen;  // modules may share them
  for (const at::Tensor& buffer : model_.buffers()) {
    if (buffer.defined() && buffer.is_floating_point() &&
        seen.insert(buffer.unsafeGetTensorImpl()).second) {
      buffers.push_back(buffer);
    }
  }
  communicator_->impl().check_usable();
  internal::check_dense(buffers, "AllreducePersistent");
  communicator_->impl().reduce_all(buffers, ops::ReduceOp::kAvg, ops::WireFormat::kNative);
}

}  // namespace chainmail
