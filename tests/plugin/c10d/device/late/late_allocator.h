// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The memory of the late devices: what torch's caching allocator does with streams, and no more.
//
// Any thread. Nothing goes back to the system, so that what is used after it was freed is there.

#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Stream.h>

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <tuple>
#include <vector>

#include "tests/ops/support/fake_gpu/fake_machine.h"

namespace chainmail::testing {

/// Of rank `index`; see LateDevices.
[[nodiscard]] test::FakeDevice& late_device(int index);

class LateAllocator final : public c10::Allocator {
 public:
  /// For the current stream of the current device: first what it has given back last.
  c10::DataPtr allocate(std::size_t bytes) override;
  void copy_data(void* target, const void* source, std::size_t bytes) const override;
  /// `memory` is not handed out again before what `stream` has been given by the time that it is
  /// freed is done.
  void record(void* memory, const c10::Stream& stream);
  /// All that was ever handed out is given to nobody any more.
  void forget_streams();

 private:
  struct Block {
    std::unique_ptr<std::byte[]> memory;
    std::size_t bytes = 0;
    int device = 0;
    c10::StreamId stream = 0;
    std::set<c10::StreamId> users;  ///< other streams
    std::vector<ops::DeviceEvent> awaited;
  };
  using Place = std::tuple<int, c10::StreamId, std::size_t>;  // device, stream, bytes

  static void free(void* memory);
  void give_back(void* memory);
  void collect();

  std::mutex mutex_;
  std::map<void*, std::unique_ptr<Block>> blocks_;
  std::map<Place, std::vector<Block*>> free_;
  std::list<Block*> awaiting_;
};

[[nodiscard]] LateAllocator& late_allocator();

}  // namespace chainmail::testing
