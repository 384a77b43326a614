// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// allreduce, reduce and reduce_scatter of the backend.

#include <ATen/ATen.h>

#include <utility>

#include "plugin/c10d/backend/chainmail_backend.h"
#include "plugin/c10d/backend/checks.h"
#include "plugin/c10d/backend/elements.h"
#include "plugin/tensor/tensor_bytes.h"

namespace chainmail::internal {
namespace {

// PREMUL_SUM multiplies each contribution; in place, since the result overwrites it anyway.
void multiply_before(const c10d::ReduceOp& op, const at::Tensor& flat, const char* what) {
  if (op.op_ != c10d::ReduceOp::PREMUL_SUM) return;
  const auto* factor = dynamic_cast<const c10d::NCCLPreMulSumSupplement*>(op.supplement_.get());
  TORCH_CHECK(factor != nullptr, "chainmail: ", what, ": PREMUL_SUM comes without its factor");
  TORCH_CHECK(flat.is_floating_point(), "chainmail: ", what,
              ": PREMUL_SUM needs floating-point tensors");
  const c10::AutoGradMode no_gradients(false);
  if (factor->tensor_factor.defined()) {
    flat.mul_(factor->tensor_factor.to(flat.scalar_type()));
  } else {
    flat.mul_(factor->double_factor);
  }
}

// The contributions of a reduction whose input must stay as it is.
at::Tensor pack_to_multiply(at::TensorList tensors, const c10d::ReduceOp& op, const char* what) {
  at::Tensor flat = pack(tensors);
  if (op.op_ != c10d::ReduceOp::PREMUL_SUM) return flat;
  if (flat.is_same(tensors[0])) flat = flat.detach().clone();
  multiply_before(op, flat, what);
  return flat;
}

// What all reductions say; `flat` has the elements of one rank's result.
ops::Collective reduction(ops::OpKind kind, const at::Tensor& flat, ops::ReduceOp op,
                          at::TensorList shapes, const char* what) {
  const Elements elements = elements_to_reduce(flat.scalar_type(), op, what);
  ops::Collective collective;
  collective.kind = kind;
  collective.reduce_op = op;
  collective.dtype = elements.dtype;
  collective.count = static_cast<std::size_t>(flat.numel()) * elements.factor;
  collective.output = static_cast<std::byte*>(flat.mutable_data_ptr());
  collective.shape_hash = hash_shapes(shapes);
  return collective;
}

// Results go from `flat` to `tensors` once they are there, unless they are the same memory.
std::shared_ptr<Payload> payload_of(const at::Tensor& flat,
                                    const std::vector<at::Tensor>& tensors) {
  auto payload = std::make_shared<Payload>();
  payload->results = tensors;
  if (!flat.is_same(tensors[0])) payload->copy_out = [flat, tensors] { unpack(flat, tensors); };
  return payload;
}

}  // namespace

void ChainmailBackend::all_reduce(const at::Tensor& tensor, ops::ReduceOp op,
                                  std::optional<ops::Algorithm> algorithm,
                                  std::optional<ops::WireFormat> wire) {
  const char* what = "all_reduce";
  check_tensors(tensor, what);
  check_writable(tensor, what);
  const at::Tensor flat = pack(tensor);
  ops::Collective collective = reduction(ops::OpKind::kAllReduce, flat, op, tensor, what);
  collective.algorithm = algorithm;
  collective.wire = wire;
  launch({c10d::OpType::ALLREDUCE, c10d::kUnsetTimeout, false}, std::move(collective),
         payload_of(flat, {tensor}));
}

ChainmailBackend::WorkPtr ChainmailBackend::all_reduce_list(const std::vector<at::Tensor>& tensors,
                                                            const c10d::ReduceOp& op,
                                                            const Call& call, const char* what) {
  check_tensors(tensors, what);
  check_writable(tensors, what);
  const at::Tensor flat = pack(tensors);
  multiply_before(op, flat, what);
  return launch(call,
                reduction(ops::OpKind::kAllReduce, flat, to_reduce_op(op, what), tensors, what),
                payload_of(flat, tensors));
}

ChainmailBackend::WorkPtr ChainmailBackend::allreduce(std::vector<at::Tensor>& tensors,
                                                      const c10d::AllreduceOptions& opts) {
  return all_reduce_list(tensors, opts.reduceOp,
                         {c10d::OpType::ALLREDUCE, opts.timeout, opts.asyncOp}, "allreduce");
}

ChainmailBackend::WorkPtr ChainmailBackend::allreduce_coalesced(
    std::vector<at::Tensor>& tensors, const c10d::AllreduceCoalescedOptions& opts) {
  return all_reduce_list(tensors, opts.reduceOp,
                         {c10d::OpType::ALLREDUCE_COALESCED, opts.timeout, opts.asyncOp},
                         "allreduce_coalesced");
}

ChainmailBackend::WorkPtr ChainmailBackend::reduce(std::vector<at::Tensor>& tensors,
                                                   const c10d::ReduceOptions& opts) {
  const char* what = "reduce";
  only_tensor(tensors, what);
  check_rank(opts.rootRank, what);
  const bool is_root = opts.rootRank == rank_;
  if (is_root) check_writable(tensors, what);
  // The engine leaves the memory of all but the root as it is.
  const at::Tensor flat = pack_to_multiply(tensors, opts.reduceOp, what);
  ops::Collective collective =
      reduction(ops::OpKind::kReduce, flat, to_reduce_op(opts.reduceOp, what), tensors, what);
  collective.root = static_cast<int>(opts.rootRank);
  auto payload = payload_of(flat, tensors);
  payload->buffers = {flat};
  if (!is_root) payload->copy_out = nullptr;
  return launch({c10d::OpType::REDUCE, opts.timeout, opts.asyncOp}, std::move(collective),
                std::move(payload));
}

ChainmailBackend::WorkPtr ChainmailBackend::start_reduce_scatter(
    const at::Tensor& input, const std::vector<at::Tensor>& outputs, const c10d::ReduceOp& op,
    const Call& call, const char* what) {
  check_tensors(outputs, what);
  check_writable(outputs, what);
  TORCH_CHECK(input.scalar_type() == outputs[0].scalar_type(), "chainmail: ", what, ": input is ",
              input.scalar_type(), ", output ", outputs[0].scalar_type());
  TORCH_CHECK(input.numel() == total_elements(outputs) * size_, "chainmail: ", what,
              ": the input of ", input.numel(), " elements must be ", size_,
              " times the output of ", total_elements(outputs));
  const at::Tensor output = pack_empty(outputs);
  ops::Collective collective =
      reduction(ops::OpKind::kReduceScatter, output, to_reduce_op(op, what), outputs, what);
  collective.input = static_cast<const std::byte*>(input.const_data_ptr());
  auto payload = payload_of(output, outputs);
  payload->buffers = {input};
  return launch(call, std::move(collective), std::move(payload));
}

ChainmailBackend::WorkPtr ChainmailBackend::reduce_scatter(
    std::vector<at::Tensor>& outputs, std::vector<std::vector<at::Tensor>>& inputs,
    const c10d::ReduceScatterOptions& opts) {
  const char* what = "reduce_scatter";
  const at::Tensor& output = only_tensor(outputs, what);
  TORCH_CHECK(inputs.size() == 1 && inputs[0].size() == size(), "chainmail: ", what,
              " needs one list of ", size_, " input tensors");
  check_tensors(inputs[0], what);
  for (const at::Tensor& part : inputs[0]) {
    TORCH_CHECK(part.numel() == output.numel(), "chainmail: ", what, ": an input of ", part.sizes(),
                " does not fit the output of ", output.sizes());
  }
  return start_reduce_scatter(pack_to_multiply(inputs[0], opts.reduceOp, what), outputs,
                              opts.reduceOp,
                              {c10d::OpType::REDUCE_SCATTER, opts.timeout, opts.asyncOp}, what);
}

ChainmailBackend::WorkPtr ChainmailBackend::_reduce_scatter_base(
    at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& opts) {
  const char* what = "_reduce_scatter_base";
  check_tensors(input, what);
  return start_reduce_scatter(pack_to_multiply(input, opts.reduceOp, what), {output}, opts.reduceOp,
                              {c10d::OpType::_REDUCE_SCATTER_BASE, opts.timeout, opts.asyncOp},
                              what);
}

ChainmailBackend::WorkPtr ChainmailBackend::reduce_scatter_tensor_coalesced(
    std::vector<at::Tensor>& outputs, std::vector<at::Tensor>& inputs,
    const c10d::ReduceScatterOptions& opts) {
  const char* what = "reduce_scatter_tensor_coalesced";
  check_tensors(inputs, what);
  TORCH_CHECK(inputs.size() == outputs.size(), "chainmail: ", what, ": ", inputs.size(),
              " inputs but ", outputs.size(), " outputs");
  // All of rank 0's parts, then all of rank 1's.
  std::vector<at::Tensor> parts(inputs.size() * size());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    TORCH_CHECK(inputs[i].dim() > 0 && inputs[i].numel() == outputs[i].numel() * size_ &&
                    inputs[i].size(0) % size_ == 0,
                "chainmail: ", what, ": the input of ", inputs[i].sizes(), " is not ", size_,
                " parts like the output of ", outputs[i].sizes());
    const std::int64_t rows = inputs[i].size(0) / size_;
    for (std::size_t rank = 0; rank < size(); ++rank) {
      parts[rank * inputs.size() + i] =
          inputs[i].narrow(0, static_cast<std::int64_t>(rank) * rows, rows);
    }
  }
  return start_reduce_scatter(pack_to_multiply(parts, opts.reduceOp, what), outputs, opts.reduceOp,
                              {c10d::OpType::COALESCED, opts.timeout, opts.asyncOp}, what);
}

}  // namespace chainmail::internal
