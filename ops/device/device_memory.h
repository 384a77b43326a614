// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Owners of what a GPU lends: the current device, events, scratch memory, pinned words.
//
// EventPool and PinnedWords: any thread. GrowingMemory: one thread at a time.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "ops/device/device_api.h"

namespace chainmail::ops {

/// Throws CudaError that names `what` unless `code` is success.
void check_device(const DeviceApi& api, DeviceCode code, const char* what);

/// Makes a device current for this thread and this scope.
class DeviceGuard {
 public:
  DeviceGuard(DeviceApi& api, int device);
  ~DeviceGuard();
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  DeviceApi& api_;
  int previous_ = 0;
};

/// Events that are used again: making one takes microseconds.
class EventPool {
 public:
  explicit EventPool(DeviceApi& api) : api_(api) {}
  ~EventPool();
  EventPool(const EventPool&) = delete;
  EventPool& operator=(const EventPool&) = delete;
  [[nodiscard]] DeviceEvent take();
  void give_back(DeviceEvent event) noexcept;

 private:
  DeviceApi& api_;
  std::mutex mutex_;
  std::vector<DeviceEvent> free_;
};

/// Memory that only grows, so that nothing queued ever loses what it works on: of the device, or of
/// the host where the device reads and writes it.
class GrowingMemory {
 public:
  enum class Kind : std::uint8_t { kDevice, kPinned };

  GrowingMemory(DeviceApi& api, Kind kind) : api_(api), kind_(kind) {}
  ~GrowingMemory();
  GrowingMemory(const GrowingMemory&) = delete;
  GrowingMemory& operator=(const GrowingMemory&) = delete;
  /// `bytes`, the same as at the last call while that was no smaller. `may_grow` is false while a
  /// stream is being captured; throws InvalidArgument when it had to.
  [[nodiscard]] std::byte* get(std::size_t bytes, bool may_grow = true);

 private:
  DeviceApi& api_;
  const Kind kind_;
  std::vector<void*> blocks_;  // the last is in use
  std::size_t bytes_ = 0;
};

/// Words of pinned memory, each 0 when taken.
class PinnedWords {
 public:
  explicit PinnedWords(DeviceApi& api) : api_(api) {}
  ~PinnedWords();
  PinnedWords(const PinnedWords&) = delete;
  PinnedWords& operator=(const PinnedWords&) = delete;
  [[nodiscard]] std::uint32_t* take();
  void give_back(std::uint32_t* word) noexcept;

 private:
  static constexpr std::size_t kWordsPerBlock = 1024;
  DeviceApi& api_;
  std::mutex mutex_;
  std::vector<void*> blocks_;
  std::vector<std::uint32_t*> free_;
};

/// Sets a word that streams are held by to `ticket`, unless it is past that. Any thread.
void release_word(std::uint32_t& word, std::uint32_t ticket) noexcept;

}  // namespace chainmail::ops
