// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// all_reduce of what lies in memory that all ranks of the node have mapped: the owner of a slice
// reads it in all ranks' buffers and writes the result to all of them. Every byte is moved once;
// nothing is staged. reduce_scatter there writes to this rank's alone.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "ops/comm/shm/shm_comm_impl.h"
#include "ops/kernels/cpu/kernels.h"

namespace chainmail::ops::shm {
namespace {

// Peers hear of a rank that is busy this long: some tens of milliseconds.
constexpr std::size_t kShownBytes = std::size_t{32} << 20;

}  // namespace

std::shared_ptr<SharedBuffer> ShmComm::make_buffer(std::size_t part_bytes, std::string& why,
                                                   const OpContext& context) {
  internal::UniqueFd file;
  std::shared_ptr<SharedBuffer> buffer;
  BufferOffer offer;
  const auto attempt = [&why](const auto& step) {
    try {
      step();
    } catch (const SystemError& error) {
      why = error.what();
    }
  };
  if (rank() == 0) {
    attempt([&] {
      file = SharedBuffer::make_file(static_cast<std::size_t>(size()), part_bytes);
      offer = SharedBuffer::offer(file);
    });
  }
  broadcast(reinterpret_cast<std::byte*>(&offer), sizeof offer, 0, context);
  if (offer.pid != 0) {
    attempt([&] {
      if (rank() != 0) file = SharedBuffer::open_file(offer);
      buffer = std::make_shared<SharedBuffer>(file, rank(), static_cast<std::size_t>(size()),
                                              part_bytes);
    });
  }
  // Rank 0's file stays open until all have it, and all have it or none.
  auto has_all = static_cast<std::uint8_t>(buffer != nullptr ? 1 : 0);
  Reduction every;
  every.dtype = DataType::kUInt8;
  every.op = ReduceOp::kMin;
  all_reduce(reinterpret_cast<std::byte*>(&has_all), 1, every, context);
  return has_all == 0 ? nullptr : buffer;
}

std::shared_ptr<std::byte> ShmComm::allocate(std::size_t bytes, const OpContext& context) {
  const std::uint64_t id = ++allocations_;
  if (bytes == 0 || size() == 1) return allocate_private(bytes);
  std::string why;
  const auto buffer = make_buffer(SharedBuffer::rounded(bytes), why, context);
  if (buffer == nullptr) {
    if (!why.empty()) {
      internal::log_line(
          internal::LogLevel::kWarning,
          sync_.name(rank()) + " and its peers use private memory, which is slower: " + why);
    }
    return allocate_private(bytes);
  }
  std::erase_if(buffers_, [](const Registered& entry) { return entry.buffer.expired(); });
  buffers_.push_back({id, buffer});
  return {buffer, buffer->part(rank())};
}

// Parts follow each other, so together they are one piece, of which each rank reserves a share.
std::shared_ptr<std::byte> ShmComm::allocate_common(std::size_t bytes, const OpContext& context) {
  if (bytes == 0 || size() == 1) return allocate_private(bytes);
  const auto ranks = static_cast<std::size_t>(size());
  std::string why;
  const auto buffer = make_buffer(SharedBuffer::rounded((bytes + ranks - 1) / ranks), why, context);
  if (buffer == nullptr) {
    if (!why.empty()) {
      internal::log_line(internal::LogLevel::kWarning,
                         sync_.name(rank()) + " and its peers share no memory: " + why);
    }
    return nullptr;
  }
  return {buffer, buffer->part(0)};
}

// Where `data` lies in a buffer of the group; holds on to it.
ShmComm::Location ShmComm::find_buffer(const std::byte* data, std::size_t bytes) const {
  for (const Registered& entry : buffers_) {
    const auto buffer = entry.buffer.lock();
    if (buffer == nullptr) continue;
    const auto begin = reinterpret_cast<std::uintptr_t>(buffer->part(rank()));
    const auto at = reinterpret_cast<std::uintptr_t>(data);
    if (at < begin || at - begin > buffer->part_bytes()) continue;
    if (bytes > buffer->part_bytes() - (at - begin)) continue;
    return {{entry.id, at - begin}, buffer};
  }
  return {};
}

ShmComm::Agreement ShmComm::agree_on_place() const noexcept {
  const auto place_of = [this](int rank) {
    Place place;
    std::memcpy(&place, sync_.payload(rank), sizeof place);
    return place;
  };
  const Place first = place_of(0);
  bool is_any_shared = first.id != 0;
  bool are_equal = true;
  for (int rank = 1; rank < size(); ++rank) {
    const Place place = place_of(rank);
    is_any_shared = is_any_shared || place.id != 0;
    are_equal = are_equal && place.id == first.id && place.offset == first.offset;
  }
  if (!is_any_shared) return Agreement::kNoneShared;
  return are_equal ? Agreement::kAllShared : Agreement::kMixed;
}

ShmComm::Location ShmComm::find_parts(ConstParts input, const std::byte* output) const {
  const auto& own = input[static_cast<std::size_t>(rank())];
  if (!own.empty() && own.data() != output) return {};
  Location all;
  for (const auto& part : input) {
    if (part.empty()) continue;
    const Location one = find_buffer(part.data(), part.size());
    if (one.buffer == nullptr || (all.buffer != nullptr && one.buffer != all.buffer)) return {};
    all.buffer = one.buffer;
    all.place.id = one.place.id;
    constexpr std::uint64_t kFnvPrime = 1099511628211ULL;
    all.place.offset = (all.place.offset * kFnvPrime) ^ one.place.offset;
  }
  return all;
}

bool ShmComm::scatter_in_place(ConstParts input, std::byte* output, const Reduction& reduction,
                               std::uint64_t digest, const OpContext& context) {
  const Location location = find_parts(input, output);
  sync_.enter(Method::kReduceScatter, digest, reinterpret_cast<const std::byte*>(&location.place),
              sizeof location.place, context);
  sync_.wait_for_entries(context);
  if (agree_on_place() != Agreement::kAllShared) return false;
  const std::size_t size = size_of(reduction.dtype);
  const std::uint64_t step = sync_.next_step();
  const std::size_t length = input[static_cast<std::size_t>(rank())].size() / size;
  const std::ptrdiff_t offset = length == 0 ? 0 : output - location.buffer->part(rank());
  for (std::size_t done = 0; done < length;) {
    const std::size_t count = std::min(length - done, kShownBytes / size);
    for (int r = 0; r < this->size(); ++r) {
      sources_[static_cast<std::size_t>(r)] = location.buffer->part(r) + offset + done * size;
    }
    std::byte* const to = output + done * size;
    combine({&to, 1}, sources_, count, reduction);
    done += count;
    if (done != length) sync_.show_progress();
  }
  // Until then its peers read what this rank may write when it goes on.
  sync_.publish(&RankArea::reduced, step);
  sync_.wait_for_counter(&RankArea::reduced, step, context);
  return true;
}

bool ShmComm::reduce_in_place(const Target& target, const Location& location, std::size_t count,
                              const Reduction& reduction, const OpContext& context) {
  sync_.enter(target.method, target.digest, reinterpret_cast<const std::byte*>(&location.place),
              sizeof location.place, context);
  sync_.wait_for_entries(context);
  if (agree_on_place() != Agreement::kAllShared) return false;
  const std::size_t size = size_of(reduction.dtype);
  const std::uint64_t step = sync_.next_step();
  const Slice own = share(count, size, static_cast<std::size_t>(rank()),
                          static_cast<std::size_t>(this->size()), reduction);
  for (int r = 0; r < this->size(); ++r) {
    std::byte* part = location.buffer->part(r) + location.place.offset + own.begin * size;
    parts_[static_cast<std::size_t>(r)] = part;
    sources_[static_cast<std::size_t>(r)] = part;
  }
  for (std::size_t done = 0; done < own.length();) {
    const std::size_t length = std::min(own.length() - done, kShownBytes / size);
    combine(parts_, sources_, length, reduction);
    done += length;
    if (done == own.length()) break;
    sync_.show_progress();
    for (std::byte*& part : parts_) part += length * size;
    for (const std::byte*& source : sources_) source += length * size;
  }
  sync_.publish(&RankArea::reduced, step);
  sync_.wait_for_counter(&RankArea::reduced, step, context);
  return true;
}

}  // namespace chainmail::ops::shm
