// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/c10d/collectives/buffers.h"

#include <algorithm>
#include <utility>

#include "plugin/c10d/collectives/checks.h"
#include "plugin/tensor/tensor_bytes.h"

namespace chainmail::internal {
namespace {

std::byte* output_of(const at::Tensor& flat) {
  return static_cast<std::byte*>(flat.mutable_data_ptr());
}

const std::byte* input_of(const at::Tensor& flat) {
  return static_cast<const std::byte*>(flat.const_data_ptr());
}

bool are_flat(const std::vector<at::Tensor>& tensors) {
  return std::all_of(tensors.begin(), tensors.end(), is_flat);
}

}  // namespace

void set_input(const at::Tensor& flat, ops::Collective& collective, Payload& payload) {
  collective.input = input_of(flat);
  payload.keep_alive(flat);
}

void set_output(const at::Tensor& flat, ops::Collective& collective, Payload& payload) {
  collective.output = output_of(flat);
  payload.keep_alive(flat);
}

void set_output(const at::Tensor& flat, const std::vector<at::Tensor>& tensors,
                ops::Collective& collective, Payload& payload) {
  set_output(flat, collective, payload);
  if (!flat.is_same(tensors[0])) payload.copy_out = [flat, tensors] { unpack(flat, tensors); };
}

void set_input_parts(const std::vector<at::Tensor>& parts, ops::Collective& collective,
                     Payload& payload) {
  if (!are_flat(parts)) {
    set_input(pack(parts), collective, payload);
    return;
  }
  for (const at::Tensor& part : parts) collective.input_parts.push_back(input_of(part));
  payload.keep.insert(payload.keep.end(), parts.begin(), parts.end());
}

void set_output_parts(const std::vector<at::Tensor>& parts, std::size_t ranks,
                      ops::Collective& collective, Payload& payload) {
  if (parts.size() == ranks && are_flat(parts)) {
    for (const at::Tensor& part : parts) collective.output_parts.push_back(output_of(part));
    payload.keep.insert(payload.keep.end(), parts.begin(), parts.end());
    return;
  }
  const at::Tensor flat = pack_empty(parts);
  set_output(flat, collective, payload);
  if (flat.is_same(parts[0])) return;
  payload.copy_out = [flat, parts, more = std::move(payload.copy_out)] {
    unpack(flat, parts);
    if (more) more();
  };
}

std::vector<at::Tensor> slices_by_rank(const std::vector<at::Tensor>& wholes,
                                       const std::vector<at::Tensor>& parts, int ranks,
                                       const char* what, const char* whole, const char* part) {
  check_tensors(wholes, what);
  check_tensors(parts, what);
  TORCH_CHECK(wholes.size() == parts.size(), "chainmail: ", what, ": ", wholes.size(), " ", whole,
              "s but ", parts.size(), " ", part, "s");
  std::vector<at::Tensor> slices(wholes.size() * static_cast<std::size_t>(ranks));
  for (std::size_t i = 0; i < wholes.size(); ++i) {
    TORCH_CHECK(wholes[i].dim() > 0 && wholes[i].size(0) % ranks == 0 &&
                    wholes[i].numel() == parts[i].numel() * ranks,
                "chainmail: ", what, ": the ", whole, " of ", wholes[i].sizes(), " is not ", ranks,
                " parts like the ", part, " of ", parts[i].sizes());
    const std::int64_t rows = wholes[i].size(0) / ranks;
    for (int rank = 0; rank < ranks; ++rank) {
      slices[static_cast<std::size_t>(rank) * wholes.size() + i] =
          wholes[i].narrow(0, rank * rows, rows);
    }
  }
  return slices;
}

}  // namespace chainmail::internal
