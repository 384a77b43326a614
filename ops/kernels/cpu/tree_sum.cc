// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Sums along a tree whose additions are rounded, or which leave several results: some elements at a
// time, so that what lies between source and result stays in the first cache. Every source is read
// once and every result written once, as in reduce().

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "base/error.h"
#include "ops/kernels/cpu/kernels.h"
#include "ops/kernels/cpu/tree_sum.h"
#include "ops/kernels/wire_block.h"

namespace chainmail::ops {
namespace {

// Two blocks of the wire: a call of reduce() costs a tenth of what it does then.
constexpr std::size_t kElements = 2 * kWireBlock;

class Summing {
 public:
  Summing(const TreeSum& plan, DataType type, WireFormat wire)
      : plan_(plan), type_(type), wire_(wire), size_(size_of(type)), between_(plan.depth) {
    stack_.reserve(plan.depth);
  }

  /// The results for `count` elements from `begin` on; valid until the next call.
  std::span<const std::byte* const> sums(std::span<const std::byte* const> sources,
                                         std::size_t begin, std::size_t count) {
    stack_.clear();
    for (std::size_t source = 0; source < sources.size(); ++source) {
      stack_.push_back(sources[source] + begin * size_);
      for (int merges = plan_.merges[source]; merges > 0; --merges) merge(count);
    }
    return stack_;
  }

 private:
  void merge(std::size_t count) {
    const std::array<const std::byte*, 2> halves{stack_.end()[-2], stack_.back()};
    stack_.pop_back();
    std::byte* const sum = between_[stack_.size() - 1].data();
    reduce(sum, halves, count, type_, ReduceOp::kSum);
    if (wire_ != WireFormat::kNative) round_as_sent(sum, count, wire_);
    stack_.back() = sum;
  }

  using Elements = std::array<std::byte, kElements * sizeof(double)>;

  const TreeSum& plan_;
  const DataType type_;
  const WireFormat wire_;
  const std::size_t size_;
  std::vector<Elements> between_;  // by place on the stack
  std::vector<const std::byte*> stack_;
};

}  // namespace

void round_as_sent(std::byte* data, std::size_t count, WireFormat wire) {
  std::array<std::byte, wire_size(kElements)> message;
  for (std::size_t begin = 0; begin < count; begin += kElements) {
    const std::size_t length = std::min(kElements, count - begin);
    std::byte* const elements = data + begin * sizeof(float);
    // What is not finite stays so, and whoever sends it says so.
    static_cast<void>(round_to_wire(message.data(), elements, length, 1.0, wire));
    widen_from_wire(elements, message.data(), length, wire);
  }
}

void sum_along_tree(std::span<const std::span<std::byte* const>> destinations,
                    std::span<const std::byte* const> sources, const TreeSum& plan,
                    std::size_t count, DataType type, WireFormat wire) {
  if (sources.size() != plan.merges.size() || destinations.size() != plan.results.size()) {
    throw InvalidArgument("a sum of " + std::to_string(plan.merges.size()) + " nodes to " +
                          std::to_string(plan.results.size()) + " was given " +
                          std::to_string(sources.size()) + " sources and " +
                          std::to_string(destinations.size()) + " destinations");
  }
  if (wire != WireFormat::kNative && type != DataType::kFloat32) {
    throw InvalidArgument(std::string("only float32 travels as ") + to_string(wire) +
                          "; the type is " + to_string(type));
  }
  if (wire == WireFormat::kNative && plan.results.size() == 1 &&
      sum_along_tree_in_registers(destinations[0], sources, plan, count, type)) {
    return;
  }
  const std::size_t size = size_of(type);
  Summing summing(plan, type, wire);
  for (std::size_t begin = 0; begin < count; begin += kElements) {
    const std::size_t length = std::min(kElements, count - begin);
    const auto sums = summing.sums(sources, begin, length);
    for (std::size_t k = 0; k < sums.size(); ++k) {
      for (std::byte* const destination : destinations[k]) {
        std::byte* const to = destination + begin * size;
        if (to != sums[k]) std::memcpy(to, sums[k], length * size);
      }
    }
  }
}

}  // namespace chainmail::ops
