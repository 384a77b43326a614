// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/c10d/work/profiling.h"

#include <ATen/ThreadLocalState.h>
#include <ATen/record_function.h>

#include <memory>
#include <utility>
#include <vector>

namespace chainmail::internal {

ProfiledCall::ProfiledCall(const char* title, at::TensorList tensors) {
  auto callbacks = at::getStepCallbacksUnlessEmpty(at::RecordScope::USER_SCOPE);
  if (!callbacks.has_value()) return;
  const auto record = std::make_shared<at::RecordFunction>(std::move(*callbacks));
  record->_setAsync();  // another thread may end it
  const std::vector<c10::IValue> inputs(tensors.begin(), tensors.end());
  record->before(title, c10::ArrayRef<const c10::IValue>(inputs.data(), inputs.size()));
  end_ = at::wrapPropagateTLSState([record] { record->end(); });
}

ProfiledCall::~ProfiledCall() {
  if (end_) end_();
}

void ProfiledCall::end_with(ops::Operation& operation) {
  if (end_) operation.on_done(std::exchange(end_, nullptr));
}

}  // namespace chainmail::internal
