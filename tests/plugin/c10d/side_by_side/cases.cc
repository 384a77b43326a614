// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "tests/plugin/c10d/side_by_side/cases.h"

#include "tests/plugin/c10d/collectives/premul_sum.h"

namespace chainmail::side_by_side {
namespace {

using c10d::ReduceOp;

constexpr double kFactor = 2.0;

bool is_bitwise(ReduceOp::RedOpType type) {
  return type == ReduceOp::BAND || type == ReduceOp::BOR || type == ReduceOp::BXOR;
}

at::Tensor combined(ReduceOp::RedOpType type, const at::Tensor& one, const at::Tensor& other) {
  const bool is_bool = one.scalar_type() == at::kBool;
  switch (type) {
    case ReduceOp::PRODUCT:
      return is_bool ? one.logical_and(other) : one * other;
    case ReduceOp::MIN:
      return at::minimum(one, other);
    case ReduceOp::MAX:
      return at::maximum(one, other);
    case ReduceOp::BAND:
      return one.bitwise_and(other);
    case ReduceOp::BOR:
      return one.bitwise_or(other);
    case ReduceOp::BXOR:
      return one.bitwise_xor(other);
    default:
      return is_bool ? one.logical_or(other) : one + other;
  }
}

}  // namespace

ReduceOp Reduction::op() const {
  return type == ReduceOp::PREMUL_SUM ? internal::make_premul_sum(kFactor) : ReduceOp(type);
}

const std::vector<at::ScalarType>& dtypes() {
  static const std::vector<at::ScalarType> all{
      at::kByte, at::kChar,     at::kShort, at::kInt,    at::kLong,         at::kBool,
      at::kHalf, at::kBFloat16, at::kFloat, at::kDouble, at::kComplexFloat, at::kComplexDouble};
  return all;
}

const std::vector<Shape>& shapes() {
  static const std::vector<Shape> all{
      {"zero-dim", {}, Layout::kPlain},      {"one", {1}, Layout::kPlain},
      {"vector", {5}, Layout::kPlain},       {"matrix", {4, 3}, Layout::kPlain},
      {"empty", {0}, Layout::kPlain},        {"transposed", {4, 3}, Layout::kTransposed},
      {"strided", {4, 3}, Layout::kStrided}, {"mixed", {4, 3}, Layout::kMixed},
      {"large", {70'001}, Layout::kPlain}};
  return all;
}

const std::vector<Reduction>& reductions() {
  static const std::vector<Reduction> all{
      {"sum", ReduceOp::SUM}, {"avg", ReduceOp::AVG},   {"product", ReduceOp::PRODUCT},
      {"min", ReduceOp::MIN}, {"max", ReduceOp::MAX},   {"band", ReduceOp::BAND},
      {"bor", ReduceOp::BOR}, {"bxor", ReduceOp::BXOR}, {"premul_sum", ReduceOp::PREMUL_SUM}};
  return all;
}

bool has_meaning(const Reduction& reduction, at::ScalarType dtype) {
  const bool is_fractional = at::isFloatingType(dtype) || at::isComplexType(dtype);
  if (at::isComplexType(dtype)) {
    return reduction.type == ReduceOp::SUM || reduction.type == ReduceOp::AVG ||
           reduction.type == ReduceOp::PREMUL_SUM;
  }
  if (is_bitwise(reduction.type)) return !is_fractional;
  if (reduction.type == ReduceOp::PREMUL_SUM) return is_fractional;
  return reduction.type != ReduceOp::AVG || dtype != at::kBool;
}

at::Tensor values(const Case& what, const std::vector<std::int64_t>& sizes, int rank, int part) {
  const at::Tensor numbers =
      (at::arange(c10::multiply_integers(sizes), at::kLong) + rank + 2 * part).remainder(4);
  const at::Tensor shaped = numbers.view(sizes);
  if (what.dtype == at::kBool) return shaped.remainder(2).to(at::kBool);
  if (!at::isComplexType(what.dtype)) return shaped.to(what.dtype);
  const auto real = shaped.to(c10::toRealValueType(what.dtype));
  return at::complex(real, real + 1);
}

at::Tensor laid_out(const at::Tensor& tensor, Layout layout) {
  if (layout == Layout::kPlain || tensor.dim() == 0) return tensor.contiguous();
  if (layout == Layout::kTransposed) return tensor.transpose(0, -1).contiguous().transpose(0, -1);
  std::vector<std::int64_t> wide = tensor.sizes().vec();
  wide.back() *= 2;
  const at::Tensor place = at::zeros(wide, tensor.options()).slice(-1, 0, wide.back(), 2);
  place.copy_(tensor);
  return place;
}

at::Tensor input(const Case& what, int rank, int part) {
  return laid_out(values(what, what.shape.sizes, rank, part), what.shape.layout);
}

at::Tensor blank(const Case& what, const std::vector<std::int64_t>& sizes) {
  return laid_out(
      at::full(sizes, 1, what.dtype).mul(what.dtype == at::kBool ? 1 : 77).to(what.dtype),
      what.shape.layout);
}

std::vector<std::int64_t> stacked(const Case& what, std::int64_t count) {
  std::vector<std::int64_t> sizes = what.shape.sizes;
  if (sizes.empty()) sizes = {1};
  sizes[0] *= count;
  return sizes;
}

at::Tensor reduced(const Case& what, const std::vector<at::Tensor>& contributions) {
  const auto type = what.reduction.type;
  at::Tensor result = contributions[0].clone();
  for (std::size_t i = 1; i < contributions.size(); ++i) {
    result = combined(type, result, contributions[i]).to(what.dtype);
  }
  if (type == ReduceOp::PREMUL_SUM) result = result * kFactor;
  if (type == ReduceOp::AVG) {
    result =
        at::isIntegralType(what.dtype, true) ? result.div(what.size, "trunc") : result / what.size;
  }
  return result.to(what.dtype);
}

bool is_equal(const at::Tensor& one, const at::Tensor& other) {
  if (one.sizes() != other.sizes() || one.scalar_type() != other.scalar_type()) return false;
  if (one.scalar_type() == at::kBool) {
    // Gloo adds bools up as bytes and leaves twos in them.
    return at::equal(one.contiguous().view(at::kByte).ne(0),
                     other.contiguous().view(at::kByte).ne(0));
  }
  if (at::equal(one, other)) return true;
  // An average may be rounded before the sum or after it.
  const auto wide = at::isComplexType(one.scalar_type()) ? at::kComplexDouble : at::kDouble;
  const double tolerance = one.scalar_type() == at::kBFloat16 ? 2e-2
                           : one.scalar_type() == at::kHalf   ? 2e-3
                                                              : 1e-6;
  return (at::isFloatingType(one.scalar_type()) || at::isComplexType(one.scalar_type())) &&
         at::allclose(one.to(wide), other.to(wide), tolerance, tolerance);
}

}  // namespace chainmail::side_by_side
