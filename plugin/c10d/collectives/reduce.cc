// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// allreduce, reduce and reduce_scatter of the backend.

#include <ATen/ATen.h>

#include <utility>

#include "ops/kernels/cpu/kernels.h"
#include "plugin/c10d/backend/chainmail_backend.h"
#include "plugin/c10d/collectives/buffers.h"
#include "plugin/c10d/collectives/checks.h"
#include "plugin/c10d/collectives/elements.h"
#include "plugin/tensor/tensor_bytes.h"

namespace chainmail::internal {
namespace {

// PREMUL_SUM multiplies each contribution; in place, since the result overwrites it anyway.
void multiply_before(const c10d::ReduceOp& op, const at::Tensor& flat, const char* what) {
  if (op.op_ != c10d::ReduceOp::PREMUL_SUM) return;
  const auto* factor = dynamic_cast<const c10d::NCCLPreMulSumSupplement*>(op.supplement_.get());
  TORCH_CHECK(factor != nullptr, "chainmail: ", what, ": PREMUL_SUM comes without its factor");
  TORCH_CHECK(flat.is_floating_point() || flat.is_complex(), "chainmail: ", what,
              ": PREMUL_SUM needs floating-point or complex tensors");
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

// `other` into `sum`, as the ranks' contributions are put together.
void combine(const at::Tensor& sum, const at::Tensor& other, ops::ReduceOp op) {
  if (c10::isBarebonesUnsignedType(sum.scalar_type()) && sum.is_cpu()) {
    // torch has next to no arithmetic for these.
    const at::Tensor flat = pack(other);
    const Elements elements = elements_to_reduce(sum.scalar_type(), op, api::kAllReduce.name);
    ops::accumulate(static_cast<std::byte*>(sum.mutable_data_ptr()),
                    static_cast<const std::byte*>(flat.const_data_ptr()),
                    static_cast<std::size_t>(sum.numel()), elements.dtype, op);
    return;
  }
  const bool is_bool = sum.scalar_type() == at::kBool;
  switch (op) {
    case ops::ReduceOp::kSum:
    case ops::ReduceOp::kAvg:
      is_bool ? sum.logical_or_(other) : sum.add_(other);
      return;
    case ops::ReduceOp::kProduct:
      is_bool ? sum.logical_and_(other) : sum.mul_(other);
      return;
    case ops::ReduceOp::kMin:
      sum.copy_(at::minimum(sum, other));
      return;
    case ops::ReduceOp::kMax:
      sum.copy_(at::maximum(sum, other));
      return;
    case ops::ReduceOp::kBitAnd:
      sum.bitwise_and_(other);
      return;
    case ops::ReduceOp::kBitOr:
      sum.bitwise_or_(other);
      return;
    case ops::ReduceOp::kBitXor:
      sum.bitwise_xor_(other);
      return;
  }
}

// Several tensors of one rank are as many contributions: first this rank's own result.
at::Tensor combine_all(at::TensorList tensors, ops::ReduceOp op) {
  const c10::AutoGradMode no_gradients(false);
  at::Tensor sum = at::empty(tensors[0].sizes(), tensors[0].options().requires_grad(false));
  sum.copy_(tensors[0]);
  for (const at::Tensor& other : tensors.slice(1)) combine(sum, other, op);
  return sum;
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
  collective.shape_hash = hash_counts(shapes);
  return collective;
}

// `input` is flat: all of rank 0's parts, then all of rank 1's; `inputs` is what the caller gave.
WorkPtr start_reduce_scatter(Issuer& issuer, const Call& call, const at::Tensor& input,
                             const std::vector<at::Tensor>& inputs,
                             const std::vector<at::Tensor>& outputs, const c10d::ReduceOp& op) {
  const char* what = call.api.name;
  check_writable(outputs, what);
  check_same_type(input, outputs[0], what);
  TORCH_CHECK(input.numel() == total_elements(outputs) * issuer.group().size, "chainmail: ", what,
              ": the input of ", input.numel(), " elements must be ", issuer.group().size,
              " times the output of ", total_elements(outputs));
  const at::Tensor output = pack_empty(outputs);
  ops::Collective collective =
      reduction(ops::OpKind::kReduceScatter, output, to_reduce_op(op, what), outputs, what);
  auto payload = issuer.group().make_payload(outputs);
  set_input(input, collective, *payload);
  set_output(output, outputs, collective, *payload);
  return issuer.issue(call, inputs, std::move(collective), std::move(payload));
}

// Parts of different lengths: a reduction to each rank.
WorkPtr start_uneven_reduce_scatter(Issuer& issuer, const Call& call,
                                    const std::vector<at::Tensor>& inputs, const at::Tensor& output,
                                    const c10d::ReduceOp& op) {
  const char* what = call.api.name;
  check_writable(output, what);
  check_same_type(inputs[0], output, what);
  TORCH_CHECK(output.is_cpu(), "chainmail: ", what, " of parts of different sizes, such as ",
              describe_shapes(inputs), ", needs CPU tensors, got ", output.device());
  const at::Tensor& mine = inputs[static_cast<std::size_t>(issuer.group().rank)];
  TORCH_CHECK(mine.numel() == output.numel(), "chainmail: ", what, ": the part for rank ",
              issuer.group().rank, " of ", mine.sizes(), " does not fit the output of ",
              output.sizes());
  const at::Tensor sum = pack_empty(output);
  auto payload = issuer.group().make_payload({output});
  payload->shown = inputs;
  if (!sum.is_same(output)) payload->copy_out = [sum, output] { unpack(sum, output); };
  std::vector<ops::Collective> steps;
  for (int rank = 0; rank < issuer.group().size; ++rank) {
    at::Tensor part = pack_to_multiply(inputs[static_cast<std::size_t>(rank)], op, what);
    if (rank ==
        issuer.group().rank) {  // the sum takes its place, and the caller's input is to stay
      const c10::AutoGradMode no_gradients(false);
      sum.view({sum.numel()}).copy_(part.view({part.numel()}));
      part = sum;
    }
    ops::Collective step =
        reduction(ops::OpKind::kReduce, part, to_reduce_op(op, what), inputs, what);
    step.root = rank;
    set_output(part, step, *payload);
    steps.push_back(std::move(step));
  }
  return issuer.issue_all(call, inputs, std::move(steps), std::move(payload));
}

}  // namespace

void ChainmailBackend::all_reduce(const at::Tensor& tensor, ops::ReduceOp op,
                                  std::optional<ops::Algorithm> algorithm,
                                  std::optional<ops::WireFormat> wire,
                                  const std::optional<Feedback>& feedback) {
  const char* what = "all_reduce";
  check_writable(tensor, what);
  const at::Tensor flat = pack(tensor);
  ops::Collective collective = reduction(ops::OpKind::kAllReduce, flat, op, tensor, what);
  collective.algorithm = algorithm;
  collective.wire = wire;
  const PayloadPtr payload = group_.make_payload({tensor});
  set_output(flat, {tensor}, collective, *payload);
  if (feedback) {
    payload->keep_alive(feedback->residual);
    auto* const first = static_cast<std::byte*>(feedback->residual.mutable_data_ptr());
    collective.feedback = ops::WireFeedback{
        .contributions = first,
        .results = first + static_cast<std::size_t>(tensor.numel()) * sizeof(float),
        .exchanges = feedback->exchanges};
  }
  issuer_.issue({.api = api::kAllReduce, .is_async = false}, tensor, std::move(collective),
                payload);
}

WorkPtr ChainmailBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) {
  if (!tensors.empty() && tensors[0].defined() && tensors[0].is_sparse()) {
    return allreduce_sparse(tensors, opts);
  }
  const Api& api = api::kAllReduce;
  check_writable(tensors, api.name);
  check_like(tensors, tensors[0], api.name);
  const ops::ReduceOp op = to_reduce_op(opts.reduceOp, api.name);
  TORCH_CHECK(tensors.size() == 1 || op != ops::ReduceOp::kAvg, "chainmail: ", api.name,
              " averages over ranks, one tensor of each, and got ", tensors.size(),
              "; ask for SUM and divide by all contributions");
  const at::Tensor flat = tensors.size() == 1 ? pack(tensors) : combine_all(tensors, op);
  ops::Collective collective = reduction(ops::OpKind::kAllReduce, flat, op, tensors[0], api.name);
  multiply_before(opts.reduceOp, flat, api.name);
  auto payload = group_.make_payload(tensors);
  set_output(flat, tensors, collective, *payload);
  if (tensors.size() > 1) {
    payload->copy_out = [flat, tensors] {
      for (const at::Tensor& tensor : tensors) unpack(flat, tensor);
    };
  }
  return issuer_.issue({api, opts.timeout, opts.asyncOp}, tensors, std::move(collective),
                       std::move(payload));
}

WorkPtr ChainmailBackend::allreduce_coalesced(Tensors& tensors,
                                              const c10d::AllreduceCoalescedOptions& opts) {
  const Api& api = api::kAllReduceCoalesced;
  check_writable(tensors, api.name);
  const ops::ReduceOp op = to_reduce_op(opts.reduceOp, api.name);
  const at::Tensor flat = pack(tensors);
  ops::Collective collective = reduction(ops::OpKind::kAllReduce, flat, op, tensors, api.name);
  multiply_before(opts.reduceOp, flat, api.name);
  const PayloadPtr payload = group_.make_payload(tensors);
  set_output(flat, tensors, collective, *payload);
  return issuer_.issue({api, opts.timeout, opts.asyncOp}, tensors, std::move(collective), payload);
}

WorkPtr ChainmailBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& opts) {
  const Api& api = api::kReduce;
  only_tensor(tensors, api.name);
  group_.check_rank(opts.rootRank, api.name);
  TORCH_CHECK(opts.rootTensor == 0, "chainmail: reduce takes one tensor, there is no root tensor ",
              opts.rootTensor);
  const bool is_root = opts.rootRank == rank_;
  if (is_root) check_writable(tensors, api.name);
  // The engine leaves the memory of all but the root as it is.
  const at::Tensor flat = pack_to_multiply(tensors, opts.reduceOp, api.name);
  ops::Collective collective = reduction(ops::OpKind::kReduce, flat,
                                         to_reduce_op(opts.reduceOp, api.name), tensors, api.name);
  collective.root = static_cast<int>(opts.rootRank);
  auto payload = group_.make_payload(tensors);
  set_output(flat, tensors, collective, *payload);
  if (!is_root) payload->copy_out = nullptr;
  return issuer_.issue({api, opts.timeout, opts.asyncOp}, tensors, std::move(collective),
                       std::move(payload));
}

WorkPtr ChainmailBackend::reduce_scatter(Tensors& outputs, TensorLists& inputs,
                                         const c10d::ReduceScatterOptions& opts) {
  const Api& api = api::kReduceScatter;
  const at::Tensor& output = only_tensor(outputs, api.name);
  check_list_per_rank(inputs, group_.ranks(), api.name, "input tensors");
  const Call call{api, opts.timeout, opts.asyncOp};
  if (!have_one_count(inputs[0])) {
    return start_uneven_reduce_scatter(issuer_, call, inputs[0], output, opts.reduceOp);
  }
  return start_reduce_scatter(issuer_, call, pack_to_multiply(inputs[0], opts.reduceOp, api.name),
                              inputs[0], outputs, opts.reduceOp);
}

WorkPtr ChainmailBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                               const c10d::ReduceScatterOptions& opts) {
  const Api& api = api::kReduceScatterBase;
  check_tensors(input, api.name);
  return start_reduce_scatter(issuer_, {api, opts.timeout, opts.asyncOp},
                              pack_to_multiply(input, opts.reduceOp, api.name), {input}, {output},
                              opts.reduceOp);
}

WorkPtr ChainmailBackend::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                          const c10d::ReduceScatterOptions& opts) {
  const Api& api = api::kReduceScatterCoalesced;
  const Tensors parts = slices_by_rank(inputs, outputs, size_, api.name, "input", "output");
  return start_reduce_scatter(issuer_, {api, opts.timeout, opts.asyncOp},
                              pack_to_multiply(parts, opts.reduceOp, api.name), inputs, outputs,
                              opts.reduceOp);
}

}  // namespace chainmail::internal
