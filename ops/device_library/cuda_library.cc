// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// libchainmail_cuda.so: DeviceLibrary over CUDA and NCCL.

#include <cuda_runtime.h>

#include <memory>
#include <mutex>
#include <string>

#include "ops/comm/nccl/nccl_symbols.h"
#include "ops/device/cuda/cuda_device.h"
#include "ops/device_library/device_library.h"

namespace chainmail::ops::cuda {
namespace {

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

/// Why there is no GPU to use; empty when there is one.
std::string device_refusal() {
  int driver_version = 0;
  static_cast<void>(cudaDriverGetVersion(&driver_version));
  if (driver_version == 0) {
    return "no NVIDIA driver is installed on this machine (libcuda.so.1 is missing); use --device "
           "cpu";
  }
  int devices = 0;
  const cudaError_t code = cudaGetDeviceCount(&devices);
  if (code == cudaSuccess && devices > 0) return {};
  static_cast<void>(cudaGetLastError());
  if (code == cudaErrorInsufficientDriver) {
    int runtime_version = 0;
    static_cast<void>(cudaRuntimeGetVersion(&runtime_version));
    return "the NVIDIA driver knows CUDA " + version_text(driver_version) +
           ", this library was built with CUDA " + version_text(runtime_version) +
           "; update the driver";
  }
  if (code == cudaErrorNoDevice || code == cudaSuccess) {
    return "no GPU is visible (is CUDA_VISIBLE_DEVICES empty?); use --device cpu";
  }
  return std::string("no GPU can be used: ") + cudaGetErrorString(code);
}

class CudaLibrary final : public DeviceLibrary {
 public:
  std::string refusal() override {
    const std::lock_guard lock(mutex_);
    if (is_found_) return {};
    if (std::string reason = device_refusal(); !reason.empty()) return reason;
    std::string reason = find_nccl(symbols_);
    is_found_ = reason.empty();
    return reason;
  }
  std::string describe() override {
    int runtime_version = 0;
    static_cast<void>(cudaRuntimeGetVersion(&runtime_version));
    int device = 0;
    cudaDeviceProp properties{};
    const bool has_name = cudaGetDevice(&device) == cudaSuccess &&
                          cudaGetDeviceProperties(&properties, device) == cudaSuccess;
    const int nccl = symbols_.version;
    return (has_name ? std::string(properties.name) + ", " : std::string()) + "CUDA " +
           version_text(runtime_version) + ", NCCL " + std::to_string(nccl / 10000) + "." +
           std::to_string(nccl / 100 % 100) + "." + std::to_string(nccl % 100) + " (" +
           symbols_.path + ")";
  }
  DeviceApi& device() override { return *device_; }
  NcclApi& nccl() override { return *nccl_; }

  static CudaLibrary& instance() {
    // Never deleted: CUDA's own end may come first when the process does.
    static auto& library = *new CudaLibrary();
    return library;
  }

 private:
  std::mutex mutex_;
  bool is_found_ = false;
  NcclSymbols symbols_;
  const std::unique_ptr<DeviceApi> device_ = make_cuda_device();
  const std::unique_ptr<NcclApi> nccl_ = make_nccl(symbols_);
};

}  // namespace
}  // namespace chainmail::ops::cuda

extern "C" __attribute__((visibility("default"))) chainmail::ops::DeviceLibrary*
chainmail_device_library(std::uint32_t version) {
  using chainmail::ops::cuda::CudaLibrary;
  return version == chainmail::ops::kDeviceLibraryVersion ? &CudaLibrary::instance() : nullptr;
}
