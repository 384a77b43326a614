// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/c10d/work/profiling.h"

#include <ATen/ThreadLocalState.h>
#include <ATen/record_function.h>

#include <memory>
#include <utility>
#include <vector>

namespace chainmail::internal {

std::function<void()> begin_profiled(const char* title, at::TensorList tensors) {
  auto callbacks = at::getStepCallbacksUnlessEmpty(at::RecordScope::USER_SCOPE);
  if (!callbacks.has_value()) return nullptr;
  const auto record = std::make_shared<at::RecordFunction>(std::move(*callbacks));
  record->_setAsync();  // another thread may end it
  const std::vector<c10::IValue> inputs(tensors.begin(), tensors.end());
  record->before(title, c10::ArrayRef<const c10::IValue>(inputs.data(), inputs.size()));
  return at::wrapPropagateTLSState([record] { record->end(); });
}

}  // namespace chainmail::internal
