// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// all_reduce, reduce and reduce_scatter over a shared segment.
//
// Staging areas alternate by step, and the waits below keep a rank at most one step ahead: who
// writes an area for step s has seen that everybody published step s - 1, hence finished s - 2.
//
// In steps, the owner of a slice reads it from all staging areas and writes the result back to
// where it was: a line of the area then travels twice, to the owner and back, and each of them
// already owns it when it writes. An area for results of its own would make every write take the
// line away from its readers, which costs as much again (measured: 1.4 times the time at 25 MiB).

#include <algorithm>
#include <cstring>
#include <utility>

#include "ops/comm/shm/shm_comm_impl.h"
#include "ops/kernels/cpu/kernels.h"

namespace chainmail::ops::shm {
namespace {

// Step `step`'s part of `count` elements when they are done in `steps` steps, as equal as multiples
// of `unit` elements can be.
Slice part(std::size_t count, std::size_t step, std::size_t steps, std::size_t unit) {
  const std::size_t units = (count + unit - 1) / unit;
  const std::size_t base = units / steps;
  const std::size_t extra = units % steps;
  const auto at = [=](std::size_t s) {
    return std::min(count, (s * base + std::min(s, extra)) * unit);
  };
  return {at(step), at(step + 1)};
}

}  // namespace

void ShmComm::all_reduce(std::byte* data, std::size_t count, const Reduction& reduction,
                         const OpContext& context) {
  const std::uint64_t digest = count * size_of(reduction.dtype);
  reduce_to({Method::kAllReduce, -1, digest}, data, count, reduction, context);
}

void ShmComm::reduce(std::byte* data, std::size_t count, const Reduction& reduction, int root,
                     const OpContext& context) {
  const std::uint64_t digest = count * size_of(reduction.dtype) * static_cast<std::size_t>(size()) +
                               static_cast<std::size_t>(root);
  reduce_to({Method::kReduce, root, digest}, data, count, reduction, context);
}

void ShmComm::reduce_to(const Target& target, std::byte* data, std::size_t count,
                        const Reduction& reduction, const OpContext& context) {
  const std::size_t bytes = count * size_of(reduction.dtype);
  if (bytes <= kInlineBytes) return reduce_inline(target, data, count, reduction, context);
  if (bytes <= staged_limit_) return reduce_staged(target, data, count, reduction, context);
  if (target.root < 0) {
    if (const Location location = find_buffer(data, bytes); location.buffer != nullptr) {
      if (reduce_in_place(target, location, count, reduction, context)) return;
      return reduce_in_steps(target, data, count, reduction, true, context);
    }
  }
  reduce_in_steps(target, data, count, reduction, false, context);
}

bool ShmComm::try_all_reduce(std::byte* data, std::size_t count, const Reduction& reduction,
                             const MessageHeader& header) noexcept {
  const std::size_t bytes = count * size_of(reduction.dtype);
  if (bytes > staged_limit_) return false;
  const bool is_inline = bytes <= kInlineBytes;
  const std::uint64_t step = is_inline ? 0 : sync_.next_step();
  if (!is_inline) std::memcpy(sync_.segment().staging(rank(), step), data, bytes);
  if (!sync_.try_enter(Method::kAllReduce, bytes, data, is_inline ? bytes : 0, header)) {
    return false;
  }
  if (!sync_.look_for_entries()) {
    shown_step_ = step;
    return false;
  }
  if (is_inline) {
    use_entries(data, count, reduction);
  } else {
    use_staged(data, count, reduction, step);
  }
  return true;
}

void ShmComm::reduce_inline(const Target& target, std::byte* data, std::size_t count,
                            const Reduction& reduction, const OpContext& context) {
  const std::size_t bytes = count * size_of(reduction.dtype);
  if (!std::exchange(shown_step_, {})) {
    sync_.enter(target.method, target.digest, data, bytes, context);
  }
  sync_.wait_for_entries(context);
  if (wants_result(target)) use_entries(data, count, reduction);
}

void ShmComm::use_entries(std::byte* data, std::size_t count, const Reduction& reduction) {
  for (int rank = 0; rank < size(); ++rank) {
    sources_[static_cast<std::size_t>(rank)] = sync_.payload(rank);
  }
  combine({&data, 1}, sources_, count, reduction);
}

void ShmComm::reduce_staged(const Target& target, std::byte* data, std::size_t count,
                            const Reduction& reduction, const OpContext& context) {
  const auto shown_step = std::exchange(shown_step_, {});
  const std::uint64_t step = shown_step ? *shown_step : sync_.next_step();
  if (!shown_step) {
    // The root of a reduce reads its own buffer, and nobody else does.
    if (target.root != rank()) {
      std::memcpy(sync_.segment().staging(rank(), step), data, count * size_of(reduction.dtype));
    }
    sync_.enter(target.method, target.digest, nullptr, 0, context);
  }
  sync_.wait_for_entries(context);
  if (wants_result(target)) use_staged(data, count, reduction, step);
}

void ShmComm::use_staged(std::byte* data, std::size_t count, const Reduction& reduction,
                         std::uint64_t step) {
  find_sources(data, 0, step);
  combine({&data, 1}, sources_, count, reduction);
}

void ShmComm::reduce_in_steps(const Target& target, std::byte* data, std::size_t count,
                              const Reduction& reduction, bool has_entered,
                              const OpContext& context) {
  const std::size_t size = size_of(reduction.dtype);
  const std::size_t unit = slice_unit(reduction, 1);
  // One step if it can be; else two areas of half the room stay longer in the caches, unless fewer
  // waits matter more.
  const std::size_t room = sync_.segment().layout().chunk_bytes / size;
  const std::size_t chunk = count <= room || sync_.is_crowded() ? room : room / 2;
  const std::size_t steps = (count + chunk - 1) / chunk;
  const auto ranks = static_cast<std::size_t>(this->size());
  const auto self = static_cast<std::size_t>(rank());
  const auto root_index = static_cast<std::size_t>(std::max(target.root, 0));

  // Copies the parts of others of chunk `s` to the staging area, at the place they have in the
  // chunk; a rank's own part never leaves its buffer.
  const auto stage = [&](std::size_t s, std::uint64_t step) {
    const Slice all = part(count, s, steps, unit);
    const Slice own = share(all.length(), size, self, ranks, reduction);
    std::byte* to = sync_.segment().staging(rank(), step);
    const std::byte* from = data + all.begin * size;
    ops::copy_memory(to, from, own.begin * size);
    ops::copy_memory(to + own.end * size, from + own.end * size, (all.length() - own.end) * size);
  };

  std::uint64_t step = sync_.next_step();
  stage(0, step);
  begin_steps(target, step, has_entered, context);
  for (std::size_t s = 0; s < steps; ++s) {
    const Slice all = part(count, s, steps, unit);
    const Slice own = share(all.length(), size, self, ranks, reduction);
    std::byte* chunk_data = data + all.begin * size;
    const std::byte* result = sync_.segment().staging(rank(), step);
    if (s > 0) sync_.wait_for_counter(&RankArea::staged, step, context);
    find_parts(chunk_data + own.begin * size, own.begin * size, step);
    const std::span<std::byte* const> all_parts = parts_;
    combine(target.root < 0 ? all_parts : all_parts.subspan(root_index, 1), sources_, own.length(),
            reduction);
    sync_.publish(&RankArea::reduced, step);
    // The next chunk goes out before the wait, so that the others have work meanwhile.
    const std::uint64_t next = s + 1 < steps ? sync_.next_step() : step;
    if (s + 1 < steps) {
      stage(s + 1, next);
      sync_.publish(&RankArea::staged, next);
    }
    if (wants_result(target)) {
      sync_.wait_for_counter(&RankArea::reduced, step, context);
      ops::copy_memory(chunk_data, result, own.begin * size);
      ops::copy_memory(chunk_data + own.end * size, result + own.end * size,
                       (all.length() - own.end) * size);
    }
    step = next;
  }
}

// Publishes the first step by entering, which carries the header; apart from that when some rank
// entered before it had staged anything, because its data lies in a shared buffer.
void ShmComm::begin_steps(const Target& target, std::uint64_t step, bool has_entered,
                          const OpContext& context) {
  bool is_published = !has_entered;
  if (!has_entered) {
    const Place elsewhere;
    sync_.enter(target.method, target.digest, reinterpret_cast<const std::byte*>(&elsewhere),
                sizeof elsewhere, context);
    sync_.wait_for_entries(context);
    is_published = agree_on_place() == Agreement::kNoneShared;
  }
  if (!is_published) {
    sync_.publish(&RankArea::staged, step);
    sync_.wait_for_counter(&RankArea::staged, step, context);
  }
}

void ShmComm::reduce_scatter(ConstParts input, std::byte* output, const Reduction& reduction,
                             const OpContext& context) {
  const std::size_t size = size_of(reduction.dtype);
  const auto ranks = static_cast<std::size_t>(this->size());
  const auto self = static_cast<std::size_t>(rank());
  std::size_t bytes = 0;
  for (const auto& part : input) bytes += part.size();
  const bool has_entered = bytes > staged_limit_;
  if (has_entered && scatter_in_place(input, output, reduction, bytes, context)) return;
  const std::size_t unit = slice_unit(reduction, 1);
  // Rounding may add as much per rank to a step.
  const std::size_t chunk = sync_.segment().layout().chunk_bytes / size - ranks * unit;
  const std::size_t steps = std::max<std::size_t>((bytes / size + chunk - 1) / chunk, 1);
  for (std::size_t s = 0; s < steps; ++s) {
    const std::uint64_t step = sync_.next_step();
    std::byte* staging = sync_.segment().staging(rank(), step);
    std::size_t offset = 0;
    std::size_t own_offset = 0;
    for (std::size_t owner = 0; owner < ranks; ++owner) {
      const Slice slice = part(input[owner].size() / size, s, steps, unit);
      if (owner == self) own_offset = offset;
      if (owner != self && slice.length() != 0) {
        ops::copy_memory(staging + offset, input[owner].data() + slice.begin * size,
                         slice.length() * size);
      }
      offset += slice.length() * size;
    }
    meet(Method::kReduceScatter, bytes, step, s == 0 && !has_entered, context);
    const Slice own = part(input[self].size() / size, s, steps, unit);
    find_sources(input[self].data() + own.begin * size, own_offset, step);
    std::byte* const to = output + own.begin * size;
    combine({&to, 1}, sources_, own.length(), reduction);
  }
}

void ShmComm::find_sources(const std::byte* own, std::size_t offset, std::uint64_t step) {
  for (int rank = 0; rank < size(); ++rank) {
    sources_[static_cast<std::size_t>(rank)] =
        rank == this->rank() ? own : sync_.segment().staging(rank, step) + offset;
  }
}

void ShmComm::find_parts(std::byte* own, std::size_t offset, std::uint64_t step) {
  find_sources(own, offset, step);
  for (int rank = 0; rank < size(); ++rank) {
    parts_[static_cast<std::size_t>(rank)] =
        rank == this->rank() ? own : sync_.segment().staging(rank, step) + offset;
  }
}

// The first step of a call is published by entering, which carries the header.
void ShmComm::meet(Method method, std::uint64_t digest, std::uint64_t step, bool is_first,
                   const OpContext& context) {
  if (is_first) {
    sync_.enter(method, digest, nullptr, 0, context);
    sync_.wait_for_entries(context);
  } else {
    sync_.publish(&RankArea::staged, step);
    sync_.wait_for_counter(&RankArea::staged, step, context);
  }
}

}  // namespace chainmail::ops::shm
