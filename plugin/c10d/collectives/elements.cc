// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/c10d/collectives/elements.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "plugin/tensor/element_type.h"

namespace chainmail::internal {
namespace {

struct ReductionPair {
  c10d::ReduceOp::RedOpType torchs;
  ops::ReduceOp ours;
};

constexpr std::array<ReductionPair, 8> kReductions = {{
    {c10d::ReduceOp::SUM, ops::ReduceOp::kSum},
    {c10d::ReduceOp::AVG, ops::ReduceOp::kAvg},
    {c10d::ReduceOp::PRODUCT, ops::ReduceOp::kProduct},
    {c10d::ReduceOp::MIN, ops::ReduceOp::kMin},
    {c10d::ReduceOp::MAX, ops::ReduceOp::kMax},
    {c10d::ReduceOp::BAND, ops::ReduceOp::kBitAnd},
    {c10d::ReduceOp::BOR, ops::ReduceOp::kBitOr},
    {c10d::ReduceOp::BXOR, ops::ReduceOp::kBitXor},
}};

}  // namespace

Elements elements_to_move(c10::ScalarType type) {
  if (const auto known = data_type_of(type)) return {*known, 1};
  return {ops::DataType::kUInt8, c10::elementSize(type)};
}

Elements elements_to_reduce(c10::ScalarType type, ops::ReduceOp op, const char* what) {
  if (c10::isComplexType(type)) {
    TORCH_CHECK(op == ops::ReduceOp::kSum || op == ops::ReduceOp::kAvg, "chainmail: ", what,
                " of complex tensors supports sum and avg, not ", to_string(op));
    return {data_type_of(c10::toRealValueType(type)).value(), 2};
  }
  const auto known = data_type_of(type);
  TORCH_CHECK_NOT_IMPLEMENTED(known.has_value(), "chainmail: ", what,
                              " does not support tensors of type ", type, "; supported are ",
                              kKnownTypes, ", and sums of complex");
  TORCH_CHECK(op != ops::ReduceOp::kAvg || *known != ops::DataType::kBool, "chainmail: ", what,
              " with avg needs numbers, got ", type);
  TORCH_CHECK(!ops::is_bitwise(op) || !ops::is_floating_point(*known), "chainmail: ", what,
              " with ", to_string(op), " needs integers or bool, got ", type);
  return {*known, 1};
}

ops::Collective data_collective(ops::OpKind kind, c10::ScalarType type, std::int64_t count) {
  const Elements elements = elements_to_move(type);
  ops::Collective collective;
  collective.kind = kind;
  collective.dtype = elements.dtype;
  collective.count = static_cast<std::size_t>(count) * elements.factor;
  return collective;
}

ops::ReduceOp to_reduce_op(const c10d::ReduceOp& op, const char* what) {
  c10d::ReduceOp::RedOpType type = op;
  if (type == c10d::ReduceOp::PREMUL_SUM) type = c10d::ReduceOp::SUM;
  const auto* const found = std::ranges::find(kReductions, type, &ReductionPair::torchs);
  TORCH_CHECK(found != kReductions.end(), "chainmail: ", what, " does not support reduce op ",
              static_cast<int>(type));
  return found->ours;
}

c10d::ReduceOp to_torch_reduce_op(ops::ReduceOp op, const std::string& communicator) {
  const auto* const found = std::ranges::find(kReductions, op, &ReductionPair::ours);
  if (found == kReductions.end() || ops::is_bitwise(op)) {
    throw InvalidArgument("communicator '" + communicator + "' has no all_reduce " + to_string(op));
  }
  return found->torchs;
}

}  // namespace chainmail::internal
