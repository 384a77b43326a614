// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The all-gathers of the backend: of one tensor, of lists, and of parts whose shapes differ.

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <utility>

#include "plugin/c10d/backend/chainmail_backend.h"
#include "plugin/c10d/collectives/buffers.h"
#include "plugin/c10d/collectives/checks.h"
#include "plugin/c10d/collectives/elements.h"
#include "plugin/tensor/tensor_bytes.h"

namespace chainmail::internal {
namespace {

// c10d's contract for several inputs per rank: every list of outputs gets everything.
void check_lists(const std::vector<std::vector<at::Tensor>>& outputs,
                 const std::vector<at::Tensor>& inputs, int size, const char* what) {
  TORCH_CHECK(!outputs.empty() && outputs.size() == inputs.size(), "chainmail: ", what,
              " needs as many lists of outputs as inputs, got ", outputs.size(), " and ",
              inputs.size());
  for (const auto& list : outputs) {
    TORCH_CHECK(list.size() == inputs.size() * static_cast<std::size_t>(size), "chainmail: ", what,
                " needs ", inputs.size() * static_cast<std::size_t>(size),
                " output tensors per list, got ", list.size());
    check_writable(list, what);
  }
}

// `parts` are all of rank 0's results, then all of rank 1's.
WorkPtr start_all_gather(Issuer& issuer, const Call& call, const std::vector<at::Tensor>& inputs,
                         const std::vector<at::Tensor>& parts, PayloadPtr payload) {
  const char* what = call.api.name;
  check_tensors(inputs, what);
  check_writable(parts, what);
  check_same_type(inputs[0], parts[0], what);
  TORCH_CHECK(total_elements(parts) == total_elements(inputs) * issuer.group().size,
              "chainmail: ", what, ": the output of ", total_elements(parts), " elements must be ",
              issuer.group().size, " times the input of ", total_elements(inputs));
  const at::Tensor input = pack(inputs);
  ops::Collective collective =
      data_collective(ops::OpKind::kAllGather, input.scalar_type(), input.numel());
  collective.shape_hash = hash_counts(inputs);
  payload->shown = inputs;
  set_input(input, collective, *payload);
  set_output_parts(parts, issuer.group().ranks(), collective, *payload);
  return issuer.issue(call, inputs, std::move(collective), std::move(payload));
}

WorkPtr start_uneven_all_gather(Issuer& issuer, const Call& call, const at::Tensor& input,
                                const std::vector<at::Tensor>& parts) {
  const char* what = call.api.name;
  check_same_type(input, parts[0], what);
  const at::Tensor& mine = parts[static_cast<std::size_t>(issuer.group().rank)];
  TORCH_CHECK(mine.numel() == input.numel(), "chainmail: ", what, ": the input of ", input.sizes(),
              " does not fit the output for rank ", issuer.group().rank, " of ", mine.sizes());
  const at::Tensor flat = pack(input);
  const std::size_t factor = elements_to_move(input.scalar_type()).factor;
  ops::Collective collective = data_collective(ops::OpKind::kAllGather, input.scalar_type(), 0);
  for (const at::Tensor& part : parts) {
    collective.receive_counts.push_back(static_cast<std::size_t>(part.numel()) * factor);
  }
  collective.shape_hash = hash_counts(parts);
  const PayloadPtr payload = issuer.group().make_payload(parts);
  set_input(flat, collective, *payload);
  set_output_parts(parts, issuer.group().ranks(), collective, *payload);
  return issuer.issue(call, input, std::move(collective), payload);
}

}  // namespace

WorkPtr ChainmailBackend::allgather(TensorLists& outputs, Tensors& inputs,
                                    const c10d::AllgatherOptions& opts) {
  const Call call{api::kAllGather, opts.timeout, opts.asyncOp};
  check_tensors(inputs, call.api.name);
  check_lists(outputs, inputs, size_, call.api.name);
  if (inputs.size() == 1 && !have_one_count(outputs[0])) {
    return start_uneven_all_gather(issuer_, call, inputs[0], outputs[0]);
  }
  if (inputs.size() > 1) {
    for (const auto& list : outputs) check_like(list, inputs[0], call.api.name);
    check_like(inputs, inputs[0], call.api.name);
  }
  auto payload = group_.make_payload(outputs[0]);
  if (outputs.size() > 1) {
    payload->lists = outputs;
    payload->copy_out = [outputs] {
      const c10::AutoGradMode no_gradients(false);
      for (std::size_t i = 0; i < outputs[0].size(); ++i) {
        for (std::size_t copy = 1; copy < outputs.size(); ++copy) {
          outputs[copy][i].copy_(outputs[0][i]);
        }
      }
    };
  }
  return start_all_gather(issuer_, call, inputs, outputs[0], std::move(payload));
}

WorkPtr ChainmailBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                          const c10d::AllgatherOptions& opts) {
  return start_all_gather(issuer_, {api::kAllGatherBase, opts.timeout, opts.asyncOp}, {input},
                          {output}, group_.make_payload({output}));
}

WorkPtr ChainmailBackend::allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                                              const c10d::AllgatherOptions& opts) {
  const Call call{api::kAllGatherLists, opts.timeout, opts.asyncOp};
  const char* what = call.api.name;
  check_tensors(inputs, what);
  TORCH_CHECK(outputs.size() == group_.ranks(), "chainmail: ", what, " needs ", size_,
              " lists of output tensors, got ", outputs.size());
  Tensors parts;
  for (const Tensors& list : outputs) {
    TORCH_CHECK(list.size() == inputs.size(), "chainmail: ", what, ": a list of ", list.size(),
                " outputs for ", inputs.size(), " inputs");
    check_tensors(list, what);
    for (std::size_t i = 0; i < list.size(); ++i) check_like(list[i], inputs[i], what);
    parts.insert(parts.end(), list.begin(), list.end());
  }
  auto payload = group_.make_payload(parts);
  payload->lists = outputs;
  return start_all_gather(issuer_, call, inputs, parts, std::move(payload));
}

WorkPtr ChainmailBackend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                          const c10d::AllgatherOptions& opts) {
  const Call call{api::kAllGatherCoalesced, opts.timeout, opts.asyncOp};
  const Tensors parts = slices_by_rank(outputs, inputs, size_, call.api.name, "output", "input");
  return start_all_gather(issuer_, call, inputs, parts, group_.make_payload(outputs));
}

}  // namespace chainmail::internal
