// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/c10d/work/profiling.h"

#include <ATen/record_function.h>
#include <c10/util/ThreadLocalDebugInfo.h>

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
  // All that an observer looks for in the thread that ends it. The rest of the caller's state may
  // belong to Python, whose lock is not to be taken here: who has it may wait for this end.
  return [record, info = c10::ThreadLocalDebugInfo::current()] {
    const c10::DebugInfoGuard guard(info);
    record->end();
  };
}

}  // namespace chainmail::internal
