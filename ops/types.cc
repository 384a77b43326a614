// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/types.h"

#include <array>
#include <string>

#include "base/error.h"

namespace chainmail::ops {
namespace {

constexpr std::array kAlgorithms = {Algorithm::kAuto,           Algorithm::kNaive,
                                    Algorithm::kFlat,           Algorithm::kHierarchical,
                                    Algorithm::kTwoDimensional, Algorithm::kSingleNode};
constexpr std::array kReduceOps = {ReduceOp::kSum,   ReduceOp::kAvg,   ReduceOp::kProduct,
                                   ReduceOp::kMin,   ReduceOp::kMax,   ReduceOp::kBitAnd,
                                   ReduceOp::kBitOr, ReduceOp::kBitXor};
constexpr std::array kWireFormats = {WireFormat::kNative, WireFormat::kFloat16,
                                     WireFormat::kBFloat16};
constexpr std::array kCrossCarriers = {CrossCarrier::kTcp, CrossCarrier::kMpi};

template <typename Values>
typename Values::value_type parse(const char* what, std::string_view name, const Values& values) {
  std::string valid;
  for (const auto value : values) {
    if (name == to_string(value)) return value;
    valid += valid.empty() ? "" : ", ";
    valid += to_string(value);
  }
  throw InvalidArgument("unknown " + std::string(what) + " \"" + std::string(name) +
                        "\"; valid are: " + valid);
}

}  // namespace

std::size_t size_of(DataType type) noexcept {
  switch (type) {
    case DataType::kUInt8:
    case DataType::kInt8:
    case DataType::kBool:
      return 1;
    case DataType::kInt16:
    case DataType::kUInt16:
    case DataType::kFloat16:
    case DataType::kBFloat16:
      return 2;
    case DataType::kInt32:
    case DataType::kUInt32:
    case DataType::kFloat32:
      return 4;
    case DataType::kInt64:
    case DataType::kUInt64:
    case DataType::kFloat64:
      return 8;
  }
  return 0;
}

bool is_floating_point(DataType type) noexcept {
  return type == DataType::kFloat16 || type == DataType::kBFloat16 || type == DataType::kFloat32 ||
         type == DataType::kFloat64;
}

bool is_bitwise(ReduceOp op) noexcept {
  return op == ReduceOp::kBitAnd || op == ReduceOp::kBitOr || op == ReduceOp::kBitXor;
}

const char* to_string(DataType type) noexcept {
  switch (type) {
    case DataType::kUInt8:
      return "uint8";
    case DataType::kInt8:
      return "int8";
    case DataType::kInt16:
      return "int16";
    case DataType::kInt32:
      return "int32";
    case DataType::kInt64:
      return "int64";
    case DataType::kBool:
      return "bool";
    case DataType::kFloat16:
      return "float16";
    case DataType::kBFloat16:
      return "bfloat16";
    case DataType::kFloat32:
      return "float32";
    case DataType::kFloat64:
      return "float64";
    case DataType::kUInt16:
      return "uint16";
    case DataType::kUInt32:
      return "uint32";
    case DataType::kUInt64:
      return "uint64";
  }
  return "unknown";
}

const char* to_string(ReduceOp op) noexcept {
  switch (op) {
    case ReduceOp::kSum:
      return "sum";
    case ReduceOp::kAvg:
      return "avg";
    case ReduceOp::kProduct:
      return "product";
    case ReduceOp::kMin:
      return "min";
    case ReduceOp::kMax:
      return "max";
    case ReduceOp::kBitAnd:
      return "band";
    case ReduceOp::kBitOr:
      return "bor";
    case ReduceOp::kBitXor:
      return "bxor";
  }
  return "unknown";
}

const char* to_string(WireFormat wire) noexcept {
  switch (wire) {
    case WireFormat::kNative:
      return "native";
    case WireFormat::kFloat16:
      return "float16";
    case WireFormat::kBFloat16:
      return "bfloat16";
  }
  return "unknown";
}

const char* to_string(CrossCarrier cross) noexcept {
  switch (cross) {
    case CrossCarrier::kTcp:
      return "tcp";
    case CrossCarrier::kMpi:
      return "mpi";
  }
  return "unknown";
}

const char* to_string(Encryption mode) noexcept {
  switch (mode) {
    case Encryption::kOff:
      return "off";
    case Encryption::kAuthenticate:
      return "authenticate";
    case Encryption::kEncrypt:
      return "encrypt";
  }
  return "unknown";
}

const char* to_string(Algorithm algorithm) noexcept {
  switch (algorithm) {
    case Algorithm::kAuto:
      return "auto";
    case Algorithm::kNaive:
      return "naive";
    case Algorithm::kFlat:
      return "flat";
    case Algorithm::kHierarchical:
      return "hierarchical";
    case Algorithm::kTwoDimensional:
      return "two_dimensional";
    case Algorithm::kSingleNode:
      return "single_node";
  }
  return "unknown";
}

const char* to_string(OpKind kind) noexcept {
  switch (kind) {
    case OpKind::kAllReduce:
      return "all_reduce";
    case OpKind::kReduce:
      return "reduce";
    case OpKind::kReduceScatter:
      return "reduce_scatter";
    case OpKind::kAllGather:
      return "all_gather";
    case OpKind::kBroadcast:
      return "broadcast";
    case OpKind::kGather:
      return "gather";
    case OpKind::kScatter:
      return "scatter";
    case OpKind::kAllToAll:
      return "all_to_all";
    case OpKind::kSend:
      return "send";
    case OpKind::kRecv:
      return "recv";
    case OpKind::kBarrier:
      return "barrier";
    case OpKind::kAllocate:
      return "allocate";
  }
  return "unknown";
}

Algorithm parse_algorithm(std::string_view name) { return parse("algorithm", name, kAlgorithms); }

ReduceOp parse_reduce_op(std::string_view name) {
  return parse("reduce operation", name, kReduceOps);
}

WireFormat parse_wire_format(std::string_view name) {
  return parse("wire format", name, kWireFormats);
}

CrossCarrier parse_cross_carrier(std::string_view name) {
  return parse("carrier between nodes", name, kCrossCarriers);
}

bool is_compressed(WireFormat wire, DataType type, ReduceOp op) noexcept {
  return wire != WireFormat::kNative && (op == ReduceOp::kSum || op == ReduceOp::kAvg) &&
         type == DataType::kFloat32;
}

WireFormat wire_of(std::optional<WireFormat> of_call, WireFormat of_group, DataType type,
                   ReduceOp op) noexcept {
  const WireFormat of_group_here = op == ReduceOp::kAvg ? of_group : WireFormat::kNative;
  const WireFormat asked = of_call.value_or(of_group_here);
  return is_compressed(asked, type, op) ? asked : WireFormat::kNative;
}

}  // namespace chainmail::ops
