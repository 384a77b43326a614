// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// How far a reduced element may be from the exact result. Every tolerance of every test is derived
// here, from the dtype, the wire format and the number of ranks.

#pragma once

#include <cmath>

#include "ops/types.h"

namespace chainmail::test {

/// Half the distance between neighbours at 1.0: the largest relative error of one rounding.
inline double rounding_unit(ops::DataType type) {
  switch (type) {
    case ops::DataType::kFloat16:
      return std::ldexp(1.0, -11);
    case ops::DataType::kBFloat16:
      return std::ldexp(1.0, -8);
    case ops::DataType::kFloat32:
      return std::ldexp(1.0, -24);
    case ops::DataType::kFloat64:
      return std::ldexp(1.0, -53);
    case ops::DataType::kUInt8:
    case ops::DataType::kInt8:
    case ops::DataType::kInt16:
    case ops::DataType::kInt32:
    case ops::DataType::kInt64:
    case ops::DataType::kUInt16:
    case ops::DataType::kUInt32:
    case ops::DataType::kUInt64:
    case ops::DataType::kBool:
      return 0.0;
  }
  return 0.0;
}

inline double rounding_unit(ops::WireFormat wire) {
  switch (wire) {
    case ops::WireFormat::kNative:
      return 0.0;
    case ops::WireFormat::kFloat16:
      return rounding_unit(ops::DataType::kFloat16);
    case ops::WireFormat::kBFloat16:
      return rounding_unit(ops::DataType::kBFloat16);
    // Of the largest element of a block, not of each.
    case ops::WireFormat::kInt8:
      return 0.5 / 127;
    case ops::WireFormat::kInt4:
      return 0.5 / 7;
  }
  return 0.0;
}

/// Bound of |result - exact| for a sum or mean over `ranks` of terms whose absolute values add up
/// to `magnitude` (after the scale). In the tensor's own type every addition may round, and twice
/// the scale; the wire rounds every contribution once and the result once (1.0005 covers the
/// product of both). `magnitude` bounds both, for no partial sum is larger.
inline double sum_tolerance(ops::DataType type, ops::WireFormat wire, int ranks, double magnitude) {
  const double own = rounding_unit(type) * (ranks + 2);
  // Below its normal range a half has fixed steps instead of relative ones.
  const double floor = type == ops::DataType::kFloat16 ? std::ldexp(1.0, -24) * (ranks + 1) : 0.0;
  return (own + 2.0005 * rounding_unit(wire)) * magnitude * 1.0005 + floor;
}

/// What comes to that for a wire's smallest steps, those of an element that has far larger ones in
/// its block of ops::kWireBlock. `block_magnitude`: the sum over ranks of the largest absolute
/// value (after the scale) that each has in the block. Each rounding errs by half a step there,
/// which is 2^-40 of the block's largest number (2^-261 for bfloat16), twice that where rounding
/// carries. Below 2^-126 float32 has steps itself, one for each product with the scale.
inline double block_tolerance(ops::WireFormat wire, int ranks, double block_magnitude) {
  const int half_step = wire == ops::WireFormat::kFloat16 ? -39 : -260;
  const double steps =
      wire == ops::WireFormat::kNative ? 0.0 : std::ldexp(2 * block_magnitude, half_step);
  return steps + std::ldexp(ranks + 1, -149);
}

}  // namespace chainmail::test
