// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/c10d/backend/device_issuer.h"

#include <c10/core/StreamGuard.h>

#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/error.h"
#include "ops/engine/plan/plan.h"
#include "plugin/c10d/backend/options.h"
#include "plugin/c10d/device/device_work.h"
#include "plugin/c10d/work/profiling.h"
#include "plugin/cuda/cuda_support.h"

namespace chainmail::internal {
namespace {

// Coalesced sends and receives, even a single one.
bool is_batch(const Api& api) { return api.type == api::kCoalesced.type; }

void append(std::vector<at::Tensor>& to, const std::vector<at::Tensor>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

// What the Work of several operations returns.
PayloadPtr joined(std::span<const PayloadPtr> payloads) {
  if (payloads.size() == 1) return payloads.front();
  auto all = std::make_shared<Payload>();
  for (const auto& payload : payloads) append(all->results, payload->results);
  return all;
}

// All memory that operations read and write. The payloads, which live as long as the Work, keep
// only their results.
std::vector<at::Tensor> take_memory(std::span<const PayloadPtr> payloads,
                                    std::vector<at::Tensor> inputs) {
  for (const auto& payload : payloads) {
    append(inputs, payload->results);
    for (const auto& list : payload->lists) append(inputs, list);
    append(inputs, std::exchange(payload->keep, {}));
  }
  return inputs;
}

}  // namespace

DeviceIssuer::DeviceIssuer(GroupContext& group, DeviceContexts::Maker make_device_group)
    : group_(group),
      contexts_(make_device_group ? std::move(make_device_group)
                                  : [this](c10::Device device, int number) {
                                      return this->make_device_group(device, number);
                                    }) {}

std::shared_ptr<ops::DeviceGroup> DeviceIssuer::make_device_group(c10::Device device,
                                                                  int number) const {
  TORCH_CHECK(device.is_cuda(), "chainmail: a tensor is on ", device,
              "; tensors on CPUs and CUDA devices can be used");
  require_cuda("a tensor on " + device.str());
  ops::DeviceGroupOptions options;
  options.device = device.index();
  options.global_ranks.assign(group_.global_ranks.begin(), group_.global_ranks.end());
  options.crosses_on_host = group_.options.algorithm == kNonCudaAware;
  auto rendezvous = std::make_shared<ops::PrefixRendezvous>(
      "device/" + std::to_string(number) + "/", group_.rendezvous);
  return ops::create_device_group(ops::open_device_library(), group_.group, std::move(rendezvous),
                                  options);
}

WorkPtr DeviceIssuer::issue(const Call& call, at::TensorList inputs, ops::Collective collective,
                            const PayloadPtr& payload, DeviceBatch* batch) {
  TORCH_CHECK(collective.kind != ops::OpKind::kRecv || collective.root != ops::kAnyRank,
              "chainmail: ", call.api.name,
              ": NCCL cannot receive from just any rank; name the sender, or use CPU tensors");
  group_.check_open(call.api.name);
  const auto profiled = begin_profiled(call.api.title, inputs);
  try {
    const auto context = contexts_.at(inputs[0].device());
    if (batch == nullptr) {
      return queue(call, *context, {&collective, 1}, {&payload, 1}, inputs.vec());
    }
    TORCH_CHECK(!batch->context || batch->context == context, "chainmail: ", call.api.name,
                ": tensors on ", inputs[0].device(), " cannot be coalesced with those on ",
                batch->context->device());
    batch->context = context;
    if (!ops::is_point_to_point(collective.kind)) {
      batch->last = queue({call.api, call.timeout, true}, *context, {&collective, 1}, {&payload, 1},
                          inputs.vec());
      return batch->last;
    }
    batch->transfers.push_back(std::move(collective));
    batch->payloads.push_back(payload);
    append(batch->inputs, inputs.vec());
    return nullptr;  // there is nothing to wait for before the end of the batch
  } catch (const InvalidArgument& mistake) {
    C10_THROW_ERROR(Error, c10::str("chainmail: ", call.api.name, ": ", mistake.what()));
  }
}

WorkPtr DeviceIssuer::queue(const Call& call, const DeviceContext& context,
                            std::span<const ops::Collective> collectives,
                            std::span<const PayloadPtr> payloads, std::vector<at::Tensor> inputs) {
  const bool is_alone = ops::is_point_to_point(collectives.front().kind) && !is_batch(call.api);
  QueuedOnDevice queued{
      is_alone ? context.begin_transfer(collectives.front()) : context.begin(call.is_async),
      context.current_stream(), nullptr, std::nullopt};
  std::vector<at::Tensor> memory = take_memory(payloads, std::move(inputs));
  try {
    const c10::StreamGuard on(queued.stream);
    queued.operation = is_alone ? context.issue_transfer(collectives.front(), queued.stream)
                                : context.issue(collectives, queued.stream);
    for (const PayloadPtr& payload : payloads) {
      if (const auto copy_out = std::exchange(payload->copy_out, nullptr)) copy_out();
    }
    if (call.is_async) {
      queued.end.emplace(context.device().type());
      queued.end->record(queued.stream);
    }
  } catch (...) {
    keep_for(memory, queued.stream);  // some of it may have been queued
    throw;
  }
  return c10::make_intrusive<DeviceWork>(group_.global_rank(), call.api.type, sequence_++,
                                         joined(payloads), std::move(memory), std::move(queued),
                                         group_.group);
}

WorkPtr DeviceIssuer::end_batch(DeviceBatch batch) {
  // All are on the context's stream: whoever waits for the last has waited for all.
  if (batch.transfers.empty()) return batch.last;
  try {
    return queue({.api = api::kCoalesced}, *batch.context, batch.transfers, batch.payloads,
                 std::move(batch.inputs));
  } catch (const InvalidArgument& mistake) {
    TORCH_CHECK(false, "chainmail: endCoalescing: ", mistake.what());
  }
}

}  // namespace chainmail::internal
