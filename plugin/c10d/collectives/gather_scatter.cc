// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// broadcast, gather, scatter and alltoall of the backend; allgather is in all_gather.cc.

#include <ATen/ATen.h>

#include <utility>

#include "plugin/c10d/backend/chainmail_backend.h"
#include "plugin/c10d/collectives/buffers.h"
#include "plugin/c10d/collectives/checks.h"
#include "plugin/c10d/collectives/elements.h"
#include "plugin/tensor/tensor_bytes.h"

namespace chainmail::internal {
namespace {

// Elements per rank: equal parts of the first dimension, or as the splits say.
std::vector<std::size_t> split_counts(const at::Tensor& tensor,
                                      const std::vector<std::int64_t>& splits, int size,
                                      std::size_t factor, const char* what) {
  const std::int64_t rows = tensor.dim() > 0 ? tensor.size(0) : 1;
  const std::int64_t row = rows > 0 ? tensor.numel() / rows : 0;
  std::vector<std::size_t> counts;
  if (splits.empty()) {
    TORCH_CHECK(rows % size == 0, "chainmail: ", what, ": the first dimension of ", tensor.sizes(),
                " is not a multiple of ", size);
    counts.assign(static_cast<std::size_t>(size),
                  static_cast<std::size_t>(rows / size * row) * factor);
    return counts;
  }
  TORCH_CHECK(splits.size() == static_cast<std::size_t>(size), "chainmail: ", what, " needs ", size,
              " split sizes, got ", splits.size());
  std::int64_t sum = 0;
  for (const std::int64_t split : splits) {
    TORCH_CHECK(split >= 0, "chainmail: ", what, ": negative split size ", split);
    sum += split;
    counts.push_back(static_cast<std::size_t>(split * row) * factor);
  }
  TORCH_CHECK(sum == rows, "chainmail: ", what, ": split sizes add up to ", sum,
              ", the first dimension of ", tensor.sizes(), " is ", rows);
  return counts;
}

std::vector<std::size_t> list_counts(at::TensorList tensors, std::size_t factor) {
  std::vector<std::size_t> counts;
  for (const at::Tensor& tensor : tensors) {
    counts.push_back(static_cast<std::size_t>(tensor.numel()) * factor);
  }
  return counts;
}

// Between ranks the engine compares what is sent with what is expected.
void check_alone(const ops::Collective& collective, std::size_t factor, const char* what) {
  if (collective.send_counts.size() > 1) return;
  const std::size_t sent = collective.send_counts.front() / factor;
  const std::size_t expected = collective.receive_counts.front() / factor;
  TORCH_CHECK(sent == expected, "chainmail: ", what, ": the group's only rank sends ", sent,
              " elements to itself and expects ", expected);
}

}  // namespace

WorkPtr ChainmailBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) {
  const Api& api = api::kBroadcast;
  check_tensors(tensors, api.name);
  check_like(tensors, tensors[0], api.name);
  group_.check_rank(opts.rootRank, api.name);
  TORCH_CHECK(opts.rootTensor >= 0 && static_cast<std::size_t>(opts.rootTensor) < tensors.size(),
              "chainmail: broadcast: there is no root tensor ", opts.rootTensor, " among ",
              tensors.size());
  const at::Tensor& source = tensors[static_cast<std::size_t>(opts.rootTensor)];
  const bool is_root = opts.rootRank == rank_;
  if (!is_root || tensors.size() > 1) check_writable(tensors, api.name);
  const at::Tensor flat = is_root ? pack(source) : pack_empty(source);
  ops::Collective collective =
      data_collective(ops::OpKind::kBroadcast, flat.scalar_type(), flat.numel());
  collective.root = static_cast<int>(opts.rootRank);
  collective.shape_hash = hash_counts(source);
  auto payload = group_.make_payload(tensors);
  set_output(flat, collective, *payload);
  if (tensors.size() > 1 || (!is_root && !flat.is_same(source))) {
    // The same value for all tensors of the list.
    payload->copy_out = [flat, source, is_root, tensors] {
      for (const at::Tensor& tensor : tensors) {
        if (!is_root || !tensor.is_same(source)) unpack(flat, tensor);
      }
    };
  }
  return issuer_.issue({api, opts.timeout, opts.asyncOp}, tensors, std::move(collective),
                       std::move(payload));
}

WorkPtr ChainmailBackend::gather(TensorLists& outputs, Tensors& inputs,
                                 const c10d::GatherOptions& opts) {
  const Api& api = api::kGather;
  const at::Tensor& input = only_tensor(inputs, api.name);
  group_.check_rank(opts.rootRank, api.name);
  const at::Tensor flat = pack(inputs);
  ops::Collective collective =
      data_collective(ops::OpKind::kGather, input.scalar_type(), input.numel());
  collective.root = static_cast<int>(opts.rootRank);
  collective.shape_hash = hash_counts(inputs);
  auto payload = group_.make_payload({});
  set_input(flat, collective, *payload);
  if (opts.rootRank == rank_) {
    check_list_per_rank(outputs, group_.ranks(), api.name, "output tensors on the root");
    check_like(outputs[0], input, api.name);
    check_writable(outputs[0], api.name);
    payload->results = outputs[0];
    set_output_parts(outputs[0], group_.ranks(), collective, *payload);
  } else {
    TORCH_CHECK(outputs.empty(), "chainmail: gather takes output tensors on the root only");
    payload->shown = inputs;
  }
  return issuer_.issue({api, opts.timeout, opts.asyncOp}, inputs, std::move(collective),
                       std::move(payload));
}

WorkPtr ChainmailBackend::scatter(Tensors& outputs, TensorLists& inputs,
                                  const c10d::ScatterOptions& opts) {
  const Api& api = api::kScatter;
  const at::Tensor& output = only_tensor(outputs, api.name);
  group_.check_rank(opts.rootRank, api.name);
  check_writable(outputs, api.name);
  const at::Tensor flat = pack_empty(outputs);
  ops::Collective collective =
      data_collective(ops::OpKind::kScatter, output.scalar_type(), output.numel());
  collective.root = static_cast<int>(opts.rootRank);
  collective.shape_hash = hash_counts(outputs);
  auto payload = group_.make_payload(outputs);
  set_output(flat, outputs, collective, *payload);
  if (opts.rootRank == rank_) {
    check_list_per_rank(inputs, group_.ranks(), api.name, "input tensors on the root");
    check_like(inputs[0], output, api.name);
    set_input_parts(inputs[0], collective, *payload);
  } else {
    TORCH_CHECK(inputs.empty(), "chainmail: scatter takes input tensors on the root only");
  }
  return issuer_.issue({api, opts.timeout, opts.asyncOp}, inputs.empty() ? outputs : inputs[0],
                       std::move(collective), std::move(payload));
}

WorkPtr ChainmailBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                        std::vector<std::int64_t>& output_splits,
                                        std::vector<std::int64_t>& input_splits,
                                        const c10d::AllToAllOptions& opts) {
  const Api& api = api::kAllToAllBase;
  check_tensors({output, input}, api.name);
  check_writable(output, api.name);
  const at::Tensor from = pack(input);
  const at::Tensor to = pack_empty(output);
  const std::size_t factor = elements_to_move(input.scalar_type()).factor;
  ops::Collective collective = data_collective(ops::OpKind::kAllToAll, input.scalar_type(), 0);
  collective.send_counts = split_counts(input, input_splits, size_, factor, api.name);
  collective.receive_counts = split_counts(output, output_splits, size_, factor, api.name);
  check_alone(collective, factor, api.name);
  auto payload = group_.make_payload({output});
  set_input(from, collective, *payload);
  set_output(to, {output}, collective, *payload);
  return issuer_.issue({api, opts.timeout, opts.asyncOp}, input, std::move(collective),
                       std::move(payload));
}

WorkPtr ChainmailBackend::alltoall(Tensors& outputs, Tensors& inputs,
                                   const c10d::AllToAllOptions& opts) {
  const Api& api = api::kAllToAll;
  check_tensors(inputs, api.name);
  check_writable(outputs, api.name);
  TORCH_CHECK(inputs.size() == group_.ranks() && outputs.size() == group_.ranks(),
              "chainmail: ", api.name, " needs ", size_, " inputs and outputs, got ", inputs.size(),
              " and ", outputs.size());
  check_same_type(inputs[0], outputs[0], api.name);
  const std::size_t factor = elements_to_move(inputs[0].scalar_type()).factor;
  ops::Collective collective = data_collective(ops::OpKind::kAllToAll, inputs[0].scalar_type(), 0);
  collective.send_counts = list_counts(inputs, factor);
  collective.receive_counts = list_counts(outputs, factor);
  check_alone(collective, factor, api.name);
  auto payload = group_.make_payload(outputs);
  set_input_parts(inputs, collective, *payload);
  set_output_parts(outputs, group_.ranks(), collective, *payload);
  return issuer_.issue({api, opts.timeout, opts.asyncOp}, inputs, std::move(collective),
                       std::move(payload));
}

}  // namespace chainmail::internal
