// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "tests/plugin/c10d/device/late/late_allocator.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <cstring>

#include "tests/plugin/c10d/device/late/late_device.h"

namespace chainmail::testing {
namespace {

constexpr std::size_t kUnit = 512;

}  // namespace

LateAllocator& late_allocator() {
  static auto* const allocator = new LateAllocator;  // tensors may outlive all that is static
  return *allocator;
}

c10::DataPtr LateAllocator::allocate(std::size_t bytes) {
  const c10::impl::VirtualGuardImpl devices(kLateDevice);
  const c10::Device device = devices.getDevice();
  const std::size_t rounded = std::max<std::size_t>(1, (bytes + kUnit - 1) / kUnit) * kUnit;
  const Place place{device.index(), devices.getStream(device).id(), rounded};
  const std::lock_guard lock(mutex_);
  collect();
  Block* block = nullptr;
  if (auto& candidates = free_[place]; !candidates.empty()) {
    block = candidates.back();
    candidates.pop_back();
  } else {
    auto made = std::make_unique<Block>();
    made->memory = std::make_unique<std::byte[]>(rounded);
    made->bytes = rounded;
    made->device = device.index();
    made->stream = std::get<1>(place);
    block = made.get();
    blocks_.emplace(block->memory.get(), std::move(made));
  }
  void* const memory = block->memory.get();
  return {memory, memory, &LateAllocator::free, device};
}

void LateAllocator::copy_data(void* target, const void* source, std::size_t bytes) const {
  std::memcpy(target, source, bytes);
}

void LateAllocator::record(void* memory, const c10::Stream& stream) {
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(memory);
  if (found == blocks_.end() || found->second->stream == stream.id()) return;
  found->second->users.insert(stream.id());
}

void LateAllocator::free(void* memory) { late_allocator().give_back(memory); }

void LateAllocator::give_back(void* memory) {
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(memory);
  if (found == blocks_.end()) return;  // of devices that are gone
  Block& block = *found->second;
  if (block.users.empty()) {
    free_[{block.device, block.stream, block.bytes}].push_back(&block);
    return;
  }
  test::FakeDevice& device = late_device(block.device);
  for (const c10::StreamId user : block.users) {
    ops::DeviceEvent event;
    static_cast<void>(device.create_event(event));
    static_cast<void>(device.record(event, {reinterpret_cast<void*>(user)}));
    block.awaited.push_back(event);
  }
  block.users.clear();
  awaiting_.push_back(&block);
}

void LateAllocator::collect() {
  for (auto next = awaiting_.begin(); next != awaiting_.end();) {
    const auto here = next++;
    Block& block = **here;
    test::FakeDevice& device = late_device(block.device);
    const bool is_done = std::all_of(
        block.awaited.begin(), block.awaited.end(),
        [&](ops::DeviceEvent event) { return device.query(event) == ops::kDeviceSuccess; });
    if (!is_done) continue;
    for (const ops::DeviceEvent event : block.awaited) device.destroy_event(event);
    block.awaited.clear();
    free_[{block.device, block.stream, block.bytes}].push_back(&block);
    awaiting_.erase(here);
  }
}

void LateAllocator::forget_streams() {
  const std::lock_guard lock(mutex_);
  static auto* const old = new std::vector<std::unique_ptr<Block>>;
  for (auto& [memory, block] : blocks_) old->push_back(std::move(block));
  blocks_.clear();
  free_.clear();
  awaiting_.clear();
}

}  // namespace chainmail::testing
