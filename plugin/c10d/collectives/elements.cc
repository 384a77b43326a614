// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/c10d/collectives/elements.h"

#include <c10/util/Exception.h>

#include "plugin/tensor/element_type.h"

namespace chainmail::internal {

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
  switch (static_cast<c10d::ReduceOp::RedOpType>(op)) {
    case c10d::ReduceOp::SUM:
    case c10d::ReduceOp::PREMUL_SUM:
      return ops::ReduceOp::kSum;
    case c10d::ReduceOp::AVG:
      return ops::ReduceOp::kAvg;
    case c10d::ReduceOp::PRODUCT:
      return ops::ReduceOp::kProduct;
    case c10d::ReduceOp::MIN:
      return ops::ReduceOp::kMin;
    case c10d::ReduceOp::MAX:
      return ops::ReduceOp::kMax;
    case c10d::ReduceOp::BAND:
      return ops::ReduceOp::kBitAnd;
    case c10d::ReduceOp::BOR:
      return ops::ReduceOp::kBitOr;
    case c10d::ReduceOp::BXOR:
      return ops::ReduceOp::kBitXor;
    case c10d::ReduceOp::UNUSED:
      break;
  }
  TORCH_CHECK(false, "chainmail: ", what, " does not support reduce op ",
              static_cast<int>(static_cast<c10d::ReduceOp::RedOpType>(op)));
}

}  // namespace chainmail::internal
