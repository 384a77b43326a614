// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "tests/ops/support/fake_gpu/fake_machine.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>

#include "ops/kernels/cpu/kernels.h"
#include "ops/kernels/pack.h"

namespace chainmail::test {
namespace {

using ops::DataType;
using ops::DeviceCode;
using ops::DeviceEvent;
using ops::DeviceStream;
using ops::kDeviceNotReady;
using ops::kDeviceSuccess;

// CUDA's own numbers.
constexpr DeviceCode kInvalidValue = 1;
constexpr DeviceCode kCaptureUnsupported = 900;
constexpr DeviceCode kCaptureIsolation = 905;

void raise_flag(std::uint32_t* flag, bool is_raised) {
  if (flag != nullptr && is_raised) std::atomic_ref<std::uint32_t>(*flag).store(1);
}

}  // namespace

FakeStream* FakeMachine::add_stream(int rank) {
  const std::lock_guard lock(mutex_);
  streams_.push_back(std::make_unique<FakeStream>());
  streams_.back()->rank = rank;
  return streams_.back().get();
}

void FakeMachine::remove_stream(FakeStream* stream) {
  const std::lock_guard lock(mutex_);
  stream->is_destroyed = true;
  preferred_.erase(stream);
  pump();
}

void FakeMachine::remove_rank(int rank) {
  const std::lock_guard lock(mutex_);
  streams_.remove_if([rank](const auto& own) { return own->rank == rank; });
}

FakeEvent* FakeMachine::add_event() {
  const std::lock_guard lock(mutex_);
  events_.push_back(std::make_shared<FakeEvent>());
  return events_.back().get();
}

void FakeMachine::remove_event(FakeEvent* event) {
  const std::lock_guard lock(mutex_);
  pump();
  events_.remove_if([event](const auto& own) { return own.get() == event; });
}

void FakeMachine::delay(int rank, std::chrono::milliseconds by) {
  const std::lock_guard lock(mutex_);
  delays_[rank] = std::chrono::steady_clock::now() + by;
}

bool FakeMachine::may_begin(const FakeStream& stream) const {
  const auto delay = delays_.find(stream.rank);
  return delay == delays_.end() || std::chrono::steady_clock::now() >= delay->second;
}

void FakeMachine::hold_back() {
  const std::lock_guard lock(mutex_);
  is_held_back_ = true;
}

void FakeMachine::let_go() {
  const std::lock_guard lock(mutex_);
  is_held_back_ = false;
  pump();
}

void FakeMachine::prefer(const FakeStream* stream) {
  const std::lock_guard lock(mutex_);
  preferred_.insert(stream);
}

bool FakeMachine::run_some(FakeStream& stream, unsigned most) {
  bool has_moved = false;
  for (; most > 0 && !stream.tasks.empty(); --most) {
    if (!stream.tasks.front()()) break;
    stream.tasks.pop_front();
    has_moved = true;
  }
  return has_moved;
}

void FakeMachine::pump() {
  if (is_held_back_) return;
  std::vector<FakeStream*> order;
  for (bool has_moved = true; has_moved;) {
    has_moved = false;
    order.clear();
    for (const auto& stream : streams_) {
      if (stream->tasks.empty() || !may_begin(*stream)) continue;
      if (preferred_.count(stream.get()) == 0) {
        order.push_back(stream.get());
      } else {
        has_moved = run_some(*stream, std::numeric_limits<unsigned>::max()) || has_moved;
      }
    }
    if (has_moved) continue;
    std::shuffle(order.begin(), order.end(), random_);
    for (FakeStream* stream : order) {
      // Some tasks of each at a time, so that streams overtake each other.
      has_moved = run_some(*stream, 1 + static_cast<unsigned>(random_() % 4)) || has_moved;
      if (has_moved && !preferred_.empty()) break;
    }
  }
  streams_.remove_if([](const auto& own) { return own->is_destroyed && own->tasks.empty(); });
}

void* FakeMachine::allocate(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  auto memory = std::make_unique_for_overwrite<std::byte[]>(std::max<std::size_t>(bytes, 1));
  std::memset(memory.get(), 0xab, bytes);
  void* const place = memory.get();
  memory_.emplace(place, std::move(memory));
  return place;
}

void FakeMachine::free(void* memory) {
  const std::lock_guard lock(mutex_);
  memory_.erase(memory);
}

std::size_t FakeMachine::live_streams() {
  const std::lock_guard lock(mutex_);
  return static_cast<std::size_t>(std::count_if(
      streams_.begin(), streams_.end(), [](const auto& own) { return !own->is_destroyed; }));
}
std::size_t FakeMachine::live_events() {
  const std::lock_guard lock(mutex_);
  return events_.size();
}
std::size_t FakeMachine::live_memory() {
  const std::lock_guard lock(mutex_);
  return memory_.size();
}

FakeDevice::FakeDevice(std::shared_ptr<FakeMachine> machine, int rank)
    : machine_(std::move(machine)), rank_(rank), default_stream_(machine_->add_stream(rank)) {}

FakeDevice::~FakeDevice() { machine_->remove_rank(rank_); }

FakeStream& FakeDevice::stream_of(DeviceStream stream) {
  return stream.handle == nullptr ? *default_stream_ : *static_cast<FakeStream*>(stream.handle);
}

void FakeDevice::queue(DeviceStream stream, FakeTask task) {
  const std::lock_guard lock(machine_->mutex());
  stream_of(stream).tasks.push_back(std::move(task));
}

void FakeDevice::begin_capture(DeviceStream stream) {
  const std::lock_guard lock(machine_->mutex());
  capture_ = ++captures_;
  stream_of(stream).capture = capture_;
}

void FakeDevice::end_capture() {
  const std::lock_guard lock(machine_->mutex());
  capture_ = 0;
}

DeviceCode FakeDevice::use(int /*device*/, int& previous) noexcept {
  previous = 0;
  return kDeviceSuccess;
}

DeviceCode FakeDevice::create_stream(DeviceStream& stream) noexcept {
  stream.handle = machine_->add_stream(rank_);
  return kDeviceSuccess;
}

void FakeDevice::destroy_stream(DeviceStream stream) noexcept {
  machine_->remove_stream(static_cast<FakeStream*>(stream.handle));
}

DeviceCode FakeDevice::create_event(DeviceEvent& event) noexcept {
  event.handle = machine_->add_event();
  return kDeviceSuccess;
}

void FakeDevice::destroy_event(DeviceEvent event) noexcept {
  machine_->remove_event(static_cast<FakeEvent*>(event.handle));
}

DeviceCode FakeDevice::record(DeviceEvent event, DeviceStream stream) noexcept {
  const std::lock_guard lock(machine_->mutex());
  auto* const own = static_cast<FakeEvent*>(event.handle);
  std::uint64_t capture = 0;
  static_cast<void>(capture_id(stream, capture));
  own->capture = capture;
  const std::uint64_t ticket = ++own->recorded;
  queue(stream, [own = own->shared_from_this(), ticket] {
    own->reached = std::max(own->reached, ticket);
    return true;
  });
  return kDeviceSuccess;
}

DeviceCode FakeDevice::wait(DeviceStream stream, DeviceEvent event) noexcept {
  const std::lock_guard lock(machine_->mutex());
  auto* const own = static_cast<FakeEvent*>(event.handle);
  std::uint64_t capture = 0;
  static_cast<void>(capture_id(stream, capture));
  if (own->capture != capture) {
    // A stream joins the capture of what it waits for, unless that capture has ended.
    if (capture != 0 || own->capture != capture_) return kCaptureIsolation;
    stream_of(stream).capture = own->capture;
  }
  const std::uint64_t ticket = own->recorded;
  queue(stream, [own = own->shared_from_this(), ticket] { return own->reached >= ticket; });
  return kDeviceSuccess;
}

DeviceCode FakeDevice::query(DeviceEvent event) noexcept {
  const std::lock_guard lock(machine_->mutex());
  machine_->pump();
  const auto* const own = static_cast<FakeEvent*>(event.handle);
  if (own->capture != 0) return kInvalidValue;
  return own->reached >= own->recorded ? kDeviceSuccess : kDeviceNotReady;
}

DeviceCode FakeDevice::capture_id(DeviceStream stream, std::uint64_t& id) noexcept {
  const std::lock_guard lock(machine_->mutex());
  const std::uint64_t own = stream_of(stream).capture;
  id = own == capture_ ? own : 0;
  return kDeviceSuccess;
}

DeviceCode FakeDevice::allocate(void*& memory, std::size_t bytes) noexcept {
  const std::lock_guard lock(machine_->mutex());
  if (capture_ != 0) return kCaptureUnsupported;
  memory = machine_->allocate(bytes);
  return kDeviceSuccess;
}

void FakeDevice::free(void* memory) noexcept {
  const std::lock_guard lock(machine_->mutex());
  machine_->pump();
  machine_->free(memory);
}

DeviceCode FakeDevice::allocate_pinned(void*& memory, std::size_t bytes) noexcept {
  memory = machine_->allocate(bytes);
  return kDeviceSuccess;
}

void FakeDevice::free_pinned(void* memory) noexcept { free(memory); }

DeviceCode FakeDevice::copy(void* target, const void* source, std::size_t bytes,
                            DeviceStream stream) noexcept {
  queue(stream, [=] {
    std::memmove(target, source, bytes);
    return true;
  });
  return kDeviceSuccess;
}

DeviceCode FakeDevice::hold(DeviceStream stream, std::uint32_t* flag,
                            std::uint32_t value) noexcept {
  queue(stream, [=] {
    const std::uint32_t current = std::atomic_ref<std::uint32_t>(*flag).load();
    return static_cast<std::int32_t>(current - value) >= 0;
  });
  return kDeviceSuccess;
}

std::string FakeDevice::describe(DeviceCode code) const {
  return "fake CUDA error " + std::to_string(code);
}

DeviceCode FakeDevice::convert(void* target, DataType target_type, const void* source,
                               DataType source_type, std::size_t count, double scale,
                               std::uint32_t* flag, DeviceStream stream) noexcept {
  queue(stream, [=] {
    raise_flag(flag, ops::convert(target, target_type, source, source_type, count, scale));
    return true;
  });
  return kDeviceSuccess;
}

DeviceCode FakeDevice::round_parts(void* messages, std::size_t part, const void* source,
                                   std::size_t count, double scale, ops::WireFormat wire,
                                   DeviceStream stream) noexcept {
  queue(stream, [=] {
    ops::round_parts(messages, part, source, count, scale, wire);
    return true;
  });
  return kDeviceSuccess;
}

DeviceCode FakeDevice::add_parts(void* result, const void* messages, std::size_t part,
                                 int message_count, int own, const void* own_message,
                                 std::size_t count, ops::WireFormat wire, bool is_mean,
                                 DeviceStream stream) noexcept {
  queue(stream, [=] {
    ops::add_parts(result, messages, part, message_count, own, own_message, count, wire, is_mean);
    return true;
  });
  return kDeviceSuccess;
}

DeviceCode FakeDevice::widen_parts(void* target, const void* messages, std::size_t part,
                                   std::size_t count, ops::WireFormat wire, std::uint32_t* flag,
                                   DeviceStream stream) noexcept {
  queue(stream, [=] {
    raise_flag(flag, ops::widen_parts(target, messages, part, count, wire));
    return true;
  });
  return kDeviceSuccess;
}

DeviceCode FakeDevice::divide(void* data, DataType type, std::size_t count, std::int64_t divisor,
                              DeviceStream stream) noexcept {
  queue(stream, [=] {
    ops::divide_in_place(static_cast<std::byte*>(data), count, type, divisor);
    return true;
  });
  return kDeviceSuccess;
}

DeviceCode FakeDevice::pack(const ops::PackBlock* blocks, std::size_t block_count, void* buffer,
                            DataType buffer_type, double scale, std::uint32_t* flag,
                            DeviceStream stream) noexcept {
  queue(stream, [=] {
    raise_flag(flag, ops::pack({blocks, block_count}, buffer, buffer_type, scale));
    return true;
  });
  return kDeviceSuccess;
}

DeviceCode FakeDevice::unpack(const ops::PackBlock* blocks, std::size_t block_count,
                              const void* buffer, DataType buffer_type, double scale,
                              std::uint32_t* flag, DeviceStream stream) noexcept {
  queue(stream, [=] {
    raise_flag(flag, ops::unpack({blocks, block_count}, buffer, buffer_type, scale));
    return true;
  });
  return kDeviceSuccess;
}

}  // namespace chainmail::test
