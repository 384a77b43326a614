// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// DeviceApi over CUDA's runtime.
//
// Any thread; holds nothing.

#pragma once

#include "ops/device/device_api.h"

namespace chainmail::ops::cuda {

class CudaDevice final : public DeviceApi, public DeviceKernels {
 public:
  DeviceCode use(int device, int& previous) noexcept override;
  void restore(int previous) noexcept override;
  DeviceCode create_stream(DeviceStream& stream) noexcept override;
  void destroy_stream(DeviceStream stream) noexcept override;
  DeviceCode create_event(DeviceEvent& event) noexcept override;
  void destroy_event(DeviceEvent event) noexcept override;
  DeviceCode record(DeviceEvent event, DeviceStream stream) noexcept override;
  DeviceCode wait(DeviceStream stream, DeviceEvent event) noexcept override;
  DeviceCode query(DeviceEvent event) noexcept override;
  DeviceCode capture_id(DeviceStream stream, std::uint64_t& id) noexcept override;
  DeviceCode allocate(void*& memory, std::size_t bytes) noexcept override;
  void free(void* memory) noexcept override;
  DeviceCode allocate_pinned(void*& memory, std::size_t bytes) noexcept override;
  void free_pinned(void* memory) noexcept override;
  DeviceCode copy(void* target, const void* source, std::size_t bytes,
                  DeviceStream stream) noexcept override;
  DeviceCode hold(DeviceStream stream, std::uint32_t* flag, std::uint32_t value) noexcept override;
  DeviceKernels& kernels() noexcept override { return *this; }
  std::string describe(DeviceCode code) const override;

  DeviceCode convert(void* target, DataType target_type, const void* source, DataType source_type,
                     std::size_t count, double scale, std::uint32_t* flag,
                     DeviceStream stream) noexcept override;
  DeviceCode round_parts(void* messages, std::size_t part, const void* source, std::size_t count,
                         double scale, WireFormat wire, DeviceStream stream) noexcept override;
  DeviceCode add_parts(void* result, const void* messages, std::size_t part, int message_count,
                       int own, const void* own_message, std::size_t count, WireFormat wire,
                       bool is_mean, DeviceStream stream) noexcept override;
  DeviceCode widen_parts(void* target, const void* messages, std::size_t part, std::size_t count,
                         WireFormat wire, std::uint32_t* flag,
                         DeviceStream stream) noexcept override;
  DeviceCode divide(void* data, DataType type, std::size_t count, std::int64_t divisor,
                    DeviceStream stream) noexcept override;
  DeviceCode pack(const PackBlock* blocks, std::size_t block_count, void* buffer,
                  DataType buffer_type, double scale, std::uint32_t* flag,
                  DeviceStream stream) noexcept override;
  DeviceCode unpack(const PackBlock* blocks, std::size_t block_count, const void* buffer,
                    DataType buffer_type, double scale, std::uint32_t* flag,
                    DeviceStream stream) noexcept override;
};

}  // namespace chainmail::ops::cuda
