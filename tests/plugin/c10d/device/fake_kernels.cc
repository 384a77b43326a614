// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "tests/plugin/c10d/device/fake_kernels.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/ops/from_blob.h>
#include <torch/library.h>

#include <utility>
#include <vector>

#include "tests/plugin/c10d/device/fake_device.h"

namespace chainmail::testing {
namespace {

at::Tensor as_fake_tensor(const at::Tensor& tensor, c10::Device device) {
  return at::for_blob(tensor.data_ptr(), tensor.sizes())
      .strides(tensor.strides())
      .context(new at::Tensor(tensor), [](void* held) { delete static_cast<at::Tensor*>(held); })
      .options(tensor.options().device(device))
      .target_device(device)
      .make_tensor();
}

/// One call of an operator: its arguments go to the CPU, its results back.
class HostCall {
 public:
  void to_cpu(c10::IValue& argument) {
    if (argument.isTensor()) {
      argument = convert(argument.toTensor());
    } else if (argument.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& tensor : argument.toTensorVector()) list.push_back(convert(tensor));
      argument = list;
    } else if (argument.isDevice() && argument.toDevice().type() == kFakeDevice) {
      device_ = argument.toDevice();
      argument = c10::Device(c10::kCPU);
    }
  }

  void from_cpu(c10::IValue& result) const {
    if (!result.isTensor() || !result.toTensor().defined()) return;
    const at::Tensor tensor = result.toTensor();
    for (const auto& [cpu, fake] : converted_) {
      if (cpu.is_same(tensor)) {  // written in place
        result = fake;
        return;
      }
    }
    result = as_fake_tensor(tensor, device_);
  }

 private:
  at::Tensor convert(const at::Tensor& tensor) {
    if (!tensor.defined() || tensor.device().type() != kFakeDevice) return tensor;
    device_ = tensor.device();
    converted_.emplace_back(as_cpu_tensor(tensor), tensor);
    return converted_.back().first;
  }

  c10::Device device_ = c10::Device(kFakeDevice, 0);
  std::vector<std::pair<at::Tensor, at::Tensor>> converted_;  // CPU's, fake
};

void on_host(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  HostCall call;
  const std::size_t begin = stack->size() - op.schema().arguments().size();
  for (std::size_t i = begin; i < stack->size(); ++i) call.to_cpu((*stack)[i]);
  op.callBoxed(stack);
  for (std::size_t i = begin; i < stack->size(); ++i) call.from_cpu((*stack)[i]);
}

/// Autograd asks for the stream of "the accelerator".
class FakeHooks final : public at::PrivateUse1HooksInterface {
 public:
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex /*device*/) const override { return true; }
};

[[maybe_unused]] const bool is_registered = [] {
  static FakeHooks hooks;
  c10::register_privateuse1_backend("fake");
  at::RegisterPrivateUse1HooksInterface(&hooks);
  return true;
}();

at::Tensor copy_from(const at::Tensor& source, const at::Tensor& target, bool /*non_blocking*/) {
  as_cpu_tensor(target).copy_(as_cpu_tensor(source));
  return target;
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&on_host>());
}
TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { m.impl("_copy_from", &copy_from); }

}  // namespace

at::Tensor on_fake_device(const at::Tensor& values, int device) {
  return as_fake_tensor(values.clone(),
                        c10::Device(kFakeDevice, static_cast<c10::DeviceIndex>(device)));
}

at::Tensor as_cpu_tensor(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.device().type() != kFakeDevice) return tensor;
  return at::from_blob(
      tensor.data_ptr(), tensor.sizes(), tensor.strides(), [tensor](void* /*data*/) {},
      tensor.options().device(c10::kCPU));
}

}  // namespace chainmail::testing
