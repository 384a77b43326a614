// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Operators of the late devices: memory, views, and what is written in place, queued.

#include <ATen/EmptyTensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/ops/_copy_from.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/view_native.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/library.h>

#include <optional>
#include <utility>
#include <vector>

#include "tests/plugin/c10d/device/late/late_allocator.h"
#include "tests/plugin/c10d/device/late/late_device.h"

namespace chainmail::testing {
namespace {

/// A tensor's place, without keeping it alive: what a kernel is given.
struct Seen {
  void* data = nullptr;
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> strides;
  c10::ScalarType type = c10::ScalarType::Float;

  explicit Seen(const at::Tensor& tensor)
      : data(tensor.data_ptr()),
        sizes(tensor.sizes().vec()),
        strides(tensor.strides().vec()),
        type(tensor.scalar_type()) {}
  at::Tensor on_cpu() const {
    return at::from_blob(data, sizes, strides, at::TensorOptions().dtype(type));
  }
};

void queue(c10::Device device, std::function<void()> kernel) {
  const c10::impl::VirtualGuardImpl devices(device.type());
  late_device(device.index())
      .queue({devices.getStreamNativeHandle(devices.getStream(device))},
             [kernel = std::move(kernel)] {
               const c10::AutoGradMode no_gradients(false);
               kernel();
               return true;
             });
}

bool is_late(const at::Tensor& tensor) {
  return tensor.defined() && tensor.device().type() == kLateDevice;
}

c10::ScalarType type_or_float(std::optional<c10::ScalarType> type) {
  return type.value_or(c10::ScalarType::Float);
}

at::Tensor empty(c10::IntArrayRef sizes, std::optional<c10::ScalarType> type,
                 std::optional<c10::Layout> /*layout*/, std::optional<c10::Device> device,
                 std::optional<bool> /*pin*/, std::optional<c10::MemoryFormat> format) {
  const c10::OptionalDeviceGuard guard(device);
  return at::detail::empty_generic(sizes, &late_allocator(),
                                   c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                   type_or_float(type), format);
}

at::Tensor empty_strided(c10::IntArrayRef sizes, c10::IntArrayRef strides,
                         std::optional<c10::ScalarType> type, std::optional<c10::Layout> /*layout*/,
                         std::optional<c10::Device> device, std::optional<bool> /*pin*/) {
  const c10::OptionalDeviceGuard guard(device);
  return at::detail::empty_strided_generic(sizes, strides, &late_allocator(),
                                           c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                           type_or_float(type));
}

// Memory of the host, as with a copy from pageable memory, is read at once.
at::Tensor copy_from(const at::Tensor& source, const at::Tensor& target, bool /*non_blocking*/) {
  TORCH_CHECK(is_late(target), "the late device does not copy to the host; see now_in()");
  const Seen to(target);
  if (is_late(source)) {
    queue(target.device(), [to, from = Seen(source)] { to.on_cpu().copy_(from.on_cpu()); });
  } else {
    queue(target.device(), [to, from = source.clone()] { to.on_cpu().copy_(from); });
  }
  return target;
}

/// In place: arguments as the CPU's operator takes them, when it runs.
void queue_operator(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const std::size_t count = op.schema().arguments().size();
  const std::size_t begin = stack->size() - count;
  const c10::IValue self = (*stack)[begin];
  const auto* alias = op.schema().arguments()[0].alias_info();
  TORCH_CHECK(alias != nullptr && alias->isWrite() && self.isTensor() && is_late(self.toTensor()),
              "the late device does not compute ", op.schema().name(),
              ": only what is written in place can be late");
  std::vector<std::pair<c10::IValue, std::optional<Seen>>> arguments;
  for (std::size_t i = begin; i < stack->size(); ++i) {
    const c10::IValue& argument = (*stack)[i];
    const bool is_seen = argument.isTensor() && is_late(argument.toTensor());
    TORCH_CHECK(!argument.isTensorList(), "the late device takes no lists of tensors");
    arguments.emplace_back(is_seen ? c10::IValue() : argument,
                           is_seen ? std::optional<Seen>(argument.toTensor()) : std::nullopt);
  }
  queue(self.toTensor().device(), [op, arguments = std::move(arguments)] {
    torch::jit::Stack late;
    for (const auto& [value, seen] : arguments) {
      late.push_back(seen ? c10::IValue(seen->on_cpu()) : value);
    }
    op.callBoxed(&late);
  });
  torch::jit::drop(*stack, count);
  torch::jit::push(*stack, self);
}

class LateHooks final : public at::PrivateUse1HooksInterface {
 public:
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex /*device*/) const override { return true; }
};

[[maybe_unused]] const bool is_registered = [] {
  static LateHooks hooks;
  c10::register_privateuse1_backend("late");
  at::RegisterPrivateUse1HooksInterface(&hooks);
  return true;
}();

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&queue_operator>());
}
TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", &empty);
  m.impl("empty_strided", &empty_strided);
  m.impl("as_strided", &at::native::as_strided_tensorimpl);
  m.impl("view", &at::native::view);
  m.impl("_copy_from", &copy_from);
}

}  // namespace

at::Tensor late_tensor(const at::Tensor& values, int index) {
  const c10::Device device(kLateDevice, static_cast<c10::DeviceIndex>(index));
  at::Tensor tensor = at::empty(values.sizes(), values.options().device(device));
  tensor.copy_(values);
  return tensor;
}

at::Tensor now_in(const at::Tensor& tensor) { return Seen(tensor).on_cpu().clone(); }

}  // namespace chainmail::testing
