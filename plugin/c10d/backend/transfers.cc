// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// send and recv of the backend.

#include <utility>

#include "plugin/c10d/backend/chainmail_backend.h"
#include "plugin/c10d/backend/checks.h"
#include "plugin/c10d/backend/elements.h"
#include "plugin/c10d/backend/places.h"
#include "plugin/tensor/tensor_bytes.h"

namespace chainmail::internal {
namespace {

ops::Collective transfer(ops::OpKind kind, const at::Tensor& flat, int peer, int tag) {
  TORCH_CHECK(tag >= 0, "chainmail: ", to_string(kind), ": a tag must not be negative, got ", tag);
  ops::Collective collective = movement(kind, flat.scalar_type(), flat.numel());
  collective.root = peer;
  collective.tag = static_cast<std::uint32_t>(tag);
  return collective;
}

}  // namespace

ChainmailBackend::WorkPtr ChainmailBackend::send(Tensors& tensors, int destination, int tag) {
  const Api& api = api::kSend;
  return in_batch(api, [&] {
    only_tensor(tensors, api.name);
    check_rank(destination, api.name);
    const at::Tensor flat = pack(tensors);
    ops::Collective collective = transfer(ops::OpKind::kSend, flat, destination, tag);
    const PayloadPtr payload = make_payload(tensors);
    read_from(flat, collective, *payload);
    return launch({.api = api}, tensors, std::move(collective), payload);
  });
}

ChainmailBackend::WorkPtr ChainmailBackend::recv(Tensors& tensors, int source, int tag) {
  return in_batch(api::kRecv, [&] {
    check_rank(source, api::kRecv.name);
    return receive(api::kRecv, tensors, source, tag);
  });
}

ChainmailBackend::WorkPtr ChainmailBackend::recvAnysource(Tensors& tensors, int tag) {
  return in_batch(api::kRecvAnySource,
                  [&] { return receive(api::kRecvAnySource, tensors, ops::kAnyRank, tag); });
}

ChainmailBackend::WorkPtr ChainmailBackend::receive(const Api& api, const Tensors& tensors,
                                                    int source, int tag) {
  const at::Tensor& tensor = only_tensor(tensors, api.name);
  check_writable(tensors, api.name);
  const at::Tensor flat = pack_empty(tensors);
  ops::Collective collective = transfer(ops::OpKind::kRecv, flat, source, tag);
  auto payload = make_payload(tensors);
  write_to(flat, collective, *payload);
  if (!flat.is_same(tensor)) payload->copy_out = [flat, tensors] { unpack(flat, tensors); };
  return launch({.api = api}, tensors, std::move(collective), std::move(payload));
}

}  // namespace chainmail::internal
