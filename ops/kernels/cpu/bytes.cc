// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include <cstdint>
#include <cstring>
#include <string>

#include "base/error.h"
#include "ops/kernels/cpu/kernels.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace chainmail::ops {
namespace {

template <typename T>
void divide(std::byte* data, std::size_t count, std::int64_t divisor) {
  for (std::size_t i = 0; i < count; ++i) {
    T value;
    std::memcpy(&value, data + i * sizeof(T), sizeof(T));
    value = static_cast<T>(value / divisor);
    std::memcpy(data + i * sizeof(T), &value, sizeof(T));
  }
}

// Beyond this a copy would push everything else out of a core's caches; ordinary stores would also
// read each destination line before overwriting it.
constexpr std::size_t kStreamingBytes = std::size_t{4} << 20;

}  // namespace

void divide_in_place(std::byte* data, std::size_t count, DataType type, std::int64_t divisor) {
  if (divisor < 1 || is_floating_point(type)) {
    throw InvalidArgument(std::string("cannot divide ") + to_string(type) + " by " +
                          std::to_string(divisor) +
                          ": this is for integers and a divisor of at least 1");
  }
  switch (type) {
    case DataType::kUInt8:
      return divide<std::uint8_t>(data, count, divisor);
    case DataType::kInt8:
      return divide<std::int8_t>(data, count, divisor);
    case DataType::kInt16:
      return divide<std::int16_t>(data, count, divisor);
    case DataType::kInt32:
      return divide<std::int32_t>(data, count, divisor);
    case DataType::kInt64:
      return divide<std::int64_t>(data, count, divisor);
    case DataType::kBool:
    case DataType::kFloat16:
    case DataType::kBFloat16:
    case DataType::kFloat32:
    case DataType::kFloat64:
      return;
  }
}

void copy_bytes(std::byte* destination, const std::byte* source, std::size_t bytes) {
#if defined(__SSE2__)
  if (bytes >= kStreamingBytes) {
    const std::size_t head = (64 - reinterpret_cast<std::uintptr_t>(destination) % 64) % 64;
    std::memcpy(destination, source, head);
    std::size_t i = head;
    for (; bytes - i >= 64; i += 64) {
      const auto* from = reinterpret_cast<const __m128i*>(source + i);
      auto* to = reinterpret_cast<__m128i*>(destination + i);
      const __m128i a = _mm_loadu_si128(from);
      const __m128i b = _mm_loadu_si128(from + 1);
      const __m128i c = _mm_loadu_si128(from + 2);
      const __m128i d = _mm_loadu_si128(from + 3);
      _mm_stream_si128(to, a);
      _mm_stream_si128(to + 1, b);
      _mm_stream_si128(to + 2, c);
      _mm_stream_si128(to + 3, d);
    }
    // Streaming stores are not ordered by the release stores that publish the data.
    _mm_sfence();
    std::memcpy(destination + i, source + i, bytes - i);
    return;
  }
#endif
  if (bytes != 0) std::memcpy(destination, source, bytes);
}

}  // namespace chainmail::ops
