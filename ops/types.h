// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The vocabulary of the collective engine: element types, reductions, wire formats, algorithms.
//
// Plain values without torch; any thread may use them. Names are those that users type.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace chainmail::ops {

enum class DataType : std::uint8_t {
  kUInt8,
  kInt8,
  kInt16,
  kInt32,
  kInt64,
  kBool,  ///< one byte, 0 or 1
  kFloat16,
  kBFloat16,
  kFloat32,
  kFloat64,
  kUInt16,
  kUInt32,
  kUInt64,
};
inline constexpr int kDataTypeCount = 13;

enum class ReduceOp : std::uint8_t {
  kSum,
  kAvg,  ///< sum / ranks; for integers toward zero, and the sum wraps in the type first
  kProduct,
  kMin,
  kMax,
  kBitAnd,  ///< integers and bool only, as kBitOr and kBitXor
  kBitOr,
  kBitXor,
};

/// What float32 looks like between nodes: as stored, or rounded twice whatever the number of ranks,
/// to halves (ops/kernels/wire_block.h) or to integers (ops/kernels/block_wire.h). Other types, and
/// operations but sums and means, travel as stored.
enum class WireFormat : std::uint8_t { kNative, kFloat16, kBFloat16, kInt8, kInt4 };

/// The integer formats: blocks that share a scale, and what rounding loses may be kept.
[[nodiscard]] constexpr bool is_in_blocks(WireFormat wire) noexcept {
  return wire == WireFormat::kInt8 || wire == WireFormat::kInt4;
}

/// What rounding to an integer format loses: sums of the squares of elements, of magnitudes from
/// 1e-18 to 1e18; others make them too small, or infinite.
struct RoundingError {
  double given = 0;  ///< of what was to be sent
  double lost = 0;   ///< of what was not
};

/// What joins ranks of different nodes.
enum class CrossTransport : std::uint8_t { kTcp, kMpi };

/// What protects data between ranks over TCP from somebody on the network.
enum class Encryption : std::uint8_t {
  kOff,           ///< nothing; checksums find accidents
  kAuthenticate,  ///< nobody can change them: GMAC
  kEncrypt,       ///< nobody can read or change them: AES-256-GCM
};

enum class Algorithm : std::uint8_t {
  kAuto,
  kNaive,  ///< as kFlat; the caller hands over one tensor at a time
  kFlat,
  kHierarchical,
  kTwoDimensional,
  kSingleNode,
};

enum class OpKind : std::uint8_t {
  kAllReduce,
  kReduce,
  kReduceScatter,
  kAllGather,
  kBroadcast,
  kGather,
  kScatter,
  kAllToAll,
  kSend,
  kRecv,
  kBarrier,
  kAllocate,  ///< of memory that the ranks of a node share
};

/// Bytes of one element.
[[nodiscard]] std::size_t size_of(DataType type) noexcept;
[[nodiscard]] bool is_floating_point(DataType type) noexcept;
[[nodiscard]] bool is_bitwise(ReduceOp op) noexcept;

[[nodiscard]] const char* to_string(DataType type) noexcept;         // "float32"
[[nodiscard]] const char* to_string(ReduceOp op) noexcept;           // "sum"
[[nodiscard]] const char* to_string(WireFormat wire) noexcept;       // "native", "int8"
[[nodiscard]] const char* to_string(CrossTransport cross) noexcept;  // "tcp", "mpi"
[[nodiscard]] const char* to_string(Encryption mode) noexcept;       // "off", "encrypt"
[[nodiscard]] const char* to_string(Algorithm algorithm) noexcept;   // "two_dimensional"
[[nodiscard]] const char* to_string(OpKind kind) noexcept;           // "all_reduce"

/// Reads a name as printed by to_string; throws InvalidArgument that lists the valid names.
[[nodiscard]] Algorithm parse_algorithm(std::string_view name);
[[nodiscard]] ReduceOp parse_reduce_op(std::string_view name);
[[nodiscard]] WireFormat parse_wire_format(std::string_view name);
[[nodiscard]] CrossTransport parse_cross_transport(std::string_view name);

/// True when a tensor of `type` under `op` can be rounded to `wire` between nodes: float32 under
/// kSum and kAvg. float64 never is: who takes it wants the digits.
[[nodiscard]] bool is_compressed(WireFormat wire, DataType type, ReduceOp op) noexcept;

/// What such a tensor travels as when its call asks for `of_call` and its group for `of_group`. A
/// group speaks for means only: sums that nobody spoke of are counts, losses and norms, too.
[[nodiscard]] WireFormat wire_of(std::optional<WireFormat> of_call, WireFormat of_group,
                                 DataType type, ReduceOp op) noexcept;

}  // namespace chainmail::ops
