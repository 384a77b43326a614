// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include <utility>

#include "ops/comm/shm_comm.h"
#include "ops/comm/tcp_comm.h"
#include "ops/engine/comm_set.h"

namespace chainmail::ops {
namespace {

std::unique_ptr<Comm> make_shm(const CommRequest& request, const GroupOptions& options,
                               const OpContext& context) {
  ShmCommOptions shm;
  shm.rank = request.rank;
  shm.size = static_cast<int>(request.ranks.size());
  shm.global_ranks = request.global_ranks;
  shm.host = options.host;
  shm.key_prefix = request.name;
  return create_shm_comm(shm, *request.rendezvous, context.deadline, context.failure);
}

std::unique_ptr<Comm> make_tcp(const CommRequest& request, const GroupOptions& options,
                               const OpContext& /*context*/) {
  TcpOptions tcp;
  tcp.rank = request.rank;
  for (std::size_t i = 0; i < request.ranks.size(); ++i) {
    tcp.names.push_back({request.global_ranks[i], request.hosts[i]});
  }
  tcp.group = options.name + "/" + request.name;
  tcp.generation = options.generation;
  tcp.secret = options.secret;
  tcp.interface = options.interface;
  tcp.on_one_node = request.on_one_node;
  return create_tcp_comm(request.rendezvous, std::move(tcp));
}

}  // namespace

CommFactory default_comm_factory(const GroupOptions& options) {
  return {options.use_shared_memory ? CommFactory::Make(make_shm) : CommFactory::Make(make_tcp),
          make_tcp};
}

}  // namespace chainmail::ops
