// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/device/device_memory.h"

#include <atomic>
#include <bit>
#include <string>

#include "base/error.h"

namespace chainmail::ops {

void check_device(const DeviceApi& api, DeviceCode code, const char* what) {
  if (code != kDeviceSuccess) throw CudaError(std::string(what) + ": " + api.describe(code), code);
}

DeviceGuard::DeviceGuard(DeviceApi& api, int device) : api_(api) {
  check_device(api, api.use(device, previous_), "choosing the device");
}

DeviceGuard::~DeviceGuard() { api_.restore(previous_); }

EventPool::~EventPool() {
  for (const DeviceEvent event : free_) api_.destroy_event(event);
}

DeviceEvent EventPool::take() {
  {
    const std::lock_guard lock(mutex_);
    if (!free_.empty()) {
      const DeviceEvent event = free_.back();
      free_.pop_back();
      return event;
    }
  }
  DeviceEvent event;
  check_device(api_, api_.create_event(event), "making an event");
  return event;
}

void EventPool::give_back(DeviceEvent event) noexcept {
  const std::lock_guard lock(mutex_);
  free_.push_back(event);
}

GrowingMemory::~GrowingMemory() {
  for (void* block : blocks_) kind_ == Kind::kDevice ? api_.free(block) : api_.free_pinned(block);
}

std::byte* GrowingMemory::get(std::size_t bytes, bool may_grow) {
  if (bytes > bytes_) {
    if (!may_grow) {
      throw InvalidArgument("a CUDA graph is being captured and " + std::to_string(bytes) +
                            " bytes of scratch memory are missing; issue or prepare the same "
                            "collective once before the capture");
    }
    // Powers of two: all that is outgrown is less than what is in use.
    const std::size_t rounded = std::bit_ceil(bytes);
    void* block = nullptr;
    if (kind_ == Kind::kDevice) {
      check_device(api_, api_.allocate(block, rounded), "allocating scratch memory on the device");
    } else {
      check_device(api_, api_.allocate_pinned(block, rounded), "allocating pinned host memory");
    }
    blocks_.push_back(block);
    bytes_ = rounded;
  }
  return blocks_.empty() ? nullptr : static_cast<std::byte*>(blocks_.back());
}

PinnedWords::~PinnedWords() {
  for (void* block : blocks_) api_.free_pinned(block);
}

std::uint32_t* PinnedWords::take() {
  const std::lock_guard lock(mutex_);
  if (free_.empty()) {
    void* block = nullptr;
    check_device(api_, api_.allocate_pinned(block, kWordsPerBlock * sizeof(std::uint32_t)),
                 "allocating pinned host memory");
    blocks_.push_back(block);
    for (std::size_t i = 0; i < kWordsPerBlock; ++i) {
      free_.push_back(static_cast<std::uint32_t*>(block) + i);
    }
  }
  std::uint32_t* const word = free_.back();
  free_.pop_back();
  std::atomic_ref<std::uint32_t>(*word).store(0);
  return word;
}

void PinnedWords::give_back(std::uint32_t* word) noexcept {
  const std::lock_guard lock(mutex_);
  free_.push_back(word);
}

void release_word(std::uint32_t& word, std::uint32_t ticket) noexcept {
  const std::atomic_ref<std::uint32_t> flag(word);
  std::uint32_t current = flag.load();
  while (static_cast<std::int32_t>(ticket - current) > 0 &&
         !flag.compare_exchange_weak(current, ticket)) {
  }
}

}  // namespace chainmail::ops
