// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// broadcast, allgather, gather, scatter and alltoall of the backend: operations that only move.

#include <ATen/ATen.h>

#include <utility>

#include "plugin/c10d/backend/chainmail_backend.h"
#include "plugin/c10d/backend/checks.h"
#include "plugin/c10d/backend/elements.h"
#include "plugin/tensor/tensor_bytes.h"

namespace chainmail::internal {
namespace {

ops::Collective movement(ops::OpKind kind, c10::ScalarType type, std::int64_t count) {
  const Elements elements = elements_to_move(type);
  ops::Collective collective;
  collective.kind = kind;
  collective.dtype = elements.dtype;
  collective.count = static_cast<std::size_t>(count) * elements.factor;
  return collective;
}

std::byte* output_of(const at::Tensor& flat) {
  return static_cast<std::byte*>(flat.mutable_data_ptr());
}

const std::byte* input_of(const at::Tensor& flat) {
  return static_cast<const std::byte*>(flat.const_data_ptr());
}

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

}  // namespace

ChainmailBackend::WorkPtr ChainmailBackend::broadcast(std::vector<at::Tensor>& tensors,
                                                      const c10d::BroadcastOptions& opts) {
  const char* what = "broadcast";
  check_tensors(tensors, what);
  check_rank(opts.rootRank, what);
  TORCH_CHECK(opts.rootTensor == 0, "chainmail: broadcast knows one root tensor, 0, not ",
              opts.rootTensor);
  const bool is_root = opts.rootRank == rank_;
  if (!is_root) check_writable(tensors, what);
  const at::Tensor flat = is_root ? pack(tensors) : pack_empty(tensors);
  ops::Collective collective = movement(ops::OpKind::kBroadcast, flat.scalar_type(), flat.numel());
  collective.root = static_cast<int>(opts.rootRank);
  collective.output = output_of(flat);
  collective.shape_hash = hash_shapes(tensors);
  auto payload = std::make_shared<Payload>();
  payload->results = tensors;
  payload->buffers = {flat};
  if (!is_root && !flat.is_same(tensors[0])) {
    payload->copy_out = [flat, tensors] { unpack(flat, tensors); };
  }
  return launch({c10d::OpType::BROADCAST, opts.timeout, opts.asyncOp}, std::move(collective),
                std::move(payload));
}

ChainmailBackend::WorkPtr ChainmailBackend::start_all_gather(const std::vector<at::Tensor>& inputs,
                                                             const std::vector<at::Tensor>& parts,
                                                             std::vector<at::Tensor> results,
                                                             const Call& call, const char* what) {
  check_tensors(inputs, what);
  check_tensors(parts, what);
  check_writable(parts, what);
  TORCH_CHECK(parts[0].scalar_type() == inputs[0].scalar_type(), "chainmail: ", what, ": input is ",
              inputs[0].scalar_type(), ", output ", parts[0].scalar_type());
  TORCH_CHECK(total_elements(parts) == total_elements(inputs) * size_, "chainmail: ", what,
              ": the output of ", total_elements(parts), " elements must be ", size_,
              " times the input of ", total_elements(inputs));
  const at::Tensor input = pack(inputs);
  const at::Tensor output = pack_empty(parts);
  ops::Collective collective =
      movement(ops::OpKind::kAllGather, input.scalar_type(), input.numel());
  collective.input = input_of(input);
  collective.output = output_of(output);
  collective.shape_hash = hash_shapes(inputs);
  auto payload = std::make_shared<Payload>();
  payload->results = std::move(results);
  payload->buffers = {input, output};
  if (!output.is_same(parts[0])) payload->copy_out = [output, parts] { unpack(output, parts); };
  return launch(call, std::move(collective), std::move(payload));
}

ChainmailBackend::WorkPtr ChainmailBackend::allgather(std::vector<std::vector<at::Tensor>>& outputs,
                                                      std::vector<at::Tensor>& inputs,
                                                      const c10d::AllgatherOptions& opts) {
  const char* what = "allgather";
  const at::Tensor& input = only_tensor(inputs, what);
  TORCH_CHECK(outputs.size() == 1 && outputs[0].size() == size(), "chainmail: ", what,
              " needs one list of ", size_, " output tensors");
  check_like(outputs[0], input, what);
  return start_all_gather(inputs, outputs[0], outputs[0],
                          {c10d::OpType::ALLGATHER, opts.timeout, opts.asyncOp}, what);
}

ChainmailBackend::WorkPtr ChainmailBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                            const c10d::AllgatherOptions& opts) {
  return start_all_gather({input}, {output}, {output},
                          {c10d::OpType::_ALLGATHER_BASE, opts.timeout, opts.asyncOp},
                          "_allgather_base");
}

ChainmailBackend::WorkPtr ChainmailBackend::allgather_coalesced(
    std::vector<std::vector<at::Tensor>>& outputs, std::vector<at::Tensor>& inputs,
    const c10d::AllgatherOptions& opts) {
  const char* what = "allgather_coalesced";
  TORCH_CHECK(outputs.size() == size(), "chainmail: ", what, " needs ", size_,
              " lists of output tensors, got ", outputs.size());
  std::vector<at::Tensor> parts;
  for (const auto& list : outputs) {
    TORCH_CHECK(list.size() == inputs.size(), "chainmail: ", what, ": a list of ", list.size(),
                " outputs for ", inputs.size(), " inputs");
    for (std::size_t i = 0; i < list.size(); ++i) check_like(list[i], inputs[i], what);
    parts.insert(parts.end(), list.begin(), list.end());
  }
  return start_all_gather(inputs, parts, parts,
                          {c10d::OpType::ALLGATHER_COALESCED, opts.timeout, opts.asyncOp}, what);
}

ChainmailBackend::WorkPtr ChainmailBackend::allgather_into_tensor_coalesced(
    std::vector<at::Tensor>& outputs, std::vector<at::Tensor>& inputs,
    const c10d::AllgatherOptions& opts) {
  const char* what = "allgather_into_tensor_coalesced";
  TORCH_CHECK(inputs.size() == outputs.size(), "chainmail: ", what, ": ", inputs.size(),
              " inputs but ", outputs.size(), " outputs");
  std::vector<at::Tensor> parts(inputs.size() * size());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    TORCH_CHECK(outputs[i].dim() > 0 && outputs[i].size(0) % size_ == 0 &&
                    outputs[i].numel() == inputs[i].numel() * size_,
                "chainmail: ", what, ": the output of ", outputs[i].sizes(), " is not ", size_,
                " parts like the input of ", inputs[i].sizes());
    const std::int64_t rows = outputs[i].size(0) / size_;
    for (std::size_t rank = 0; rank < size(); ++rank) {
      parts[rank * inputs.size() + i] =
          outputs[i].narrow(0, static_cast<std::int64_t>(rank) * rows, rows);
    }
  }
  return start_all_gather(inputs, parts, outputs,
                          {c10d::OpType::COALESCED, opts.timeout, opts.asyncOp}, what);
}

ChainmailBackend::WorkPtr ChainmailBackend::gather(std::vector<std::vector<at::Tensor>>& outputs,
                                                   std::vector<at::Tensor>& inputs,
                                                   const c10d::GatherOptions& opts) {
  const char* what = "gather";
  const at::Tensor& input = only_tensor(inputs, what);
  check_rank(opts.rootRank, what);
  const at::Tensor flat = pack(inputs);
  ops::Collective collective = movement(ops::OpKind::kGather, input.scalar_type(), input.numel());
  collective.root = static_cast<int>(opts.rootRank);
  collective.input = input_of(flat);
  collective.shape_hash = hash_shapes(inputs);
  auto payload = std::make_shared<Payload>();
  payload->buffers = {flat, input};
  if (opts.rootRank == rank_) {
    TORCH_CHECK(outputs.size() == 1 && outputs[0].size() == size(), "chainmail: ", what,
                " needs one list of ", size_, " output tensors on the root");
    check_tensors(outputs[0], what);
    check_like(outputs[0], input, what);
    check_writable(outputs[0], what);
    const at::Tensor all = pack_empty(outputs[0]);
    collective.output = output_of(all);
    payload->results = outputs[0];
    payload->buffers.push_back(all);
    if (!all.is_same(outputs[0][0])) {
      payload->copy_out = [all, list = outputs[0]] { unpack(all, list); };
    }
  } else {
    TORCH_CHECK(outputs.empty(), "chainmail: gather takes output tensors on the root only");
  }
  return launch({c10d::OpType::GATHER, opts.timeout, opts.asyncOp}, std::move(collective),
                std::move(payload));
}

ChainmailBackend::WorkPtr ChainmailBackend::scatter(std::vector<at::Tensor>& outputs,
                                                    std::vector<std::vector<at::Tensor>>& inputs,
                                                    const c10d::ScatterOptions& opts) {
  const char* what = "scatter";
  const at::Tensor& output = only_tensor(outputs, what);
  check_rank(opts.rootRank, what);
  check_writable(outputs, what);
  const at::Tensor flat = pack_empty(outputs);
  ops::Collective collective =
      movement(ops::OpKind::kScatter, output.scalar_type(), output.numel());
  collective.root = static_cast<int>(opts.rootRank);
  collective.output = output_of(flat);
  collective.shape_hash = hash_shapes(outputs);
  auto payload = std::make_shared<Payload>();
  payload->results = outputs;
  if (!flat.is_same(output)) payload->copy_out = [flat, outputs] { unpack(flat, outputs); };
  if (opts.rootRank == rank_) {
    TORCH_CHECK(inputs.size() == 1 && inputs[0].size() == size(), "chainmail: ", what,
                " needs one list of ", size_, " input tensors on the root");
    check_tensors(inputs[0], what);
    check_like(inputs[0], output, what);
    payload->buffers = {pack(inputs[0])};
    collective.input = input_of(payload->buffers[0]);
  } else {
    TORCH_CHECK(inputs.empty(), "chainmail: scatter takes input tensors on the root only");
  }
  return launch({c10d::OpType::SCATTER, opts.timeout, opts.asyncOp}, std::move(collective),
                std::move(payload));
}

ChainmailBackend::WorkPtr ChainmailBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                                          std::vector<std::int64_t>& output_splits,
                                                          std::vector<std::int64_t>& input_splits,
                                                          const c10d::AllToAllOptions& opts) {
  const char* what = "alltoall_base";
  check_tensors({output, input}, what);
  check_writable(output, what);
  const at::Tensor from = pack(input);
  const at::Tensor to = pack_empty(output);
  const std::size_t factor = elements_to_move(input.scalar_type()).factor;
  ops::Collective collective = movement(ops::OpKind::kAllToAll, input.scalar_type(), 0);
  collective.send_counts = split_counts(input, input_splits, size_, factor, what);
  collective.receive_counts = split_counts(output, output_splits, size_, factor, what);
  collective.input = input_of(from);
  collective.output = output_of(to);
  auto payload = std::make_shared<Payload>();
  payload->results = {output};
  payload->buffers = {from};
  if (!to.is_same(output)) payload->copy_out = [to, target = output] { unpack(to, target); };
  return launch({c10d::OpType::ALLTOALL_BASE, opts.timeout, opts.asyncOp}, std::move(collective),
                std::move(payload));
}

ChainmailBackend::WorkPtr ChainmailBackend::alltoall(std::vector<at::Tensor>& outputs,
                                                     std::vector<at::Tensor>& inputs,
                                                     const c10d::AllToAllOptions& opts) {
  const char* what = "alltoall";
  check_tensors(inputs, what);
  check_tensors(outputs, what);
  check_writable(outputs, what);
  TORCH_CHECK(inputs.size() == size() && outputs.size() == size(), "chainmail: ", what, " needs ",
              size_, " inputs and outputs, got ", inputs.size(), " and ", outputs.size());
  TORCH_CHECK(outputs[0].scalar_type() == inputs[0].scalar_type(), "chainmail: ", what,
              ": inputs are ", inputs[0].scalar_type(), ", outputs ", outputs[0].scalar_type());
  const at::Tensor from = pack(inputs);
  const at::Tensor to = pack_empty(outputs);
  const std::size_t factor = elements_to_move(inputs[0].scalar_type()).factor;
  ops::Collective collective = movement(ops::OpKind::kAllToAll, inputs[0].scalar_type(), 0);
  collective.send_counts = list_counts(inputs, factor);
  collective.receive_counts = list_counts(outputs, factor);
  collective.input = input_of(from);
  collective.output = output_of(to);
  auto payload = std::make_shared<Payload>();
  payload->results = outputs;
  payload->buffers = {from};
  if (!to.is_same(outputs[0])) payload->copy_out = [to, outputs] { unpack(to, outputs); };
  return launch({c10d::OpType::ALLTOALL, opts.timeout, opts.asyncOp}, std::move(collective),
                std::move(payload));
}

}  // namespace chainmail::internal
