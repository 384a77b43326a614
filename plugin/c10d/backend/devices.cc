// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The way of operations on GPU tensors: queued on a stream, not waited for. What the CPU's way
// packs and unpacks is packed and unpacked here too, on the stream before and behind the
// collective.

#include <c10/core/StreamGuard.h>

#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/error.h"
#include "plugin/c10d/backend/chainmail_backend.h"
#include "plugin/c10d/device/device_work.h"
#include "plugin/c10d/work/profiling.h"
#include "plugin/cuda/cuda_support.h"
#include "plugin/job/boards.h"

namespace chainmail::internal {
namespace {

bool is_transfer(const ops::Collective& collective) {
  return collective.kind == ops::OpKind::kSend || collective.kind == ops::OpKind::kRecv;
}

// Of sends and receives that the caller has coalesced, of one even.
bool is_batch(const Api& api) { return api.type == api::kCoalesced.type; }

void append(std::vector<at::Tensor>& to, const std::vector<at::Tensor>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

// What c10d's callers get of several operations.
std::shared_ptr<Payload> joined(std::span<const std::shared_ptr<Payload>> payloads) {
  if (payloads.size() == 1) return payloads.front();
  auto all = std::make_shared<Payload>();
  for (const auto& payload : payloads) append(all->results, payload->results);
  return all;
}

// All that operations read and write. Nothing but results is left in the payloads, which live as
// long as the Work: copy_out has what is here, too, and is called no more.
std::vector<at::Tensor> take_memory(std::span<const std::shared_ptr<Payload>> payloads,
                                    std::vector<at::Tensor> inputs) {
  for (const auto& payload : payloads) {
    append(inputs, payload->results);
    for (const auto& list : payload->lists) append(inputs, list);
    append(inputs, std::exchange(payload->keep, {}));
  }
  return inputs;
}

}  // namespace

std::shared_ptr<ops::DeviceGroup> ChainmailBackend::make_device_group(c10::Device device,
                                                                      int number) {
  TORCH_CHECK(device.is_cuda(), "chainmail: a tensor is on ", device,
              "; tensors on CPUs and CUDA devices can be used");
  require_cuda("a tensor on " + device.str());
  ops::DeviceGroupOptions options;
  options.device = device.index();
  options.global_ranks.assign(global_ranks_.begin(), global_ranks_.end());
  options.crosses_on_host = options_.algorithm == kNonCudaAware;
  auto board = std::make_shared<PrefixRendezvous>("device/" + std::to_string(number) + "/", board_);
  return ops::create_device_group(ops::open_device_library(), group_, std::move(board), options);
}

ChainmailBackend::WorkPtr ChainmailBackend::launch_on_device(const Call& call,
                                                             at::TensorList inputs,
                                                             ops::Collective collective,
                                                             const PayloadPtr& payload) {
  TORCH_CHECK(collective.kind != ops::OpKind::kRecv || collective.root != ops::kAnyRank,
              "chainmail: ", call.api.name,
              ": NCCL cannot receive from just any rank; name the sender, or use CPU tensors");
  check_open(call.api.name);
  complete(call, payload, collective);
  const ProfiledCall profiled(call.api.title, inputs);
  try {
    const auto lane = lanes_.at(inputs[0].device());
    if (!is_coalescing()) return queue(call, *lane, {&collective, 1}, {&payload, 1}, inputs.vec());
    CoalescedOnDevice& coalesced = coalesced_on_device_;
    TORCH_CHECK(!coalesced.lane || coalesced.lane == lane, "chainmail: ", call.api.name,
                ": tensors on ", inputs[0].device(), " cannot be coalesced with those on ",
                coalesced.lane->device());
    coalesced.lane = lane;
    if (!is_transfer(collective)) {
      coalesced.last = queue({call.api, call.timeout, true}, *lane, {&collective, 1}, {&payload, 1},
                             inputs.vec());
      return coalesced.last;
    }
    coalesced.transfers.push_back(std::move(collective));
    coalesced.payloads.push_back(payload);
    append(coalesced.inputs, inputs.vec());
    return nullptr;  // there is nothing to wait for before endCoalescing
  } catch (const InvalidArgument& mistake) {
    TORCH_CHECK(false, "chainmail: ", call.api.name, ": ", mistake.what());
  }
}

ChainmailBackend::WorkPtr ChainmailBackend::queue(const Call& call, const DeviceLane& lane,
                                                  std::span<const ops::Collective> collectives,
                                                  std::span<const PayloadPtr> payloads,
                                                  Tensors inputs) {
  const bool is_alone = is_transfer(collectives.front()) && !is_batch(call.api);
  QueuedOnDevice queued{
      is_alone ? lane.begin_alone(collectives.front()) : lane.begin(call.is_async),
      lane.current_stream(), nullptr, std::nullopt};
  Tensors memory = take_memory(payloads, std::move(inputs));
  try {
    const c10::StreamGuard on(queued.stream);
    queued.operation = is_alone ? lane.issue_alone(collectives.front(), queued.stream)
                                : lane.issue(collectives, queued.stream);
    for (const PayloadPtr& payload : payloads) {
      if (const auto copy_out = std::exchange(payload->copy_out, nullptr)) copy_out();
    }
    if (call.is_async) {
      queued.end.emplace(lane.device().type());
      queued.end->record(queued.stream);
    }
  } catch (...) {
    keep_for(memory, queued.stream);  // some of it may have been queued
    throw;
  }
  return c10::make_intrusive<DeviceWork>(global_rank(rank_), call.api.type, device_sequence_++,
                                         joined(payloads), std::move(memory), std::move(queued),
                                         group_);
}

ChainmailBackend::WorkPtr ChainmailBackend::end_coalescing_on_device(CoalescedOnDevice coalesced) {
  // All are on the lane's stream: whoever waits for the last has waited for all.
  if (coalesced.transfers.empty()) return coalesced.last;
  try {
    return queue({.api = api::kCoalesced}, *coalesced.lane, coalesced.transfers, coalesced.payloads,
                 std::move(coalesced.inputs));
  } catch (const InvalidArgument& mistake) {
    TORCH_CHECK(false, "chainmail: endCoalescing: ", mistake.what());
  }
}

}  // namespace chainmail::internal
