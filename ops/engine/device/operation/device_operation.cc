// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/engine/device/operation/device_operation.h"

#include <thread>
#include <utility>

#include "base/error.h"
#include "base/log.h"

namespace chainmail::ops {
namespace {

// A collective takes tens of microseconds at least.
constexpr int kYieldsBeforeSleep = 100;
constexpr std::chrono::microseconds kPause{50};

}  // namespace

IssuedOperation::IssuedOperation(std::shared_ptr<DeviceResources> resources, std::string text,
                                 internal::Deadline deadline)
    : resources_(std::move(resources)),
      text_(std::move(text)),
      deadline_(deadline),
      end_(resources_->events.take()),
      flag_(resources_->words.take()) {}

IssuedOperation::~IssuedOperation() {
  resources_->events.give_back(end_);
  // A graph, or what a failed device still runs, may write the word again.
  if (!is_captured_ && has_ended_ && !resources_->failure.has_failed()) {
    resources_->words.give_back(flag_);
  }
}

bool IssuedOperation::is_done() noexcept {
  if (has_ended_ || is_captured_) return true;
  DeviceCode code = kDeviceNotReady;
  try {
    const DeviceGuard guard(resources_->api, resources_->device);
    code = resources_->api.query(end_);
    if (code != kDeviceSuccess && code != kDeviceNotReady) {
      check_device(resources_->api, code, text_.c_str());
    }
  } catch (const Error&) {
    resources_->failure.fail(std::current_exception());
  }
  // In this order: communicators are aborted after the failure is recorded, and what an abort has
  // ended looks done.
  if (resources_->failure.has_failed()) return true;
  if (code == kDeviceSuccess) has_ended_ = true;
  return has_ended_;
}

void IssuedOperation::wait(std::optional<std::chrono::milliseconds> timeout) {
  const auto limit = timeout.has_value() ? internal::Deadline::after(*timeout) : deadline_;
  for (int round = 0; !is_done(); ++round) {
    if (timeout.has_value() && limit.has_passed()) {
      throw TimeoutError(text_ + " is not done after " + std::to_string(timeout->count()) + " ms");
    }
    if (round < kYieldsBeforeSleep) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(kPause);
    }
  }
  if (const std::exception_ptr failed = error(); failed != nullptr) std::rethrow_exception(failed);
}

std::exception_ptr IssuedOperation::error() const {
  return has_ended_ ? nullptr : resources_->failure.error();
}

bool IssuedOperation::has_nonfinite() const noexcept {
  return std::atomic_ref<std::uint32_t>(*flag_).load() != 0;
}

void StreamOrder::follow(DeviceApi& api, DeviceStream stream, std::uint64_t capture) const {
  // Inside and outside of a capture cannot wait for each other; a graph's launch is the user's.
  if (last_ == nullptr || stream_ == stream || capture_ != capture) return;
  check_device(api, api.wait(stream, last_->end()), "waiting for an event");
}

void StreamOrder::end_with(DeviceApi& api, std::shared_ptr<IssuedOperation> operation,
                           DeviceStream stream, std::uint64_t capture) {
  check_device(api, api.record(operation->end(), stream), "recording an event");
  last_ = std::move(operation);
  stream_ = stream;
  capture_ = capture;
}

}  // namespace chainmail::ops
