// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/c10d/backend/places.h"

#include <algorithm>
#include <utility>

#include "plugin/c10d/backend/elements.h"
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

void read_from(const at::Tensor& flat, ops::Collective& collective, Payload& payload) {
  collective.input = input_of(flat);
  payload.keep_alive(flat);
}

void write_to(const at::Tensor& flat, ops::Collective& collective, Payload& payload) {
  collective.output = output_of(flat);
  payload.keep_alive(flat);
}

void read_parts(const std::vector<at::Tensor>& parts, ops::Collective& collective,
                Payload& payload) {
  if (!are_flat(parts)) {
    read_from(pack(parts), collective, payload);
    return;
  }
  for (const at::Tensor& part : parts) collective.input_parts.push_back(input_of(part));
  payload.keep.insert(payload.keep.end(), parts.begin(), parts.end());
}

void write_parts(const std::vector<at::Tensor>& parts, std::size_t ranks,
                 ops::Collective& collective, Payload& payload) {
  if (parts.size() == ranks && are_flat(parts)) {
    for (const at::Tensor& part : parts) collective.output_parts.push_back(output_of(part));
    payload.keep.insert(payload.keep.end(), parts.begin(), parts.end());
    return;
  }
  const at::Tensor flat = pack_empty(parts);
  write_to(flat, collective, payload);
  if (flat.is_same(parts[0])) return;
  payload.copy_out = [flat, parts, more = std::move(payload.copy_out)] {
    unpack(flat, parts);
    if (more) more();
  };
}

}  // namespace chainmail::internal
