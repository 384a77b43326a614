// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>

#include "base/error.h"
#include "ops/kernels/cpu/kernels.h"
#include "ops/kernels/with_type.h"

namespace chainmail::ops {
namespace {

template <typename T>
void divide(std::byte* data, std::size_t count, std::int64_t divisor) {
  for (std::size_t i = 0; i < count; ++i) {
    T value;
    std::memcpy(&value, data + i * sizeof(T), sizeof(T));
    // Not in int64: that has no room for the upper half of uint64.
    using Wide = std::conditional_t<std::is_unsigned_v<T>, std::uint64_t, std::int64_t>;
    value = static_cast<T>(static_cast<Wide>(value) / static_cast<Wide>(divisor));
    std::memcpy(data + i * sizeof(T), &value, sizeof(T));
  }
}

}  // namespace

void divide_in_place(std::byte* data, std::size_t count, DataType type, std::int64_t divisor) {
  if (divisor < 1 || is_floating_point(type)) {
    throw InvalidArgument(std::string("cannot divide ") + to_string(type) + " by " +
                          std::to_string(divisor) +
                          ": this is for integers and a divisor of at least 1");
  }
  with_integer(
      type, [&](auto integer) { divide<decltype(integer)>(data, count, divisor); },
      [] { /* bool is as it is */ });
}

}  // namespace chainmail::ops
