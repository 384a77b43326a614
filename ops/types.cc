// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/types.h"

#include <array>
#include <span>
#include <string>

#include "base/error.h"

namespace chainmail::ops {
namespace {

// By the values of the enumerations.
constexpr std::array kDataTypes = {"uint8",  "int8",    "int16",    "int32",   "int64",
                                   "bool",   "float16", "bfloat16", "float32", "float64",
                                   "uint16", "uint32",  "uint64"};
constexpr std::array<std::size_t, kDataTypes.size()> kSizes = {1, 1, 2, 4, 8, 1, 2,
                                                               2, 4, 8, 2, 4, 8};
constexpr std::array kReduceOps = {"sum", "avg", "product", "min", "max", "band", "bor", "bxor"};
constexpr std::array kWireFormats = {"native", "float16", "bfloat16", "int8", "int4"};
constexpr std::array kCrossTransports = {"tcp", "mpi"};
constexpr std::array kEncryptions = {"off", "authenticate", "encrypt"};
constexpr std::array kAlgorithms = {"auto",         "naive",           "flat",
                                    "hierarchical", "two_dimensional", "single_node"};
constexpr std::array kOpKinds = {"all_reduce", "reduce", "reduce_scatter", "all_gather",
                                 "broadcast",  "gather", "scatter",        "all_to_all",
                                 "send",       "recv",   "barrier",        "allocate"};
static_assert(kDataTypes.size() == kDataTypeCount);
static_assert(kReduceOps.size() == static_cast<std::size_t>(ReduceOp::kBitXor) + 1);
static_assert(kWireFormats.size() == static_cast<std::size_t>(WireFormat::kInt4) + 1);
static_assert(kCrossTransports.size() == static_cast<std::size_t>(CrossTransport::kMpi) + 1);
static_assert(kEncryptions.size() == static_cast<std::size_t>(Encryption::kEncrypt) + 1);
static_assert(kAlgorithms.size() == static_cast<std::size_t>(Algorithm::kSingleNode) + 1);
static_assert(kOpKinds.size() == static_cast<std::size_t>(OpKind::kAllocate) + 1);

using Names = std::span<const char* const>;

template <typename Enum>
const char* name_of(Names names, Enum value) noexcept {
  const auto index = static_cast<std::size_t>(value);
  return index < names.size() ? names[index] : "unknown";
}

template <typename Enum>
Enum parse(const char* what, std::string_view name, Names names) {
  std::string valid;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (name == names[i]) return static_cast<Enum>(i);
    valid += valid.empty() ? "" : ", ";
    valid += names[i];
  }
  throw InvalidArgument("unknown " + std::string(what) + " \"" + std::string(name) +
                        "\"; valid are: " + valid);
}

}  // namespace

std::size_t size_of(DataType type) noexcept {
  const auto index = static_cast<std::size_t>(type);
  return index < kSizes.size() ? kSizes[index] : 0;
}

bool is_floating_point(DataType type) noexcept {
  return type == DataType::kFloat16 || type == DataType::kBFloat16 || type == DataType::kFloat32 ||
         type == DataType::kFloat64;
}

bool is_bitwise(ReduceOp op) noexcept {
  return op == ReduceOp::kBitAnd || op == ReduceOp::kBitOr || op == ReduceOp::kBitXor;
}

const char* to_string(DataType type) noexcept { return name_of(kDataTypes, type); }
const char* to_string(ReduceOp op) noexcept { return name_of(kReduceOps, op); }
const char* to_string(WireFormat wire) noexcept { return name_of(kWireFormats, wire); }
const char* to_string(CrossTransport cross) noexcept { return name_of(kCrossTransports, cross); }
const char* to_string(Encryption mode) noexcept { return name_of(kEncryptions, mode); }
const char* to_string(Algorithm algorithm) noexcept { return name_of(kAlgorithms, algorithm); }
const char* to_string(OpKind kind) noexcept { return name_of(kOpKinds, kind); }

Algorithm parse_algorithm(std::string_view name) {
  return parse<Algorithm>("algorithm", name, kAlgorithms);
}
ReduceOp parse_reduce_op(std::string_view name) {
  return parse<ReduceOp>("reduce operation", name, kReduceOps);
}
WireFormat parse_wire_format(std::string_view name) {
  return parse<WireFormat>("wire format", name, kWireFormats);
}
CrossTransport parse_cross_transport(std::string_view name) {
  return parse<CrossTransport>("transport between nodes", name, kCrossTransports);
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
