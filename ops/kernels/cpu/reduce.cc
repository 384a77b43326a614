// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include <cstdint>
#include <string>

#include "base/error.h"
#include "ops/kernels/cpu/kernels.h"
#include "ops/kernels/cpu/streams.h"
#include "ops/kernels/cpu/tree_sum.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/kernels/cpu/reduce.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, as Highway asks.
#include "hwy/highway.h"
#include "ops/kernels/cpu/halves-inl.h"

#ifndef CHAINMAIL_REDUCE_JOB_
#define CHAINMAIL_REDUCE_JOB_
namespace chainmail::ops {
namespace {
struct ReduceJob {
  std::span<std::byte* const> destinations;
  std::span<const std::byte* const> sources;
  std::size_t count;
  double scale;
  const std::uint8_t* merges;  ///< of a TreeSum; null: in the order of the sources
};

/// The most values on the stack of a sum along a tree.
constexpr std::size_t kDepth = 8;
}  // namespace
}  // namespace chainmail::ops
#endif

HWY_BEFORE_NAMESPACE();
namespace chainmail::ops {
namespace HWY_NAMESPACE {
namespace {

// How elements of one type are held in a vector: `Lane` is what is computed with, `Stored` what is
// in memory.
template <typename T>
struct Plain {
  using Lane = T;
  using Stored = T;
  template <class D>
  static HWY_INLINE hn::Vec<D> load(D d, const std::byte* from) {
    return load_anywhere(d, reinterpret_cast<const T*>(from));
  }
  template <class D>
  static HWY_INLINE void store(D d, hn::Vec<D> value, std::byte* to) {
    store_anywhere(d, value, reinterpret_cast<T*>(to));
  }
};

// Bytes that are multiplied: there is no vector product of bytes, and modulo 2^8 the upper half of
// a 16-bit product does not matter.
struct WideByte {
  using Lane = std::uint16_t;
  using Stored = std::uint8_t;
  template <class D>
  static HWY_INLINE hn::Vec<D> load(D d, const std::byte* from) {
    const hn::Rebind<std::uint8_t, D> bytes;
    return hn::PromoteTo(d, load_anywhere(bytes, reinterpret_cast<const std::uint8_t*>(from)));
  }
  template <class D>
  static HWY_INLINE void store(D d, hn::Vec<D> value, std::byte* to) {
    const hn::Rebind<std::uint8_t, D> bytes;
    const hn::RebindToSigned<D> di;
    const auto low = hn::BitCast(di, hn::And(value, hn::Set(d, 0xff)));
    store_anywhere(bytes, hn::DemoteTo(bytes, low), reinterpret_cast<std::uint8_t*>(to));
  }
};

template <class Format>
struct Half {
  using Lane = float;
  using Stored = std::uint16_t;
  template <class D>
  static HWY_INLINE hn::Vec<D> load(D d, const std::byte* from) {
    const hn::Rebind<std::uint16_t, D> bits;
    return Format::widen(d, load_anywhere(bits, reinterpret_cast<const std::uint16_t*>(from)));
  }
  template <class D>
  static HWY_INLINE void store(D d, hn::Vec<D> value, std::byte* to) {
    const hn::Rebind<std::uint16_t, D> bits;
    store_anywhere(bits, Format::round(d, value), reinterpret_cast<std::uint16_t*>(to));
  }
};

struct Sum {
  template <class D, class V>
  static HWY_INLINE V apply(D /*d*/, V a, V b) {
    return hn::Add(a, b);
  }
};
struct Product {
  template <class D, class V>
  static HWY_INLINE V apply([[maybe_unused]] D d, V a, V b) {
    if constexpr (sizeof(hn::TFromD<D>) == 8 && !hwy::IsFloat<hn::TFromD<D>>()) {
#if HWY_TARGET == HWY_SCALAR
      return hn::Set(d, hn::GetLane(a) * hn::GetLane(b));
#else
      // Not in every instruction set: (aL + aH 2^32) (bL + bH 2^32) modulo 2^64.
      const hn::Repartition<std::uint32_t, D> d32;
      const auto a32 = hn::BitCast(d32, a);
      const auto b32 = hn::BitCast(d32, b);
      const auto cross = hn::Add(hn::MulEven(hn::BitCast(d32, hn::ShiftRight<32>(a)), b32),
                                 hn::MulEven(a32, hn::BitCast(d32, hn::ShiftRight<32>(b))));
      return hn::BitCast(d, hn::Add(hn::MulEven(a32, b32), hn::ShiftLeft<32>(cross)));
#endif
    } else {
      return hn::Mul(a, b);
    }
  }
};
// Compare and select, since instruction sets differ in what their min makes of NaN and -0.
template <bool kIsMax>
struct Extreme {
  template <class D, class V>
  static HWY_INLINE V apply(D /*d*/, V a, V b) {
    if constexpr (hwy::IsFloat<hn::TFromD<D>>()) {
      const auto wins = kIsMax ? hn::Gt(a, b) : hn::Lt(a, b);
      return hn::IfThenElse(hn::Or(wins, hn::IsNaN(a)), a, b);
    } else {
      return kIsMax ? hn::Max(a, b) : hn::Min(a, b);
    }
  }
};
using Min = Extreme<false>;
using Max = Extreme<true>;
struct BitAnd {
  template <class D, class V>
  static HWY_INLINE V apply(D /*d*/, V a, V b) {
    return hn::And(a, b);
  }
};
struct BitOr {
  template <class D, class V>
  static HWY_INLINE V apply(D /*d*/, V a, V b) {
    return hn::Or(a, b);
  }
};
struct BitXor {
  template <class D, class V>
  static HWY_INLINE V apply(D /*d*/, V a, V b) {
    return hn::Xor(a, b);
  }
};

template <class Type, class D>
HWY_INLINE hn::Vec<D> scaled(D d, hn::Vec<D> value, double scale) {
  if constexpr (hwy::IsFloat<typename Type::Lane>()) {
    return hn::Mul(value, hn::Set(d, static_cast<typename Type::Lane>(scale)));
  } else {
    return value;
  }
}

// Several destinations are other ranks' buffers, whose lines lie in other cores' caches. Asked for
// with the right to write them, early, each comes over once; the plain load would bring a copy, and
// the store would then have to ask again (1 MiB in place: 31 us instead of 49).
HWY_INLINE void prefetch_to_write([[maybe_unused]] const std::byte* at,
                                  [[maybe_unused]] std::size_t bytes) {
#if defined(__x86_64__)
  // GCC takes its own builtin for a plain prefetch unless told that the CPU knows this one; where
  // it does not, it does nothing.
  constexpr std::size_t kLine = 64;
  for (std::size_t i = 0; i < bytes; i += kLine) asm volatile("prefetchw %0" : : "m"(*(at + i)));
#endif
}

/// Some vectors of every source, the first at `from` bytes, `stride` bytes apart, combined in the
/// order of the sources.
template <class Type, class Op>
struct InOrder {
  template <std::size_t kVectors, class D>
  static HWY_INLINE void combine(D d, const ReduceJob& job, std::size_t from, std::size_t stride,
                                 hn::Vec<D>* value) {
    for (std::size_t v = 0; v < kVectors; ++v) {
      value[v] = Type::load(d, job.sources[0] + from + v * stride);
    }
    const std::size_t source_count = job.sources.size();
    for (std::size_t s = 1; s < source_count; ++s) {
      const std::byte* source = job.sources[s] + from;
      for (std::size_t v = 0; v < kVectors; ++v) {
        value[v] = Op::apply(d, value[v], Type::load(d, source + v * stride));
      }
    }
  }
};

/// The same along a tree.
template <class Type, class Op>
struct AlongTree {
  template <std::size_t kVectors, class D>
  static HWY_INLINE void combine(D d, const ReduceJob& job, std::size_t from, std::size_t stride,
                                 hn::Vec<D>* value) {
    hn::Vec<D> stack[kDepth * kVectors];
    hn::Vec<D>* top = stack;
    const std::size_t source_count = job.sources.size();
    for (std::size_t s = 0; s < source_count; ++s) {
      const std::byte* source = job.sources[s] + from;
      for (std::size_t v = 0; v < kVectors; ++v) top[v] = Type::load(d, source + v * stride);
      for (int merges = job.merges[s]; merges > 0; --merges) {
        top -= kVectors;
        for (std::size_t v = 0; v < kVectors; ++v) top[v] = Op::apply(d, top[v], top[v + kVectors]);
      }
      top += kVectors;
    }
    for (std::size_t v = 0; v < kVectors; ++v) value[v] = stack[v];
  }
};

// `kVectors` at a time.
template <class Type, class Order, std::size_t kVectors, class D>
HWY_INLINE std::size_t run(D d, const ReduceJob& job, bool has_scale, const Walk& walk) {
  constexpr std::size_t kStored = sizeof(typename Type::Stored);
  const std::size_t stride = walk.stride * kStored;
  std::size_t i = walk.from;
  constexpr std::size_t kAhead = 2048 / kStored;
  const bool is_spread = kVectors > 1 && walk.step > walk.stride && job.destinations.size() > 1;
  for (; walk.to - i >= walk.step; i += walk.step) {
    if (is_spread &&
        walk.to - i >= kAhead + walk.step) {  // what follows is another rank's to write
      for (const std::byte* destination : job.destinations) {
        prefetch_to_write(destination + (i + kAhead) * kStored, walk.step * kStored);
      }
    }
    hn::Vec<D> value[kVectors];
    Order::template combine<kVectors>(d, job, i * kStored, stride, value);
    if (has_scale) {
      for (std::size_t v = 0; v < kVectors; ++v) value[v] = scaled<Type>(d, value[v], job.scale);
    }
    for (std::byte* destination : job.destinations) {
      for (std::size_t v = 0; v < kVectors; ++v) {
        Type::store(d, value[v], destination + i * kStored + v * stride);
      }
    }
  }
  return i;
}

template <class Type, class Order>
void walk_over(const ReduceJob& job) {
  using Lane = typename Type::Lane;
  const bool has_scale = hwy::IsFloat<Lane>() && job.scale != 1.0;
  const hn::ScalableTag<Lane> d;
  const std::size_t lanes = hn::Lanes(d);
  const std::size_t length = stream_length(job.count, sizeof(typename Type::Stored), lanes);
  run<Type, Order, kStreams>(d, job, has_scale, {0, length, lanes, length});
  std::size_t done = kStreams * length;
  done = run<Type, Order, 4>(d, job, has_scale, {done, job.count, 4 * lanes, lanes});
  done = run<Type, Order, 1>(d, job, has_scale, {done, job.count, lanes, lanes});
  run<Type, Order, 1>(hn::CappedTag<Lane, 1>(), job, has_scale, {done, job.count, 1, 1});
}

template <class Type, class Op>
void reduce_as(const ReduceJob& job) {
  walk_over<Type, InOrder<Type, Op>>(job);
}

// Sums, products and bits do not depend on the sign, so signed integers take the unsigned code.
template <typename Signed, typename Unsigned>
void reduce_integers(const ReduceJob& job, ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAvg:
      return reduce_as<Plain<Unsigned>, Sum>(job);
    case ReduceOp::kProduct:
      if constexpr (sizeof(Unsigned) == 1) {
        return reduce_as<WideByte, Product>(job);
      } else {
        return reduce_as<Plain<Unsigned>, Product>(job);
      }
    case ReduceOp::kMin:
      return reduce_as<Plain<Signed>, Min>(job);
    case ReduceOp::kMax:
      return reduce_as<Plain<Signed>, Max>(job);
    case ReduceOp::kBitAnd:
      return reduce_as<Plain<Unsigned>, BitAnd>(job);
    case ReduceOp::kBitOr:
      return reduce_as<Plain<Unsigned>, BitOr>(job);
    case ReduceOp::kBitXor:
      return reduce_as<Plain<Unsigned>, BitXor>(job);
  }
}

void reduce_bools(const ReduceJob& job, ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAvg:
    case ReduceOp::kMax:
    case ReduceOp::kBitOr:
      return reduce_as<Plain<std::uint8_t>, BitOr>(job);
    case ReduceOp::kProduct:
    case ReduceOp::kMin:
    case ReduceOp::kBitAnd:
      return reduce_as<Plain<std::uint8_t>, BitAnd>(job);
    case ReduceOp::kBitXor:
      return reduce_as<Plain<std::uint8_t>, BitXor>(job);
  }
}

template <class Type>
void reduce_floats(const ReduceJob& job, ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAvg:
      return reduce_as<Type, Sum>(job);
    case ReduceOp::kProduct:
      return reduce_as<Type, Product>(job);
    case ReduceOp::kMin:
      return reduce_as<Type, Min>(job);
    case ReduceOp::kMax:
      return reduce_as<Type, Max>(job);
    case ReduceOp::kBitAnd:
    case ReduceOp::kBitOr:
    case ReduceOp::kBitXor:
      return;  // refused before
  }
}

void reduce_any(const ReduceJob& job, DataType type, ReduceOp op) {
  switch (type) {
    case DataType::kUInt8:
      return reduce_integers<std::uint8_t, std::uint8_t>(job, op);
    case DataType::kInt8:
      return reduce_integers<std::int8_t, std::uint8_t>(job, op);
    case DataType::kInt16:
      return reduce_integers<std::int16_t, std::uint16_t>(job, op);
    case DataType::kInt32:
      return reduce_integers<std::int32_t, std::uint32_t>(job, op);
    case DataType::kInt64:
      return reduce_integers<std::int64_t, std::uint64_t>(job, op);
    case DataType::kUInt16:
      return reduce_integers<std::uint16_t, std::uint16_t>(job, op);
    case DataType::kUInt32:
      return reduce_integers<std::uint32_t, std::uint32_t>(job, op);
    case DataType::kUInt64:
      return reduce_integers<std::uint64_t, std::uint64_t>(job, op);
    case DataType::kBool:
      return reduce_bools(job, op);
    case DataType::kFloat16:
      return reduce_floats<Half<Float16>>(job, op);
    case DataType::kBFloat16:
      return reduce_floats<Half<BFloat16>>(job, op);
    case DataType::kFloat32:
      return reduce_floats<Plain<float>>(job, op);
    case DataType::kFloat64:
      return reduce_floats<Plain<double>>(job, op);
  }
}

void sum_along(const ReduceJob& job, DataType type) {
  type == DataType::kFloat64 ? walk_over<Plain<double>, AlongTree<Plain<double>, Sum>>(job)
                             : walk_over<Plain<float>, AlongTree<Plain<float>, Sum>>(job);
}

const char* own_target() { return hwy::TargetName(HWY_TARGET); }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace chainmail::ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace chainmail::ops {
namespace {
HWY_EXPORT(reduce_any);
HWY_EXPORT(sum_along);
HWY_EXPORT(own_target);
}  // namespace

const char* instruction_set() noexcept { return HWY_DYNAMIC_DISPATCH(own_target)(); }

void reduce(std::span<std::byte* const> destinations, std::span<const std::byte* const> sources,
            std::size_t count, DataType type, ReduceOp op, double scale) {
  if (is_bitwise(op) && is_floating_point(type)) {
    throw InvalidArgument(std::string(to_string(op)) + " is for integers and bool; the type is " +
                          to_string(type));
  }
  if (sources.empty()) throw InvalidArgument("a reduction needs at least one source");
  if (count == 0) return;
  const ReduceJob job{destinations, sources, count, scale, nullptr};
  HWY_DYNAMIC_DISPATCH(reduce_any)(job, type, op);
}

bool sum_along_tree_in_registers(std::span<std::byte* const> destinations,
                                 std::span<const std::byte* const> sources, const TreeSum& plan,
                                 std::size_t count, DataType type) {
  const bool can = (type == DataType::kFloat32 || type == DataType::kFloat64) &&
                   plan.results.size() == 1 && plan.depth <= kDepth;
  if (can && count != 0) {
    const ReduceJob job{destinations, sources, count, 1.0, plan.merges.data()};
    HWY_DYNAMIC_DISPATCH(sum_along)(job, type);
  }
  return can;
}

void accumulate(std::byte* destination, const std::byte* source, std::size_t count, DataType type,
                ReduceOp op) {
  const std::byte* const sources[] = {destination, source};
  reduce(destination, sources, count, type, op);
}

void scale_in_place(std::byte* data, std::size_t count, DataType type, double scale) {
  if (!is_floating_point(type)) {
    throw InvalidArgument(std::string("scaling is for floating-point types; the type is ") +
                          to_string(type));
  }
  const std::byte* const sources[] = {data};
  reduce(data, sources, count, type, ReduceOp::kSum, scale);
}

}  // namespace chainmail::ops
#endif  // HWY_ONCE
