// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/engine/device/transfers/host_staging.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "base/error.h"
#include "ops/engine/create_group.h"

namespace chainmail::ops {
namespace {

constexpr std::chrono::microseconds kPause{20};
constexpr std::chrono::microseconds kLongestPause{320};  // while the leaders take long

}  // namespace

std::shared_ptr<Group> create_leaders_group(const Group& group,
                                            std::shared_ptr<Rendezvous> rendezvous) {
  const Topology& topology = group.topology();
  const std::vector<int> leaders = topology.ranks_across(0);
  GroupOptions options = group.options();
  options.name += "/leaders";
  options.algorithm = Algorithm::kFlat;
  return create_group(topology.node_of(group.rank()), topology.subset(leaders),
                      std::make_shared<PrefixRendezvous>("leaders/", std::move(rendezvous)),
                      std::move(options), leaders);
}

HostStaging::HostStaging(std::shared_ptr<DeviceResources> resources, std::shared_ptr<Group> leaders,
                         Report report)
    : resources_(std::move(resources)),
      leaders_(std::move(leaders)),
      report_(std::move(report)),
      memory_(resources_->api, GrowingMemory::Kind::kPinned) {
  DeviceApi& api = resources_->api;
  check_device(api, api.create_stream(crossing_.out_stream), "making a stream");
  crossing_.flag = resources_->words.take();
  crossing_.memory = &memory_;
  crossing_.start = [this](DeviceEvent ready, std::byte* data, std::size_t count,
                           const Reduction& reduction) {
    return start(ready, data, count, reduction);
  };
  thread_ = std::thread([this] { run(); });
}

HostStaging::~HostStaging() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
    changed_.notify_all();
  }
  thread_.join();
  release(last_ticket_);
  try {
    leaders_->shutdown();
  } catch (const Error&) {
    // It has failed, and whoever asked has been told.
  }
  resources_->api.destroy_stream(crossing_.out_stream);
}

std::uint32_t HostStaging::start(DeviceEvent ready, std::byte* data, std::size_t count,
                                 const Reduction& reduction) {
  const std::lock_guard lock(mutex_);
  chunks_.push_back({ready, data, count, reduction, ++last_ticket_});
  // After an abort nobody would release it.
  if (is_aborted_) release(last_ticket_);
  changed_.notify_all();
  return last_ticket_;
}

void HostStaging::run() {
  std::unique_lock lock(mutex_);
  for (auto pause = kPause; !is_stopping_; pause = std::min(2 * pause, kLongestPause)) {
    lock.unlock();
    if (release_reduced()) pause = kPause;  // a failure that it reports comes back to abort()
    lock.lock();
    if (is_stopping_) break;
    if (chunks_.empty() && in_flight_.empty()) {
      changed_.wait(lock);
      continue;
    }
    if (chunks_.empty()) {
      changed_.wait_for(lock, pause);
      continue;
    }
    pause = kPause;
    const Chunk chunk = chunks_.front();
    chunks_.pop_front();
    lock.unlock();
    try {
      if (wait_for_copy(chunk)) reduce(chunk);
    } catch (...) {
      report_(std::current_exception());
    }
    resources_->events.give_back(chunk.ready);
    lock.lock();
  }
}

bool HostStaging::wait_for_copy(const Chunk& chunk) {
  const DeviceGuard guard(resources_->api, resources_->device);
  while (!resources_->failure.has_failed()) {
    const DeviceCode code = resources_->api.query(chunk.ready);
    if (code == kDeviceSuccess) return true;
    if (code != kDeviceNotReady) check_device(resources_->api, code, "copying to the host");
    {
      const std::lock_guard lock(mutex_);
      if (is_stopping_) return false;
    }
    release_reduced();
    std::this_thread::sleep_for(kPause);
  }
  return false;
}

// Not waited for: the next chunk's copy ends meanwhile.
void HostStaging::reduce(const Chunk& chunk) {
  Collective collective;
  collective.kind = OpKind::kAllReduce;
  collective.dtype = chunk.reduction.dtype;
  collective.reduce_op = ReduceOp::kSum;
  collective.count = chunk.count;
  collective.output = chunk.data;
  collective.wire = chunk.reduction.wire;
  in_flight_.push_back({leaders_->submit(std::move(collective)), chunk.ticket});
}

// Not by on_done(): callbacks end when the interpreter does, and no stream may be left waiting.
bool HostStaging::release_reduced() noexcept {
  bool has_any = false;
  while (!in_flight_.empty() && in_flight_.front().operation->is_done()) {
    const InFlight reduced = std::move(in_flight_.front());
    in_flight_.pop_front();
    if (const auto error = reduced.operation->error()) {
      report_(error);
    } else {
      release(reduced.ticket);
    }
    has_any = true;
  }
  return has_any;
}

void HostStaging::abort(const std::exception_ptr& error) noexcept {
  try {
    leaders_->abort(error);
  } catch (const Error&) {
    // Dead already.
  }
  const std::lock_guard lock(mutex_);
  is_aborted_ = true;
  release(last_ticket_);
}

}  // namespace chainmail::ops
