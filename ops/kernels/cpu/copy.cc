// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include <cstdint>
#include <cstring>

#include "ops/kernels/cpu/kernels.h"
#include "ops/kernels/cpu/streams.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/kernels/cpu/copy.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, as Highway asks.
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace chainmail::ops {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

/// Copies the four streams of `length` bytes each.
void copy_streams(std::byte* to, const std::byte* from, std::size_t length) {
  const hn::ScalableTag<std::uint8_t> d;
  const std::size_t lanes = hn::Lanes(d);
  auto* out = reinterpret_cast<std::uint8_t*>(to);
  const auto* in = reinterpret_cast<const std::uint8_t*>(from);
  for (std::size_t i = 0; i < length; i += lanes) {
    hn::Vec<decltype(d)> value[kStreams];
    for (std::size_t s = 0; s < kStreams; ++s) value[s] = hn::LoadU(d, in + s * length + i);
    for (std::size_t s = 0; s < kStreams; ++s) hn::StoreU(value[s], d, out + s * length + i);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace chainmail::ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace chainmail::ops {
namespace {
HWY_EXPORT(copy_streams);
}  // namespace

void copy_memory(std::byte* to, const std::byte* from, std::size_t bytes) {
  constexpr std::size_t kWidest = 256;  // bytes of a vector
  const std::size_t length = stream_length(bytes, 1, kWidest);
  if (length != 0) HWY_DYNAMIC_DISPATCH(copy_streams)(to, from, length);
  const std::size_t done = kStreams * length;
  if (bytes > done) std::memcpy(to + done, from + done, bytes - done);
}

}  // namespace chainmail::ops
#endif  // HWY_ONCE
