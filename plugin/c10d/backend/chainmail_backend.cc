// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Life, errors and the way of every operation into the engine; the operations themselves are in
// reductions.cc, sparse.cc, movements.cc, transfers.cc and barriers.cc, what GPUs need of their own
// in devices.cc.

#include "plugin/c10d/backend/chainmail_backend.h"

#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>

#include <utility>

#include "base/deadline.h"
#include "base/error.h"
#include "base/log.h"
#include "ops/engine/plan/plan.h"
#include "plugin/c10d/work/operation_list.h"
#include "plugin/c10d/work/profiling.h"
#include "plugin/tensor/tensor_bytes.h"

namespace chainmail::internal {

ChainmailBackend::ChainmailBackend(std::shared_ptr<ops::Group> group,
                                   std::shared_ptr<ops::Rendezvous> board, BackendOptions options,
                                   std::vector<std::uint64_t> global_ranks,
                                   DeviceLanes::Maker make_device_group)
    : Backend(group->rank(), group->size()),
      group_(std::move(group)),
      board_(std::move(board)),
      options_(std::move(options)),
      global_ranks_(std::move(global_ranks)),
      timeout_(group_->options().timeout),
      self_transfers_(std::make_shared<SelfTransfers>(group_, global_rank(rank_))),
      lanes_(make_device_group ? std::move(make_device_group)
                               : [this](c10::Device device, int number) {
                                   return this->make_device_group(device, number);
                                 }) {
  init();
  setGroupUid(options_.group_name);
}

ChainmailBackend::~ChainmailBackend() {
  give_up_batch("its group was let go of");
  self_transfers_->close();
  if (!is_registered_) return;
  try {
    c10d::unregister_process_group(options_.group_name);
  } catch (const std::exception& failure) {
    log_line(LogLevel::kWarning, "forgetting group " + options_.group_name + ": " + failure.what());
  }
}

c10::intrusive_ptr<c10d::Backend::Options> ChainmailBackend::getBackendOptions() {
  auto options = c10::make_intrusive<ChainmailOptions>(options_);
  options->timeout = timeout_.load();
  options->group_desc = getGroupDesc();
  options->global_ranks_in_group = global_ranks_;
  return options;
}

std::chrono::milliseconds ChainmailBackend::limit_of(std::chrono::milliseconds asked) const {
  // c10d's "unset" is -1 ms; 0 would mean "at once", which nobody wants. What would overflow a
  // clock comes out as what a Deadline takes for never.
  return Deadline::bounded(asked.count() > 0 ? asked : timeout_.load());
}

void ChainmailBackend::complete(const Call& call, const PayloadPtr& payload,
                                ops::Collective& collective) const {
  collective.timeout = limit_of(call.timeout);
  collective.keep = payload;
  collective.describe_shapes = [&kept = *payload] {
    return describe_shapes(kept.shown.empty() ? kept.results : kept.shown);
  };
}

ChainmailBackend::PayloadPtr ChainmailBackend::make_payload(Tensors results) const {
  auto payload = std::make_shared<Payload>(group_->callbacks());
  payload->results = std::move(results);
  return payload;
}

std::shared_ptr<ops::Operation> ChainmailBackend::submit(ops::Collective&& collective) {
  try {
    // The engine has no way from a rank to itself.
    if (is_to_self(collective)) return self_transfers_->submit(collective);
    return group_->submit(std::move(collective));
  } catch (const InvalidArgument& mistake) {
    TORCH_CHECK(false, "chainmail: ", mistake.what());
  }
}

ChainmailBackend::WorkPtr ChainmailBackend::launch(const Call& call, at::TensorList inputs,
                                                   ops::Collective collective, PayloadPtr payload) {
  if (!inputs.empty() && !inputs[0].device().is_cpu()) {
    TORCH_CHECK(!is_to_self(collective), "chainmail: ", call.api.name,
                " between a rank and itself needs CPU tensors; on ", inputs[0].device(),
                " copy instead");
    return launch_on_device(call, inputs, std::move(collective), payload);
  }
  complete(call, payload, collective);
  for (const at::Tensor& input : inputs) payload->keep_alive(input);
  if (is_coalescing() && ops::is_point_to_point(collective.kind)) {
    return defer(call, inputs, std::move(collective), std::move(payload));
  }
  collective.is_async = call.is_async || is_coalescing();
  ProfiledCall profiled(call.api.title, inputs);
  const std::uint64_t sequence = group_->sequence();
  auto operation = submit(std::move(collective));
  auto work = started(call, sequence, std::move(payload), operation);
  profiled.end_with(*operation);
  return work;
}

ChainmailBackend::WorkPtr ChainmailBackend::launch_all(const Call& call, at::TensorList inputs,
                                                       std::vector<ops::Collective> collectives,
                                                       PayloadPtr payload) {
  ProfiledCall profiled(call.api.title, inputs);
  std::uint64_t sequence = 0;
  std::vector<std::shared_ptr<ops::Operation>> operations;
  {
    const std::lock_guard lock(several_mutex_);
    sequence = group_->sequence();
    for (ops::Collective& collective : collectives) {
      complete(call, payload, collective);
      collective.is_async = true;
      operations.push_back(submit(std::move(collective)));
    }
  }
  auto all = std::make_shared<OperationList>(std::move(operations));
  auto work = started(call, sequence, std::move(payload), all);
  profiled.end_with(*all);
  return work;
}

ChainmailBackend::WorkPtr ChainmailBackend::started(const Call& call, std::uint64_t sequence,
                                                    PayloadPtr payload,
                                                    std::shared_ptr<ops::Operation> operation) {
  auto work = c10::make_intrusive<ChainmailWork>(global_rank(rank_), call.api.type, sequence,
                                                 std::move(payload), std::move(operation), group_);
  if (is_coalescing()) {
    coalesced_.works.push_back(work);
  } else if (!call.is_async) {
    work->wait();
  }
  return work;
}

bool ChainmailBackend::is_coalescing() const {
  return coalescing_thread_.load(std::memory_order_relaxed) == std::this_thread::get_id();
}

void ChainmailBackend::startCoalescing() {
  if (is_coalescing()) {
    // An exception has left the earlier batch open.
    log_line(LogLevel::kWarning,
             "a batch of operations of group " + options_.group_name +
                 " was begun and not ended; its sends and receives are given up");
    give_up_batch("another was begun instead");
  }
  std::thread::id nobody;
  TORCH_CHECK(coalescing_thread_.compare_exchange_strong(nobody, std::this_thread::get_id()),
              "chainmail: startCoalescing: operations of group ", options_.group_name,
              " are being coalesced by another thread already");
}

ChainmailBackend::WorkPtr ChainmailBackend::defer(const Call& call, at::TensorList inputs,
                                                  ops::Collective collective, PayloadPtr payload) {
  if (!is_to_self(collective)) check(collective);
  auto operation = std::make_shared<DeferredOperation>();
  ProfiledCall(call.api.title, inputs).end_with(*operation);
  coalesced_.transfers.push_back({std::move(collective), operation});
  return started(call, group_->sequence(), std::move(payload), std::move(operation));
}

ChainmailBackend::WorkPtr ChainmailBackend::refuse_in_batch(const Api& api,
                                                            std::exception_ptr mistake) {
  auto operation = std::make_shared<DeferredOperation>();
  operation->refuse(mistake, *group_->callbacks());
  if (!coalesced_.mistake) coalesced_.mistake = std::move(mistake);
  return c10::make_intrusive<ChainmailWork>(global_rank(rank_), api.type, group_->sequence(),
                                            make_payload({}), std::move(operation), group_);
}

// `coalesced` must be nobody's batch any more: the callbacks may send.
void ChainmailBackend::refuse(const Coalesced& coalesced, const std::exception_ptr& error) const {
  for (const auto& transfer : coalesced.transfers) {
    transfer.operation->refuse(error, *group_->callbacks());
  }
}

// For the thread that has it, or for the last that has this object.
void ChainmailBackend::give_up_batch(const std::string& reason) {
  const Coalesced coalesced = std::exchange(coalesced_, {});
  coalesced_on_device_ = {};
  coalescing_thread_ = std::thread::id();
  refuse(coalesced,
         std::make_exception_ptr(InvalidArgument(
             "the batch of this send or receive was given up before it began: " + reason)));
}

ChainmailBackend::WorkPtr ChainmailBackend::endCoalescing() {
  TORCH_CHECK(is_coalescing(), "chainmail: endCoalescing without startCoalescing in this thread");
  Coalesced coalesced = std::exchange(coalesced_, {});
  CoalescedOnDevice on_device = std::exchange(coalesced_on_device_, {});
  coalescing_thread_ = std::thread::id();
  try {
    if (coalesced.mistake) std::rethrow_exception(coalesced.mistake);
    TORCH_CHECK(!on_device.lane || coalesced.works.empty(),
                "chainmail: endCoalescing: operations of group ", options_.group_name,
                " are on CPU and GPU tensors; coalesce them apart");
  } catch (...) {
    refuse(coalesced, std::current_exception());
    throw;
  }
  if (on_device.lane) return end_coalescing_on_device(std::move(on_device));
  for (auto& transfer : coalesced.transfers) {
    try {
      transfer.operation->begin(submit(std::move(transfer.collective)));
    } catch (...) {
      // The group is dead.
      transfer.operation->refuse(std::current_exception(), *group_->callbacks());
    }
  }
  const PayloadPtr payload = make_payload({});
  std::vector<std::shared_ptr<ops::Operation>> operations;
  for (const auto& part : coalesced.works) {
    operations.push_back(part->operation());
    const Tensors& results = part->payload()->results;
    payload->results.insert(payload->results.end(), results.begin(), results.end());
  }
  payload->copy_out = [parts = std::move(coalesced.works)] {
    for (const auto& part : parts) {
      if (const auto error = part->exception()) std::rethrow_exception(error);
    }
  };
  return c10::make_intrusive<ChainmailWork>(
      global_rank(rank_), api::kCoalesced.type, group_->sequence(), payload,
      std::make_shared<OperationList>(std::move(operations)), group_);
}

void ChainmailBackend::check(const ops::Collective& collective) const {
  try {
    ops::check_collective(collective, rank_, group_->topology(), group_->options());
  } catch (const InvalidArgument& mistake) {
    TORCH_CHECK(false, "chainmail: ", mistake.what());
  }
}

void ChainmailBackend::check_rank(std::int64_t rank, const char* what) const {
  TORCH_CHECK(rank >= 0 && rank < size_, "chainmail: ", what, ": rank ", rank,
              " is not in a group of ", size_);
}

void ChainmailBackend::check_open(const std::string& operation) const {
  TORCH_CHECK(!is_shut_down_, "chainmail: ", operation,
              ": the group was shut down; create a new one");
}

void ChainmailBackend::abort() {
  group_->abort(std::make_exception_ptr(
      PeerError("group " + options_.group_name + " was aborted by rank " +
                    std::to_string(global_rank(rank_)) + " on " + group_->options().host,
                global_rank(rank_))));
  self_transfers_->look();
}

void ChainmailBackend::shutdown() {
  if (is_shut_down_.exchange(true)) return;  // whoever was first leaves, once all has ended
  if (is_coalescing()) give_up_batch("its group was shut down");
  lanes_.shutdown();
  self_transfers_->close();  // while there are threads for its callbacks
  group_->shutdown();
  board_->leave();  // a handle may be kept until the process ends, and rank 0's store is gone then
}

c10d::ErrorType ChainmailBackend::getError() {
  const std::exception_ptr error = group_->error();
  if (!error) return c10d::ErrorType::SUCCESS;
  try {
    std::rethrow_exception(error);
  } catch (const TimeoutError&) {
    return c10d::ErrorType::TIMEOUT;
  } catch (const PeerError&) {
    return c10d::ErrorType::REMOTE_ERROR;
  } catch (...) {
    return c10d::ErrorType::COMM_ERROR;
  }
}

void ChainmailBackend::setTimeout(std::chrono::milliseconds timeout) {
  TORCH_CHECK(timeout.count() > 0, "chainmail: a timeout must be positive, got ", timeout.count(),
              " ms");
  timeout_ = timeout;
  group_->set_timeout(timeout);
}

}  // namespace chainmail::internal
