// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/device/cuda/cuda_device.h"

#include <cuda.h>
#include <cuda_runtime.h>

#include "ops/device/cuda/relaxed_capture.h"
#include "ops/kernels/cuda/launch.h"

namespace chainmail::ops::cuda {
namespace {

cudaStream_t stream_of(DeviceStream stream) { return static_cast<cudaStream_t>(stream.handle); }
cudaEvent_t event_of(DeviceEvent event) { return static_cast<cudaEvent_t>(event.handle); }

// A call of ours leaves no error behind that a later one, or torch's, would take for its own.
DeviceCode taken(cudaError_t code) {
  if (code != cudaSuccess) static_cast<void>(cudaGetLastError());
  return static_cast<DeviceCode>(code);
}

template <class Function>
void find(const char* name, Function& function) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result{};
  // As of CUDA 12, whose variants of these functions this file is compiled with.
  const cudaError_t code =
      cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &result);
  if (code == cudaSuccess && result == cudaDriverEntryPointSuccess) {
    function = reinterpret_cast<Function>(found);
  } else {
    static_cast<void>(cudaGetLastError());
  }
}

/// Members are null where the driver has no such function, all of them where there is no driver.
struct Driver {
  decltype(&cuStreamWaitValue32) wait_value = nullptr;
  decltype(&cuDevicePrimaryCtxGetState) context_state = nullptr;
};

const Driver& driver() noexcept {
  static const Driver found = [] {
    Driver functions;
    find("cuStreamWaitValue32", functions.wait_value);
    find("cuDevicePrimaryCtxGetState", functions.context_state);
    return functions;
  }();
  return found;
}

class CudaDevice final : public DeviceApi, public DeviceKernels {
 public:
  DeviceKernels& kernels() noexcept override { return *this; }

  DeviceCode use(int device, int& previous) noexcept override {
    const cudaError_t code = cudaGetDevice(&previous);
    if (code != cudaSuccess) return taken(code);
    return previous == device ? kDeviceSuccess : taken(cudaSetDevice(device));
  }

  void restore(int previous) noexcept override {
    int current = 0;
    if (cudaGetDevice(&current) != cudaSuccess || current == previous) return;
    // A thread that has used no device is told 0; going back there would make a context on it.
    unsigned flags = 0;
    int is_active = 0;
    const auto context_state = driver().context_state;
    if (context_state == nullptr || context_state(previous, &flags, &is_active) != CUDA_SUCCESS ||
        is_active == 0) {
      return;
    }
    static_cast<void>(taken(cudaSetDevice(previous)));
  }

  DeviceCode create_stream(DeviceStream& stream) noexcept override {
    int least = 0;
    int greatest = 0;
    if (const cudaError_t code = cudaDeviceGetStreamPriorityRange(&least, &greatest);
        code != cudaSuccess) {
      return taken(code);
    }
    cudaStream_t made = nullptr;
    const DeviceCode code =
        taken(cudaStreamCreateWithPriority(&made, cudaStreamNonBlocking, greatest));
    stream.handle = made;
    return code;
  }

  void destroy_stream(DeviceStream stream) noexcept override {
    if (stream.handle != nullptr) static_cast<void>(taken(cudaStreamDestroy(stream_of(stream))));
  }

  DeviceCode create_event(DeviceEvent& event) noexcept override {
    cudaEvent_t made = nullptr;
    const DeviceCode code = taken(cudaEventCreateWithFlags(&made, cudaEventDisableTiming));
    event.handle = made;
    return code;
  }

  void destroy_event(DeviceEvent event) noexcept override {
    if (event.handle != nullptr) static_cast<void>(taken(cudaEventDestroy(event_of(event))));
  }

  DeviceCode record(DeviceEvent event, DeviceStream stream) noexcept override {
    return taken(cudaEventRecord(event_of(event), stream_of(stream)));
  }

  DeviceCode wait(DeviceStream stream, DeviceEvent event) noexcept override {
    return taken(cudaStreamWaitEvent(stream_of(stream), event_of(event), 0));
  }

  DeviceCode query(DeviceEvent event) noexcept override {
    static_assert(static_cast<int>(cudaErrorNotReady) == kDeviceNotReady);
    const RelaxedCapture relaxed;
    return taken(cudaEventQuery(event_of(event)));
  }

  DeviceCode capture_id(DeviceStream stream, std::uint64_t& id) noexcept override {
    id = 0;
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    unsigned long long own = 0;
    // The legacy default stream cannot be captured, and must not be asked while another is.
    if (stream.handle == nullptr) return kDeviceSuccess;
    const cudaError_t code = cudaStreamGetCaptureInfo(stream_of(stream), &status, &own);
    if (code != cudaSuccess) return taken(code);
    if (status == cudaStreamCaptureStatusInvalidated) {
      return static_cast<DeviceCode>(cudaErrorStreamCaptureInvalidated);
    }
    if (status == cudaStreamCaptureStatusActive) id = own;
    return kDeviceSuccess;
  }

  DeviceCode allocate(void*& memory, std::size_t bytes) noexcept override {
    const RelaxedCapture relaxed;
    return taken(cudaMalloc(&memory, bytes));
  }

  void free(void* memory) noexcept override {
    const RelaxedCapture relaxed;
    if (memory != nullptr) static_cast<void>(taken(cudaFree(memory)));
  }

  DeviceCode allocate_pinned(void*& memory, std::size_t bytes) noexcept override {
    const RelaxedCapture relaxed;
    // With unified addressing, which every 64-bit Linux has, the device uses the host's address.
    return taken(cudaHostAlloc(&memory, bytes, cudaHostAllocPortable | cudaHostAllocMapped));
  }

  void free_pinned(void* memory) noexcept override {
    const RelaxedCapture relaxed;
    if (memory != nullptr) static_cast<void>(taken(cudaFreeHost(memory)));
  }

  DeviceCode copy(void* target, const void* source, std::size_t bytes,
                  DeviceStream stream) noexcept override {
    return taken(cudaMemcpyAsync(target, source, bytes, cudaMemcpyDefault, stream_of(stream)));
  }

  DeviceCode hold(DeviceStream stream, std::uint32_t* flag, std::uint32_t value) noexcept override {
    const auto wait_value = driver().wait_value;
    if (wait_value == nullptr) return static_cast<DeviceCode>(cudaErrorNotSupported);
    void* mapped = nullptr;
    if (const cudaError_t code = cudaHostGetDevicePointer(&mapped, flag, 0); code != cudaSuccess) {
      return taken(code);
    }
    const CUresult result = wait_value(stream_of(stream), reinterpret_cast<CUdeviceptr>(mapped),
                                       value, CU_STREAM_WAIT_VALUE_GEQ);
    // The numbers of the driver's errors are those of the runtime's.
    return static_cast<DeviceCode>(result);
  }

  std::string describe(DeviceCode code) const override {
    const auto error = static_cast<cudaError_t>(code);
    return std::string(cudaGetErrorName(error)) + ": " + cudaGetErrorString(error);
  }

  DeviceCode convert(void* target, DataType target_type, const void* source, DataType source_type,
                     std::size_t count, double scale, std::uint32_t* flag,
                     DeviceStream stream) noexcept override {
    return taken(launch_convert(target, target_type, source, source_type, count, scale, flag,
                                stream_of(stream)));
  }

  DeviceCode round_parts(void* messages, std::size_t part, const void* source, std::size_t count,
                         double scale, WireFormat wire, DeviceStream stream) noexcept override {
    return taken(launch_round_parts(messages, part, source, count, scale, wire, stream_of(stream)));
  }

  DeviceCode add_parts(void* result, const void* messages, std::size_t part, int message_count,
                       int own, const void* own_message, std::size_t count, WireFormat wire,
                       bool is_mean, DeviceStream stream) noexcept override {
    return taken(launch_add_parts(result, messages, part, message_count, own, own_message, count,
                                  wire, is_mean, stream_of(stream)));
  }

  DeviceCode widen_parts(void* target, const void* messages, std::size_t part, std::size_t count,
                         WireFormat wire, std::uint32_t* flag,
                         DeviceStream stream) noexcept override {
    return taken(launch_widen_parts(target, messages, part, count, wire, flag, stream_of(stream)));
  }

  DeviceCode divide(void* data, DataType type, std::size_t count, std::int64_t divisor,
                    DeviceStream stream) noexcept override {
    return taken(launch_divide(data, type, count, divisor, stream_of(stream)));
  }

  DeviceCode pack(const PackBlock* blocks, std::size_t block_count, void* buffer,
                  DataType buffer_type, double scale, std::uint32_t* flag,
                  DeviceStream stream) noexcept override {
    return taken(
        launch_pack(blocks, block_count, buffer, buffer_type, scale, flag, stream_of(stream)));
  }

  DeviceCode unpack(const PackBlock* blocks, std::size_t block_count, const void* buffer,
                    DataType buffer_type, double scale, std::uint32_t* flag,
                    DeviceStream stream) noexcept override {
    return taken(
        launch_unpack(blocks, block_count, buffer, buffer_type, scale, flag, stream_of(stream)));
  }
};

}  // namespace

std::unique_ptr<DeviceApi> make_cuda_device() { return std::make_unique<CudaDevice>(); }

}  // namespace chainmail::ops::cuda
