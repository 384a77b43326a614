// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/engine/device/device_group.h"

#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "ops/engine/device/device_comms.h"
#include "ops/engine/device/device_dispatch.h"
#include "ops/engine/device/device_packing.h"
#include "ops/engine/device/operation/device_operation.h"
#include "ops/engine/device/operation/device_watchdog.h"
#include "ops/engine/device/transfers/host_staging.h"
#include "ops/engine/device/transfers/peer_channel.h"

namespace chainmail::ops {
namespace {

// NCCL often notices a dead peer before the launcher's news of it are here; they say more.
constexpr std::chrono::milliseconds kPatienceForNews{500};
constexpr std::chrono::milliseconds kPatienceForEnd{10000};

class NcclDeviceGroup final : public DeviceGroup {
 public:
  NcclDeviceGroup(DeviceLibrary& library, std::shared_ptr<Group> group,
                  std::shared_ptr<Rendezvous> rendezvous, DeviceGroupOptions options)
      : library_(library),
        group_(std::move(group)),
        rendezvous_(std::move(rendezvous)),
        options_(std::move(options)),
        resources_(std::make_shared<DeviceResources>(library.device(), options_.device)),
        comms_(library.nccl(), rendezvous_, group_->topology(), group_->rank(), options_,
               group_->options().name),
        scratch_(library.device(), GrowingMemory::Kind::kDevice),
        channels_(context_of_lines()),
        watchdog_([this] { return find_failure(); },
                  [this](const std::exception_ptr& error) { fail(with_cause(error)); }) {
    const DeviceGuard guard(api(), options_.device);
    check_device(api(), api().create_stream(cross_stream_), "making a stream");
    local_done_ = resources_->events.take();
    for (DeviceEvent& event : cross_done_) event = resources_->events.take();
  }

  ~NcclDeviceGroup() override {
    try {
      shutdown();
    } catch (const std::exception& error) {
      internal::log_line(internal::LogLevel::kWarning,
                         "ending the device group " + group_->options().name + ": " + error.what());
    }
    // Its thread, which ends with it, may report a failure until then.
    std::unique_ptr<HostStaging> staging;
    {
      const std::lock_guard lock(fail_mutex_);
      staging = std::move(staging_);
    }
    staging.reset();
    comms_.abort();
    channels_.end();
    try {
      const DeviceGuard guard(api(), options_.device);
      api().destroy_stream(cross_stream_);
    } catch (const Error&) {
      // The device is gone, and the stream with it.
    }
    resources_->events.give_back(local_done_);
    for (const DeviceEvent event : cross_done_) resources_->events.give_back(event);
  }

  const DeviceGroupOptions& options() const noexcept override { return options_; }
  std::exception_ptr error() const override { return resources_->failure.error(); }

  std::shared_ptr<DeviceOperation> issue(const Collective& collective,
                                         DeviceStream stream) override {
    if (collective.kind == OpKind::kSend || collective.kind == OpKind::kRecv) {
      return issue_alone(collective, stream);
    }
    const DevicePlan plan = plan_device_collective(collective, *group_, options_);
    return run(describe_device_call(collective, plan), limit_of(collective), plan, stream,
               [&](const StreamComms& comms, StreamWork& work) {
                 queue_collective(collective, plan, comms, work, options_);
               });
  }

  std::shared_ptr<DeviceOperation> issue_together(std::span<const Collective> transfers,
                                                  DeviceStream stream) override {
    for (const Collective& transfer : transfers) check_transfer(transfer);
    if (transfers.empty()) throw InvalidArgument("no sends or receives to issue");
    const std::string text = transfers.size() == 1
                                 ? describe_transfer(transfers.front())
                                 : std::to_string(transfers.size()) + " sends and receives";
    return run(text, limit_of(transfers.front()), {}, stream,
               [&](const StreamComms& comms, StreamWork& work) {
                 queue_transfers(transfers, comms, work);
               });
  }

  std::shared_ptr<DeviceOperation> mark(DeviceStream stream,
                                        std::chrono::milliseconds limit) override {
    check_alive();
    return on_device([&] {
      if (capture_of(stream) != 0) {
        throw InvalidArgument(
            "a stream cannot be waited for while a CUDA graph is being captured on it");
      }
      auto operation =
          make_operation("what the stream of device " + std::to_string(options_.device) +
                             " had been given before a barrier",
                         internal::Deadline::after(limit));
      check_device(api(), api().record(operation->end(), stream), "recording an event");
      watchdog_.add(operation);
      return operation;
    });
  }

  void prepare(const Collective& collective) override {
    const std::lock_guard lock(issue_mutex_);
    check_alive();
    const DeviceGuard guard(api(), options_.device);
    const DevicePlan plan = plan_device_collective(collective, *group_, options_);
    try {
      static_cast<void>(need(plan, wait_of(limit_of(collective))));
      static_cast<void>(
          scratch_.get(scratch_bytes(collective, plan, group_->topology(), options_), true));
    } catch (...) {
      rethrow_as_group();
    }
  }

  std::unique_ptr<DevicePack> make_pack(std::span<const PackedTensor> tensors) override {
    return make_device_pack(api(), options_.device, tensors);
  }

  std::shared_ptr<std::byte> allocate(std::size_t bytes) override {
    return allocate_for_nccl(library_, options_.device, comms_.of_collectives(), bytes);
  }

  void shutdown() override {
    const std::lock_guard lock(issue_mutex_);
    if (is_shut_down_) return;
    is_shut_down_ = true;
    while (!watchdog_.is_idle() && !resources_->failure.has_failed()) {
      std::this_thread::sleep_for(std::chrono::milliseconds{1});
    }
    watchdog_.stop();
    channels_.end();
    if (!resources_->failure.has_failed() && group_->error() == nullptr) {
      try {
        const DeviceGuard guard(api(), options_.device);
        comms_.destroy(wait_of(internal::Deadline::after(kPatienceForEnd)));
      } catch (const Error& error) {
        // All work is done: what is left to free is freed by the abort.
        internal::log_line(
            internal::LogLevel::kWarning,
            "ending the device group " + group_->options().name + ": " + error.what());
      }
    }
    comms_.abort();
  }

 private:
  DeviceApi& api() const { return library_.device(); }

  int global_rank() const {
    const int rank = group_->rank();
    return options_.global_ranks.empty() ? rank
                                         : options_.global_ranks[static_cast<std::size_t>(rank)];
  }

  internal::Deadline limit_of(const Collective& collective) const {
    return internal::Deadline::after(collective.timeout.value_or(group_->options().timeout));
  }
  NcclWait wait_of(internal::Deadline deadline) {
    return {deadline, [this] { check_alive(); }};
  }

  /// Throws the group's error, which may be the other half's.
  void check_alive() {
    if (std::exception_ptr error = group_->error(); error != nullptr) fail(error);
    resources_->failure.rethrow_if_failed();
  }

  PeerChannelContext context_of_lines() {
    return {.resources = resources_,
            .make =
                [this](const Collective& transfer, const NcclWait& wait) {
                  const bool sends = transfer.kind == OpKind::kSend;
                  return comms_.make_pair(sends ? group_->rank() : transfer.root,
                                          sends ? transfer.root : group_->rank(), wait);
                },
            .wait_until =
                [this](internal::Deadline deadline) {
                  return NcclWait{deadline, [this] {
                                    if (auto error = group_->error()) std::rethrow_exception(error);
                                    resources_->failure.rethrow_if_failed();
                                  }};
                },
            .report = [this](const std::exception_ptr& error) { fail(with_cause(error)); }};
  }

  std::string describe_transfer(const Collective& transfer) const {
    return describe_device_call(transfer, {}) +
           (transfer.kind == OpKind::kSend ? " to rank " : " from rank ") +
           std::to_string(transfer.root);
  }

  // Without issue_mutex_, which is held by a collective that waits for ranks to come.
  std::shared_ptr<DeviceOperation> issue_alone(const Collective& transfer, DeviceStream stream) {
    check_transfer(transfer);
    check_alive();
    const internal::Deadline deadline = limit_of(transfer);
    return on_device([&] {
      const std::uint64_t capture = capture_of(stream);
      auto operation = make_operation(describe_transfer(transfer), deadline);
      if (capture != 0) operation->set_captured();
      channels_.at(transfer)->issue(transfer, operation, stream, capture, deadline);
      if (capture == 0) watchdog_.add(operation);
      return operation;
    });
  }

  /// What `body` does, with the group's device: whatever it throws ends the group, but for what it
  /// finds before anything is queued.
  template <class Body>
  std::shared_ptr<DeviceOperation> on_device(const Body& body) {
    try {
      const DeviceGuard guard(api(), options_.device);
      return body();
    } catch (const InvalidArgument&) {
      throw;
    } catch (...) {
      rethrow_as_group();
    }
  }

  std::uint64_t capture_of(DeviceStream stream) const {
    std::uint64_t capture = 0;
    check_device(api(), api().capture_id(stream, capture), "asking for a capture");
    return capture;
  }

  std::shared_ptr<IssuedOperation> make_operation(const std::string& text,
                                                  internal::Deadline deadline) const {
    return std::make_shared<IssuedOperation>(
        resources_, "rank " + std::to_string(global_rank()) + ": " + text, deadline);
  }

  void check_transfer(const Collective& transfer) const {
    const bool is_transfer = transfer.kind == OpKind::kSend || transfer.kind == OpKind::kRecv;
    if (!is_transfer || transfer.root < 0 || transfer.root >= group_->size() ||
        transfer.root == group_->rank()) {
      throw InvalidArgument(std::string(to_string(transfer.kind)) + " with rank " +
                            std::to_string(transfer.root) +
                            " on a device: only sends and receives with another rank of the "
                            "group, by name, can be issued together");
    }
    const Topology& topology = group_->topology();
    if (topology.node_of(transfer.root) != topology.node_of(group_->rank())) {
      check_nccl(transfer.kind, *group_, options_);
    }
  }

  StreamComms need(const DevicePlan& plan, const NcclWait& wait) {
    const StreamComms comms = comms_.need(plan.is_hierarchical, wait);
    const bool is_leader = group_->topology().local_rank_of(group_->rank()) == 0;
    if (plan.crosses_on_host && is_leader && staging_ == nullptr) {
      auto staging =
          std::make_unique<HostStaging>(resources_, create_leaders_group(*group_, rendezvous_),
                                        [this](const std::exception_ptr& error) { fail(error); });
      const std::lock_guard lock(fail_mutex_);
      staging_ = std::move(staging);
      if (has_ended_) staging_->abort(resources_->failure.error());
    }
    return comms;
  }

  template <class Queue>
  std::shared_ptr<DeviceOperation> run(const std::string& text, internal::Deadline deadline,
                                       const DevicePlan& plan, DeviceStream stream,
                                       const Queue& queue) {
    const std::lock_guard lock(issue_mutex_);
    check_alive();
    if (is_shut_down_) throw InvalidArgument(text + ": the group has been shut down");
    try {
      const DeviceGuard guard(api(), options_.device);
      const auto operation = make_operation(text, deadline);
      const std::uint64_t capture = capture_of(stream);
      if (capture != 0) operation->set_captured();
      if (capture != 0 && plan.crosses_on_host) {
        throw InvalidArgument(text + " crosses on the host, which a CUDA graph cannot repeat");
      }
      const NcclWait wait = wait_of(deadline);
      const StreamComms comms = need(plan, wait);
      if (capture != 0) {
        for (const auto& comm : comms_.of_collectives()) comm->set_captured();
      }
      StreamWork work{
          .device = api(),
          .stream = stream,
          .cross_stream = cross_stream_,
          .local_done = local_done_,
          .cross_done = cross_done_,
          .scratch = scratch_,
          .may_allocate = capture == 0,
          .wait = wait,
          .flag = operation->flag(),
          .crosses_on_host = plan.crosses_on_host,
          .host = plan.crosses_on_host && staging_ != nullptr ? &staging_->crossing() : nullptr,
          .events = &resources_->events};
      order_.follow(api(), stream, capture);
      queue(comms, work);
      order_.end_with(api(), operation, stream, capture);
      if (capture == 0) watchdog_.add(operation);
      return operation;
    } catch (const InvalidArgument&) {
      throw;  // found before anything was queued
    } catch (...) {
      join_cross_stream(stream);
      rethrow_as_group();
    }
  }

  /// What a collective that failed half-way has on the group's own stream works on the caller's
  /// memory, whose end the caller tells by `stream`.
  void join_cross_stream(DeviceStream stream) noexcept {
    try {
      const DeviceGuard guard(api(), options_.device);
      const DeviceEvent event = resources_->events.take();
      if (api().record(event, cross_stream_) == kDeviceSuccess) {
        static_cast<void>(api().wait(stream, event));
      }
      resources_->events.give_back(event);
    } catch (const Error&) {
      // The device does not work any more.
    }
  }

  std::exception_ptr find_failure() {
    if (std::exception_ptr error = group_->error(); error != nullptr) return error;
    if (std::exception_ptr error = resources_->failure.error(); error != nullptr) return error;
    return comms_.state();
  }

  /// A failure that NCCL has seen, or the reason for it when the group learns that in time.
  std::exception_ptr with_cause(const std::exception_ptr& error) {
    try {
      std::rethrow_exception(error);
    } catch (const NcclError&) {
    } catch (const PeerError&) {
    } catch (...) {
      return error;
    }
    const auto limit = internal::Deadline::after(kPatienceForNews);
    while (!limit.has_passed()) {
      if (std::exception_ptr known = group_->error(); known != nullptr) return known;
      std::this_thread::sleep_for(std::chrono::milliseconds{5});
    }
    return error;
  }

  /// The first failure ends both halves of the group, here and on the other ranks.
  void fail(const std::exception_ptr& error) {
    resources_->failure.fail(error);
    const std::exception_ptr first = resources_->failure.error();
    HostStaging* staging = nullptr;
    {
      const std::lock_guard lock(fail_mutex_);
      if (has_ended_) return;
      has_ended_ = true;
      staging = staging_.get();
    }
    try {
      group_->abort(first);
    } catch (const Error&) {
      // Dead already.
    }
    if (staging != nullptr) staging->abort(first);
    comms_.abort();
    channels_.release_all();
  }

  [[noreturn]] void rethrow_as_group() {
    fail(with_cause(std::current_exception()));
    std::rethrow_exception(resources_->failure.error());
  }

  DeviceLibrary& library_;
  const std::shared_ptr<Group> group_;
  const std::shared_ptr<Rendezvous> rendezvous_;
  const DeviceGroupOptions options_;
  const std::shared_ptr<DeviceResources> resources_;
  DeviceComms comms_;
  GrowingMemory scratch_;
  PeerChannels channels_;
  std::unique_ptr<HostStaging> staging_;
  DeviceStream cross_stream_;
  DeviceEvent local_done_;
  std::array<DeviceEvent, kStreamPipelineDepth> cross_done_;
  std::mutex issue_mutex_;
  StreamOrder order_;
  bool is_shut_down_ = false;
  std::mutex fail_mutex_;
  bool has_ended_ = false;
  DeviceWatchdog watchdog_;  // last: its thread sees all the above
};

}  // namespace

std::shared_ptr<DeviceGroup> create_device_group(DeviceLibrary& library,
                                                 std::shared_ptr<Group> group,
                                                 std::shared_ptr<Rendezvous> rendezvous,
                                                 DeviceGroupOptions options) {
  if (group == nullptr || rendezvous == nullptr) {
    throw InvalidArgument("create_device_group: there is no group or no rendezvous");
  }
  if (options.chunk_bytes == 0) {
    throw InvalidArgument("create_device_group: chunk_bytes must be positive");
  }
  return std::make_shared<NcclDeviceGroup>(library, std::move(group), std::move(rendezvous),
                                           std::move(options));
}

}  // namespace chainmail::ops
