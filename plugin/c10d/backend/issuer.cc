// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/c10d/backend/issuer.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <optional>
#include <utility>

#include "base/deadline.h"
#include "base/error.h"
#include "base/log.h"
#include "plugin/c10d/work/profiling.h"
#include "plugin/tensor/tensor_bytes.h"

namespace chainmail::internal {
namespace {

/// Several operations of the group as one: done when all are, failed when one is. Thread-safe.
class OperationList final : public ops::Operation,
                            public std::enable_shared_from_this<OperationList> {
 public:
  explicit OperationList(std::vector<std::shared_ptr<ops::Operation>> parts)
      : parts_(std::move(parts)) {}

  bool is_done() const noexcept override {
    return std::ranges::all_of(parts_, [](const auto& part) { return part->is_done(); });
  }
  void wait(std::optional<std::chrono::milliseconds> timeout) override {
    const Deadline deadline = Deadline::after(timeout.value_or(std::chrono::milliseconds{0}));
    for (const auto& part : parts_) {
      part->wait(timeout ? std::optional(deadline.left()) : std::nullopt);
    }
  }
  /// The first, in the order of the list.
  std::exception_ptr error() const override {
    for (const auto& part : parts_) {
      if (auto error = part->error()) return error;
    }
    return nullptr;
  }
  void on_done(std::function<void()> callback) override {
    if (parts_.empty()) return callback();
    const auto left = std::make_shared<std::atomic<std::size_t>>(parts_.size());
    const auto shared = std::make_shared<std::function<void()>>(std::move(callback));
    for (const auto& part : parts_) {
      part->on_done([left, shared, keep = shared_from_this()] {
        if (left->fetch_sub(1, std::memory_order_acq_rel) == 1) (*shared)();
      });
    }
  }
  int source_rank() const noexcept override { return -1; }

 private:
  const std::vector<std::shared_ptr<ops::Operation>> parts_;
};

}  // namespace

Issuer::Issuer(GroupContext& group, DeviceContexts::Maker make_device_group)
    : group_(group),
      devices_(group, std::move(make_device_group)),
      self_transfers_(std::make_shared<SelfTransfers>(group.group, group.global_rank())) {}

Issuer::~Issuer() {
  give_up_batch("its group was destroyed");
  self_transfers_->close();
}

void Issuer::complete(const Call& call, const PayloadPtr& payload,
                      ops::Collective& collective) const {
  collective.timeout = group_.limit_of(call.timeout);
  collective.keep = payload;
  collective.describe_shapes = [&kept = *payload] {
    return describe_shapes(kept.shown.empty() ? kept.results : kept.shown);
  };
}

std::shared_ptr<ops::Operation> Issuer::submit(ops::Collective&& collective) {
  try {
    // The engine has no path from a rank to itself.
    if (is_to_self(collective)) return self_transfers_->submit(collective);
    return group_.group->submit(std::move(collective));
  } catch (const InvalidArgument& mistake) {
    TORCH_CHECK(false, "chainmail: ", mistake.what());
  }
}

WorkPtr Issuer::issue(const Call& call, at::TensorList inputs, ops::Collective collective,
                      PayloadPtr payload) {
  const bool in_batch = is_in_batch();
  complete(call, payload, collective);
  if (!inputs.empty() && !inputs[0].device().is_cpu()) {
    TORCH_CHECK(!is_to_self(collective), "chainmail: ", call.api.name,
                " between a rank and itself needs CPU tensors; on ", inputs[0].device(),
                " copy instead");
    return devices_.issue(call, inputs, std::move(collective), payload,
                          in_batch ? &batch_.on_device : nullptr);
  }
  for (const at::Tensor& input : inputs) payload->keep_alive(input);
  if (in_batch && ops::is_point_to_point(collective.kind)) {
    return defer(call, inputs, std::move(collective), std::move(payload));
  }
  collective.is_async = call.is_async || in_batch;
  payload->at_end = begin_profiled(call.api.title, inputs);
  const std::uint64_t sequence = group_.group->sequence();
  auto operation = submit(std::move(collective));
  return started(call, sequence, std::move(payload), std::move(operation));
}

WorkPtr Issuer::issue_all(const Call& call, at::TensorList inputs,
                          std::vector<ops::Collective> collectives, PayloadPtr payload) {
  payload->at_end = begin_profiled(call.api.title, inputs);
  std::uint64_t sequence = 0;
  std::vector<std::shared_ptr<ops::Operation>> operations;
  {
    const std::lock_guard lock(several_mutex_);
    sequence = group_.group->sequence();
    for (ops::Collective& collective : collectives) {
      complete(call, payload, collective);
      collective.is_async = true;
      operations.push_back(submit(std::move(collective)));
    }
  }
  auto all = std::make_shared<OperationList>(std::move(operations));
  return started(call, sequence, std::move(payload), std::move(all));
}

c10::intrusive_ptr<ChainmailWork> Issuer::make_work(
    const Api& api, std::uint64_t sequence, PayloadPtr payload,
    std::shared_ptr<ops::Operation> operation) const {
  return c10::make_intrusive<ChainmailWork>(group_.global_rank(), api.type, sequence,
                                            std::move(payload), std::move(operation), group_.group);
}

WorkPtr Issuer::started(const Call& call, std::uint64_t sequence, PayloadPtr payload,
                        std::shared_ptr<ops::Operation> operation) {
  auto work = make_work(call.api, sequence, std::move(payload), std::move(operation));
  if (is_in_batch()) {
    batch_.works.push_back(work);
  } else if (!call.is_async) {
    work->wait();
  }
  return work;
}

void Issuer::begin_batch() {
  if (is_in_batch()) {
    // An exception has left the earlier batch open.
    log_line(LogLevel::kWarning,
             "a batch of operations of group " + group_.options.group_name +
                 " was begun and not ended; its sends and receives are given up");
    give_up_batch("another was begun instead");
  }
  std::thread::id nobody;
  TORCH_CHECK(batch_thread_.compare_exchange_strong(nobody, std::this_thread::get_id()),
              "chainmail: startCoalescing: operations of group ", group_.options.group_name,
              " are being coalesced by another thread already");
}

WorkPtr Issuer::defer(const Call& call, at::TensorList inputs, ops::Collective collective,
                      PayloadPtr payload) {
  if (!is_to_self(collective)) {
    try {
      ops::check_collective(collective, group_.rank, group_.group->topology(),
                            group_.group->options());
    } catch (const InvalidArgument& mistake) {
      TORCH_CHECK(false, "chainmail: ", mistake.what());
    }
  }
  auto operation = std::make_shared<DeferredOperation>();
  payload->at_end = begin_profiled(call.api.title, inputs);
  batch_.transfers.push_back({std::move(collective), operation});
  return started(call, group_.group->sequence(), std::move(payload), std::move(operation));
}

WorkPtr Issuer::refuse(const Api& api, std::exception_ptr mistake) {
  auto operation = std::make_shared<DeferredOperation>();
  operation->refuse(mistake, *group_.group->callbacks());
  if (!batch_.mistake) batch_.mistake = std::move(mistake);
  return make_work(api, group_.group->sequence(), group_.make_payload({}), std::move(operation));
}

// For the thread that has the batch open, or for the last owner of this object. Callbacks that run
// afterwards may begin another batch.
Issuer::Batch Issuer::take_batch() {
  Batch batch = std::exchange(batch_, {});
  batch_thread_ = std::thread::id();
  return batch;
}

void Issuer::refuse_transfers(const Batch& batch, const std::exception_ptr& error) const {
  for (const auto& transfer : batch.transfers) {
    transfer.operation->refuse(error, *group_.group->callbacks());
  }
}

void Issuer::give_up_batch(const std::string& reason) {
  refuse_transfers(
      take_batch(),
      std::make_exception_ptr(InvalidArgument(
          "the batch of this send or receive was given up before it began: " + reason)));
}

WorkPtr Issuer::end_batch() {
  TORCH_CHECK(is_in_batch(), "chainmail: endCoalescing without startCoalescing in this thread");
  Batch batch = take_batch();
  try {
    if (batch.mistake) std::rethrow_exception(batch.mistake);
    TORCH_CHECK(!batch.on_device.context || batch.works.empty(),
                "chainmail: endCoalescing: operations of group ", group_.options.group_name,
                " are on CPU and GPU tensors; coalesce them apart");
  } catch (...) {
    refuse_transfers(batch, std::current_exception());
    throw;
  }
  if (batch.on_device.context) return devices_.end_batch(std::move(batch.on_device));
  for (auto& transfer : batch.transfers) {
    try {
      transfer.operation->begin(submit(std::move(transfer.collective)));
    } catch (...) {
      // The group is dead.
      transfer.operation->refuse(std::current_exception(), *group_.group->callbacks());
    }
  }
  const PayloadPtr payload = group_.make_payload({});
  std::vector<std::shared_ptr<ops::Operation>> operations;
  for (const auto& part : batch.works) {
    operations.push_back(part->operation());
    const auto& results = part->payload()->results;
    payload->results.insert(payload->results.end(), results.begin(), results.end());
  }
  payload->copy_out = [parts = std::move(batch.works)] {
    for (const auto& part : parts) {
      if (const auto error = part->finish()) std::rethrow_exception(error);
    }
  };
  return make_work(api::kCoalesced, group_.group->sequence(), payload,
                   std::make_shared<OperationList>(std::move(operations)));
}

void Issuer::shutdown() {
  if (is_in_batch()) give_up_batch("its group was shut down");
  devices_.contexts().shutdown();
  self_transfers_->close();  // while there are threads for its callbacks
}

}  // namespace chainmail::internal
