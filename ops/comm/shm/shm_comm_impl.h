// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The Comm over a shared segment. Three sizes of call: what fits beside the header travels with it
// in two cache lines; what fits a staging area is reduced by everybody from there; the rest goes in
// steps, each rank owning a slice of each step.
//
// Thread and collective rules as in ops/comm/comm.h.

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ops/comm/combine.h"
#include "ops/comm/comm.h"
#include "ops/comm/shm/memory/shared_buffer.h"
#include "ops/comm/shm/shm_sync.h"

namespace chainmail::ops::shm {

struct Slice {
  std::size_t begin;
  std::size_t end;
  std::size_t length() const noexcept { return end - begin; }
};

/// Rank `index`'s share of `count` elements of `size` bytes. Slices begin on cache lines, so that
/// two owners never write one line.
[[nodiscard]] inline Slice share(std::size_t count, std::size_t size, std::size_t index,
                                 std::size_t parts, const Reduction& reduction) {
  constexpr std::size_t kLine = 64;
  const std::size_t unit = slice_unit(reduction, kLine / size);
  const std::size_t length = (count + parts * unit - 1) / (parts * unit) * unit;
  const std::size_t begin = std::min(index * length, count);
  return {begin, std::min(begin + length, count)};
}

class ShmComm final : public Comm {
 public:
  ShmComm(const ShmCommOptions& options, Rendezvous& rendezvous, internal::Deadline deadline,
          const FailureState* failure);

  int rank() const noexcept override { return sync_.rank(); }
  int size() const noexcept override { return sync_.size(); }

  void all_reduce(std::byte* data, std::size_t count, const Reduction& reduction,
                  const OpContext& context) override;
  [[nodiscard]] bool try_all_reduce(std::byte* data, std::size_t count, const Reduction& reduction,
                                    const MessageHeader& header) noexcept override;
  void reduce(std::byte* data, std::size_t count, const Reduction& reduction, int root,
              const OpContext& context) override;
  void reduce_scatter(ConstParts input, std::byte* output, const Reduction& reduction,
                      const OpContext& context) override;
  void all_gather(Parts parts, const OpContext& context) override;
  void broadcast(std::byte* data, std::size_t bytes, int root, const OpContext& context) override;
  void all_to_all(ConstParts send, Parts receive, const OpContext& context) override;
  void barrier(const OpContext& context) override;
  [[nodiscard]] std::shared_ptr<std::byte> allocate(std::size_t bytes,
                                                    const OpContext& context) override;
  [[nodiscard]] std::shared_ptr<std::byte> allocate_common(std::size_t bytes,
                                                           const OpContext& context) override;
  void abort() noexcept override { sync_.abort(); }

 private:
  /// A reduction to everybody (root -1) or to one rank.
  struct Target {
    Method method;
    int root;
    std::uint64_t digest;
  };
  void reduce_to(const Target& target, std::byte* data, std::size_t count,
                 const Reduction& reduction, const OpContext& context);
  void reduce_inline(const Target& target, std::byte* data, std::size_t count,
                     const Reduction& reduction, const OpContext& context);
  void reduce_staged(const Target& target, std::byte* data, std::size_t count,
                     const Reduction& reduction, const OpContext& context);
  void use_entries(std::byte* data, std::size_t count, const Reduction& reduction);
  void use_staged(std::byte* data, std::size_t count, const Reduction& reduction,
                  std::uint64_t step);
  /// `has_entered`: this rank has shown that its data lies in a shared buffer, which others' do
  /// not.
  void reduce_in_steps(const Target& target, std::byte* data, std::size_t count,
                       const Reduction& reduction, bool has_entered, const OpContext& context);
  void begin_steps(const Target& target, std::uint64_t step, bool has_entered,
                   const OpContext& context);
  /// A place in memory that all ranks have mapped, as ranks show it to each other.
  struct Place {
    std::uint64_t id = 0;  ///< 0: somewhere else
    std::uint64_t offset = 0;
  };
  struct Location {
    Place place;
    std::shared_ptr<SharedBuffer> buffer;
  };
  enum class Agreement : std::uint8_t { kNoneShared, kAllShared, kMixed };
  Location find_buffer(const std::byte* data, std::size_t bytes) const;
  /// Of all parts together, where they are in one buffer and `output` is this rank's.
  Location find_parts(ConstParts input, const std::byte* output) const;
  Agreement agree_on_place() const noexcept;
  /// False when not all ranks have their parts in the same places of a shared buffer. In any case
  /// this rank has entered.
  bool scatter_in_place(ConstParts input, std::byte* output, const Reduction& reduction,
                        std::uint64_t digest, const OpContext& context);
  /// A part of `part_bytes` for every rank, mapped by all; null on all ranks where that fails, and
  /// `why` says so on those that know.
  std::shared_ptr<SharedBuffer> make_buffer(std::size_t part_bytes, std::string& why,
                                            const OpContext& context);
  /// False when not all ranks have their data in the same place of a shared buffer.
  bool reduce_in_place(const Target& target, const Location& location, std::size_t count,
                       const Reduction& reduction, const OpContext& context);
  bool wants_result(const Target& target) const noexcept {
    return target.root < 0 || target.root == rank();
  }
  void gather_in_steps(Method method, Parts parts, std::uint64_t digest, const OpContext& context);
  /// parts_ and sources_: what lies at `offset` of everybody's staging area, this rank's own being
  /// `own`.
  void find_parts(std::byte* own, std::size_t offset, std::uint64_t step);
  void find_sources(const std::byte* own, std::size_t offset, std::uint64_t step);
  /// Shows what is staged, and waits until all have.
  void meet(Method method, std::uint64_t digest, std::uint64_t step, bool is_first,
            const OpContext& context);

  ShmSync sync_;
  struct Registered {
    std::uint64_t id;
    std::weak_ptr<SharedBuffer> buffer;
  };
  std::vector<Registered> buffers_;
  std::uint64_t allocations_ = 0;
  std::vector<std::byte*> parts_;
  std::vector<const std::byte*> sources_;
  std::size_t staged_limit_;                 // bytes that everybody reduces from staging
  std::optional<std::uint64_t> shown_step_;  // what try_all_reduce() has shown and not ended
};

}  // namespace chainmail::ops::shm
