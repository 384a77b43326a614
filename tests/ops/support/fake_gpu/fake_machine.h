// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// GPUs of host memory, for tests: streams are queues of tasks that nobody runs until somebody looks
// at an event, and then in an order drawn from a seed, as far as the waits allow. What should have
// waited for something and does not, finds that out.
//
// Thread-safe: one lock for the whole machine. Memory is filled with rubbish when it is given.

#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <vector>

#include "ops/device_library/device_library.h"

namespace chainmail::test {

/// True when done; called again, with the machine locked, until it is.
using FakeTask = std::function<bool()>;

struct FakeStream {
  int rank = 0;
  std::deque<FakeTask> tasks;
  std::uint64_t capture = 0;
  bool is_destroyed = false;  ///< goes when its tasks are done
};

struct FakeEvent : std::enable_shared_from_this<FakeEvent> {
  std::uint64_t recorded = 0;
  std::uint64_t reached = 0;
  std::uint64_t capture = 0;
};

class FakeMachine {
 public:
  explicit FakeMachine(unsigned seed) : random_(seed) {}
  FakeMachine(const FakeMachine&) = delete;
  FakeMachine& operator=(const FakeMachine&) = delete;

  std::recursive_mutex& mutex() { return mutex_; }
  FakeStream* add_stream(int rank);
  /// What is on it goes on.
  void remove_stream(FakeStream* stream);
  /// All streams of a rank, with what is on them.
  void remove_rank(int rank);
  FakeEvent* add_event();
  void remove_event(FakeEvent* event);
  /// With the machine locked: runs all that can run.
  void pump();

  /// Nothing of this rank's begins before `when`.
  void delay(int rank, std::chrono::milliseconds by);
  /// Nothing begins on any stream until let_go().
  void hold_back();
  void let_go();
  /// Runs what it can before anything of another stream: a stream that gets ahead.
  void prefer(const FakeStream* stream);

  void* allocate(std::size_t bytes);
  void free(void* memory);
  /// What tests compare to see that all was given back.
  std::size_t live_streams();
  std::size_t live_events();
  std::size_t live_memory();

 private:
  bool may_begin(const FakeStream& stream) const;
  bool run_some(FakeStream& stream, unsigned most);

  std::recursive_mutex mutex_;
  std::mt19937 random_;
  std::list<std::unique_ptr<FakeStream>> streams_;
  std::list<std::shared_ptr<FakeEvent>> events_;  // tasks share them
  bool is_held_back_ = false;
  std::set<const FakeStream*> preferred_;
  std::map<int, std::chrono::steady_clock::time_point> delays_;
  std::map<void*, std::unique_ptr<std::byte[]>> memory_;
};

/// One rank's GPU.
class FakeDevice final : public ops::DeviceApi, public ops::DeviceKernels {
 public:
  FakeDevice(std::shared_ptr<FakeMachine> machine, int rank);
  ~FakeDevice() override;

  /// The stream, and all that comes to wait for it, is being captured. What is queued runs once
  /// all the same.
  void begin_capture(ops::DeviceStream stream);
  void end_capture();
  const FakeStream* default_stream() const { return default_stream_; }
  /// Queues a task.
  void queue(ops::DeviceStream stream, FakeTask task);

  ops::DeviceCode use(int device, int& previous) noexcept override;
  void restore(int /*previous*/) noexcept override {}
  ops::DeviceCode create_stream(ops::DeviceStream& stream) noexcept override;
  void destroy_stream(ops::DeviceStream stream) noexcept override;
  ops::DeviceCode create_event(ops::DeviceEvent& event) noexcept override;
  void destroy_event(ops::DeviceEvent event) noexcept override;
  ops::DeviceCode record(ops::DeviceEvent event, ops::DeviceStream stream) noexcept override;
  ops::DeviceCode wait(ops::DeviceStream stream, ops::DeviceEvent event) noexcept override;
  ops::DeviceCode query(ops::DeviceEvent event) noexcept override;
  ops::DeviceCode capture_id(ops::DeviceStream stream, std::uint64_t& id) noexcept override;
  ops::DeviceCode allocate(void*& memory, std::size_t bytes) noexcept override;
  void free(void* memory) noexcept override;
  ops::DeviceCode allocate_pinned(void*& memory, std::size_t bytes) noexcept override;
  void free_pinned(void* memory) noexcept override;
  ops::DeviceCode copy(void* target, const void* source, std::size_t bytes,
                       ops::DeviceStream stream) noexcept override;
  ops::DeviceCode hold(ops::DeviceStream stream, std::uint32_t* flag,
                       std::uint32_t value) noexcept override;
  ops::DeviceKernels& kernels() noexcept override { return *this; }
  std::string describe(ops::DeviceCode code) const override;

  ops::DeviceCode convert(void* target, ops::DataType target_type, const void* source,
                          ops::DataType source_type, std::size_t count, double scale,
                          std::uint32_t* flag, ops::DeviceStream stream) noexcept override;
  ops::DeviceCode round_parts(void* messages, std::size_t part, const void* source,
                              std::size_t count, double scale, ops::WireFormat wire,
                              ops::DeviceStream stream) noexcept override;
  ops::DeviceCode add_parts(void* result, const void* messages, std::size_t part, int message_count,
                            int own, const void* own_message, std::size_t count,
                            ops::WireFormat wire, bool is_mean,
                            ops::DeviceStream stream) noexcept override;
  ops::DeviceCode widen_parts(void* target, const void* messages, std::size_t part,
                              std::size_t count, ops::WireFormat wire, std::uint32_t* flag,
                              ops::DeviceStream stream) noexcept override;
  ops::DeviceCode divide(void* data, ops::DataType type, std::size_t count, std::int64_t divisor,
                         ops::DeviceStream stream) noexcept override;
  ops::DeviceCode pack(const ops::PackBlock* blocks, std::size_t block_count, void* buffer,
                       ops::DataType buffer_type, double scale, std::uint32_t* flag,
                       ops::DeviceStream stream) noexcept override;
  ops::DeviceCode unpack(const ops::PackBlock* blocks, std::size_t block_count, const void* buffer,
                         ops::DataType buffer_type, double scale, std::uint32_t* flag,
                         ops::DeviceStream stream) noexcept override;

 private:
  FakeStream& stream_of(ops::DeviceStream stream);

  const std::shared_ptr<FakeMachine> machine_;
  const int rank_;
  FakeStream* const default_stream_;
  std::uint64_t capture_ = 0;
  std::uint64_t captures_ = 0;
};

}  // namespace chainmail::test
