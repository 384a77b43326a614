// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/c10d/backend/places.h"

#include <algorithm>
#include <utility>

#include "plugin/c10d/backend/elements.h"
#include "plugin/tensor/tensor_bytes.h"

namespace chainmail::internal {
namespace {

bool are_flat(const std::vector<at::Tensor>& tensors) {
  return std::all_of(tensors.begin(), tensors.end(), is_flat);
}

}  // namespace

void read_parts(const std::vector<at::Tensor>& parts, ops::Collective& collective,
                Payload& payload) {
  if (!are_flat(parts)) {
    payload.buffers.push_back(pack(parts));
    collective.input = input_of(payload.buffers.back());
    return;
  }
  for (const at::Tensor& part : parts) collective.input_parts.push_back(input_of(part));
  payload.buffers.insert(payload.buffers.end(), parts.begin(), parts.end());
}

void write_parts(const std::vector<at::Tensor>& parts, std::size_t ranks,
                 ops::Collective& collective, Payload& payload) {
  if (parts.size() == ranks && are_flat(parts)) {
    for (const at::Tensor& part : parts) collective.output_parts.push_back(output_of(part));
    payload.buffers.insert(payload.buffers.end(), parts.begin(), parts.end());
    return;
  }
  const at::Tensor flat = pack_empty(parts);
  collective.output = output_of(flat);
  payload.buffers.push_back(flat);
  if (flat.is_same(parts[0])) return;
  payload.copy_out = [flat, parts, more = std::move(payload.copy_out)] {
    unpack(flat, parts);
    if (more) more();
  };
}

}  // namespace chainmail::internal
