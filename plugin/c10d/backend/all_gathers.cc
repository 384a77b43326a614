// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The all-gathers of the backend: of one tensor, of lists, and of parts whose shapes differ.

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <utility>

#include "plugin/c10d/backend/chainmail_backend.h"
#include "plugin/c10d/backend/checks.h"
#include "plugin/c10d/backend/elements.h"
#include "plugin/c10d/backend/places.h"
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
    check_tensors(list, what);
    check_writable(list, what);
  }
}

}  // namespace

// `parts` are all of rank 0's results, then all of rank 1's.
ChainmailBackend::WorkPtr ChainmailBackend::start_all_gather(const Call& call,
                                                             const Tensors& inputs,
                                                             const Tensors& parts,
                                                             PayloadPtr payload) {
  const char* what = call.api.name;
  check_tensors(inputs, what);
  check_tensors(parts, what);
  check_writable(parts, what);
  check_same_type(inputs[0], parts[0], what);
  TORCH_CHECK(total_elements(parts) == total_elements(inputs) * size_, "chainmail: ", what,
              ": the output of ", total_elements(parts), " elements must be ", size_,
              " times the input of ", total_elements(inputs));
  const at::Tensor input = pack(inputs);
  ops::Collective collective =
      movement(ops::OpKind::kAllGather, input.scalar_type(), input.numel());
  collective.shape_hash = hash_counts(inputs);
  payload->shown = inputs;
  read_from(input, collective, *payload);
  write_parts(parts, size(), collective, *payload);
  return launch(call, inputs, std::move(collective), std::move(payload));
}

ChainmailBackend::WorkPtr ChainmailBackend::start_uneven_all_gather(const Call& call,
                                                                    const at::Tensor& input,
                                                                    const Tensors& parts) {
  const char* what = call.api.name;
  check_same_type(input, parts[0], what);
  const at::Tensor& mine = parts[static_cast<std::size_t>(rank_)];
  TORCH_CHECK(mine.numel() == input.numel(), "chainmail: ", what, ": the input of ", input.sizes(),
              " does not fit the output for rank ", rank_, " of ", mine.sizes());
  const at::Tensor flat = pack(input);
  const std::size_t factor = elements_to_move(input.scalar_type()).factor;
  ops::Collective collective = movement(ops::OpKind::kAllGather, input.scalar_type(), 0);
  for (const at::Tensor& part : parts) {
    collective.receive_counts.push_back(static_cast<std::size_t>(part.numel()) * factor);
  }
  collective.shape_hash = hash_counts(parts);
  const PayloadPtr payload = make_payload(parts);
  read_from(flat, collective, *payload);
  write_parts(parts, size(), collective, *payload);
  return launch(call, input, std::move(collective), payload);
}

ChainmailBackend::WorkPtr ChainmailBackend::allgather(TensorLists& outputs, Tensors& inputs,
                                                      const c10d::AllgatherOptions& opts) {
  const Call call{api::kAllGather, opts.timeout, opts.asyncOp};
  check_tensors(inputs, call.api.name);
  check_lists(outputs, inputs, size_, call.api.name);
  if (inputs.size() == 1 && !have_one_count(outputs[0])) {
    return start_uneven_all_gather(call, inputs[0], outputs[0]);
  }
  if (inputs.size() > 1) {
    for (const auto& list : outputs) check_like(list, inputs[0], call.api.name);
    check_like(inputs, inputs[0], call.api.name);
  }
  auto payload = make_payload(outputs[0]);
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
  return start_all_gather(call, inputs, outputs[0], std::move(payload));
}

ChainmailBackend::WorkPtr ChainmailBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                            const c10d::AllgatherOptions& opts) {
  auto payload = make_payload({output});
  return start_all_gather({api::kAllGatherBase, opts.timeout, opts.asyncOp}, {input}, {output},
                          std::move(payload));
}

ChainmailBackend::WorkPtr ChainmailBackend::allgather_coalesced(
    TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) {
  const Call call{api::kAllGatherLists, opts.timeout, opts.asyncOp};
  const char* what = call.api.name;
  check_tensors(inputs, what);
  TORCH_CHECK(outputs.size() == size(), "chainmail: ", what, " needs ", size_,
              " lists of output tensors, got ", outputs.size());
  Tensors parts;
  for (const Tensors& list : outputs) {
    TORCH_CHECK(list.size() == inputs.size(), "chainmail: ", what, ": a list of ", list.size(),
                " outputs for ", inputs.size(), " inputs");
    check_tensors(list, what);
    for (std::size_t i = 0; i < list.size(); ++i) check_like(list[i], inputs[i], what);
    parts.insert(parts.end(), list.begin(), list.end());
  }
  auto payload = make_payload(parts);
  payload->lists = outputs;
  return start_all_gather(call, inputs, parts, std::move(payload));
}

ChainmailBackend::WorkPtr ChainmailBackend::allgather_into_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) {
  const Call call{api::kAllGatherCoalesced, opts.timeout, opts.asyncOp};
  const char* what = call.api.name;
  check_tensors(inputs, what);
  check_tensors(outputs, what);
  TORCH_CHECK(inputs.size() == outputs.size(), "chainmail: ", what, ": ", inputs.size(),
              " inputs but ", outputs.size(), " outputs");
  Tensors parts(inputs.size() * size());
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
  auto payload = make_payload(outputs);
  return start_all_gather(call, inputs, parts, std::move(payload));
}

}  // namespace chainmail::internal
