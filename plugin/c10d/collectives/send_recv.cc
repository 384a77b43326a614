// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// send and recv of the backend.

#include <utility>

#include "plugin/c10d/backend/chainmail_backend.h"
#include "plugin/c10d/collectives/buffers.h"
#include "plugin/c10d/collectives/checks.h"
#include "plugin/c10d/collectives/elements.h"
#include "plugin/tensor/tensor_bytes.h"

namespace chainmail::internal {
namespace {

ops::Collective transfer(ops::OpKind kind, const at::Tensor& flat, int peer, int tag) {
  TORCH_CHECK(tag >= 0, "chainmail: ", to_string(kind), ": a tag must not be negative, got ", tag);
  ops::Collective collective = data_collective(kind, flat.scalar_type(), flat.numel());
  collective.root = peer;
  collective.tag = static_cast<std::uint32_t>(tag);
  return collective;
}

WorkPtr receive(Issuer& issuer, const Api& api, const std::vector<at::Tensor>& tensors, int source,
                int tag) {
  only_tensor(tensors, api.name);
  check_writable(tensors, api.name);
  const at::Tensor flat = pack_empty(tensors);
  ops::Collective collective = transfer(ops::OpKind::kRecv, flat, source, tag);
  auto payload = issuer.group().make_payload(tensors);
  set_output(flat, tensors, collective, *payload);
  return issuer.issue({.api = api}, tensors, std::move(collective), std::move(payload));
}

}  // namespace

WorkPtr ChainmailBackend::send(Tensors& tensors, int destination, int tag) {
  const Api& api = api::kSend;
  return issuer_.in_batch(api, [&] {
    only_tensor(tensors, api.name);
    group_.check_rank(destination, api.name);
    const at::Tensor flat = pack(tensors);
    ops::Collective collective = transfer(ops::OpKind::kSend, flat, destination, tag);
    const PayloadPtr payload = group_.make_payload(tensors);
    set_input(flat, collective, *payload);
    return issuer_.issue({.api = api}, tensors, std::move(collective), payload);
  });
}

WorkPtr ChainmailBackend::recv(Tensors& tensors, int source, int tag) {
  return issuer_.in_batch(api::kRecv, [&] {
    group_.check_rank(source, api::kRecv.name);
    return receive(issuer_, api::kRecv, tensors, source, tag);
  });
}

WorkPtr ChainmailBackend::recvAnysource(Tensors& tensors, int tag) {
  return issuer_.in_batch(api::kRecvAnySource, [&] {
    return receive(issuer_, api::kRecvAnySource, tensors, ops::kAnyRank, tag);
  });
}

}  // namespace chainmail::internal
