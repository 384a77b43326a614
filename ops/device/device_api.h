// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What the engine needs of a GPU: streams, events, memory and our kernels, without a type of CUDA.
// libchainmail_cuda.so implements it; tests put host memory and queues in its place.
//
// Thread rule: any thread. Nothing here blocks or throws, but for the allocations, which may wait
// for the device. Functions act on the calling thread's current device: see use().

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "ops/types.h"

namespace chainmail::ops {

/// A cudaError_t.
using DeviceCode = int;
inline constexpr DeviceCode kDeviceSuccess = 0;
inline constexpr DeviceCode kDeviceNotReady = 600;

/// A cudaStream_t; null is the legacy default stream.
struct DeviceStream {
  void* handle = nullptr;
  bool operator==(const DeviceStream&) const = default;
};

/// A cudaEvent_t.
struct DeviceEvent {
  void* handle = nullptr;
  bool operator==(const DeviceEvent&) const = default;
};

struct PackBlock;

/// Kernels; each is queued on `stream`. Results are those of ops/kernels/pack.h and
/// ops/kernels/cpu, bit for bit, but for NaN: there is one NaN per type here.
class DeviceKernels {
 public:
  virtual ~DeviceKernels() = default;

  /// target[i] = source[i] * scale, the product in float32 (float64 when source is), then rounded
  /// once to nearest even. Both floating point, in any pairing; target may be source. `flag`, when
  /// not null, becomes 1 when a result is infinite or NaN; it is memory that the device can write.
  virtual DeviceCode convert(void* target, DataType target_type, const void* source,
                             DataType source_type, std::size_t count, double scale,
                             std::uint32_t* flag, DeviceStream stream) noexcept = 0;

  // The 16-bit wire: rows of messages of `part` elements, see wire_stride(). Messages lie on 16
  // bytes, float32 elements anywhere.

  /// messages = source[i] * scale, the product in float32, rounded once.
  virtual DeviceCode round_parts(void* messages, std::size_t part, const void* source,
                                 std::size_t count, double scale, WireFormat wire,
                                 DeviceStream stream) noexcept = 0;

  /// The message `result` of `count` elements, at most `part`, = the sum of message_count others in
  /// their order, in float32, rounded once; see sum_from_wire(). Message `own` is at `own_message`,
  /// which `result` may be; the others are in a row.
  virtual DeviceCode add_parts(void* result, const void* messages, std::size_t part,
                               int message_count, int own, const void* own_message,
                               std::size_t count, WireFormat wire, bool is_mean,
                               DeviceStream stream) noexcept = 0;

  /// target[i] = messages, as float32. `flag` as in convert().
  virtual DeviceCode widen_parts(void* target, const void* messages, std::size_t part,
                                 std::size_t count, WireFormat wire, std::uint32_t* flag,
                                 DeviceStream stream) noexcept = 0;

  /// data[i] /= divisor toward zero, for integers.
  virtual DeviceCode divide(void* data, DataType type, std::size_t count, std::int64_t divisor,
                            DeviceStream stream) noexcept = 0;

  /// All tensors of a table of `block_count` blocks in device memory (see plan_pack) into or out of
  /// `buffer`, with one launch.
  virtual DeviceCode pack(const PackBlock* blocks, std::size_t block_count, void* buffer,
                          DataType buffer_type, double scale, std::uint32_t* flag,
                          DeviceStream stream) noexcept = 0;
  virtual DeviceCode unpack(const PackBlock* blocks, std::size_t block_count, const void* buffer,
                            DataType buffer_type, double scale, std::uint32_t* flag,
                            DeviceStream stream) noexcept = 0;
};

class DeviceApi {
 public:
  virtual ~DeviceApi() = default;

  /// Makes `device` the calling thread's; `previous` is the one before.
  virtual DeviceCode use(int device, int& previous) noexcept = 0;
  /// Goes back to what use() found; not to a device that this process has not used, since that
  /// would take hundreds of megabytes of it.
  virtual void restore(int previous) noexcept = 0;

  /// Of high priority, not ordered after the legacy default stream.
  virtual DeviceCode create_stream(DeviceStream& stream) noexcept = 0;
  virtual void destroy_stream(DeviceStream stream) noexcept = 0;
  /// Without timing.
  virtual DeviceCode create_event(DeviceEvent& event) noexcept = 0;
  virtual void destroy_event(DeviceEvent event) noexcept = 0;
  virtual DeviceCode record(DeviceEvent event, DeviceStream stream) noexcept = 0;
  /// What is queued on `stream` from now on waits for what `event` recorded last.
  virtual DeviceCode wait(DeviceStream stream, DeviceEvent event) noexcept = 0;
  /// Success when what was recorded last is done, kDeviceNotReady, or the device's error.
  virtual DeviceCode query(DeviceEvent event) noexcept = 0;
  /// `id` is 0 unless the stream is being captured into a graph.
  virtual DeviceCode capture_id(DeviceStream stream, std::uint64_t& id) noexcept = 0;

  virtual DeviceCode allocate(void*& memory, std::size_t bytes) noexcept = 0;
  virtual void free(void* memory) noexcept = 0;
  /// Host memory that the device reads and writes at the same address.
  virtual DeviceCode allocate_pinned(void*& memory, std::size_t bytes) noexcept = 0;
  virtual void free_pinned(void* memory) noexcept = 0;
  /// In any direction between device and pinned memory.
  virtual DeviceCode copy(void* target, const void* source, std::size_t bytes,
                          DeviceStream stream) noexcept = 0;
  /// What is queued on `stream` from now on waits until *flag >= value; `flag` is pinned memory
  /// that a thread of this process writes.
  virtual DeviceCode hold(DeviceStream stream, std::uint32_t* flag,
                          std::uint32_t value) noexcept = 0;

  virtual DeviceKernels& kernels() noexcept = 0;
  virtual std::string describe(DeviceCode code) const = 0;
};

}  // namespace chainmail::ops
