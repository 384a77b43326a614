// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/engine/comms/comm_factory.h"

#include <utility>

#include "ops/comm/mpi/mpi_transport.h"
#include "ops/comm/p2p/p2p_comm.h"
#include "ops/comm/shm/messages/shm_transport.h"
#include "ops/comm/shm/shm_comm.h"
#include "ops/comm/tcp/tcp_transport.h"
#include "ops/core/liveness.h"

namespace chainmail::ops {
namespace {

// The group's rendezvous by the numbers of the new Comm.
std::shared_ptr<Rendezvous> rendezvous_of(const CommRequest& request) {
  return rendezvous_of(request.ranks, request.rendezvous);
}

std::unique_ptr<Comm> make_shm(const CommRequest& request, const GroupOptions& options,
                               const OpContext& context) {
  ShmCommOptions shm;
  shm.rank = request.rank;
  shm.size = static_cast<int>(request.ranks.size());
  shm.global_ranks = request.global_ranks;
  shm.host = options.host;
  shm.key_prefix = request.name;
  shm.tracker = context.tracker;
  return create_shm_comm(shm, *rendezvous_of(request), context.deadline, context.failure);
}

TcpOptions tcp_options(const CommRequest& request, const GroupOptions& options) {
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
  tcp.use_checksum = options.use_checksum;
  tcp.encryption = options.encryption;
  return tcp;
}

std::unique_ptr<Transport> make_shm_transport(const CommRequest& request,
                                              const GroupOptions& options) {
  ShmTransportOptions shm;
  shm.rank = request.rank;
  for (const int rank : request.global_ranks) {
    shm.names.push_back({rank, options.host});
  }
  shm.key_prefix = request.name + "/" + std::to_string(options.generation) + "/";
  return std::make_unique<ShmTransport>(rendezvous_of(request), std::move(shm));
}

std::unique_ptr<Transport> make_tcp_transport(const CommRequest& request,
                                              const GroupOptions& options) {
  return std::make_unique<TcpTransport>(rendezvous_of(request), tcp_options(request, options));
}

std::unique_ptr<Comm> make_tcp(const CommRequest& request, const GroupOptions& options,
                               const OpContext& context) {
  P2pOptions p2p;
  p2p.tracker = context.tracker;
  return std::make_unique<P2pComm>(make_tcp_transport(request, options), p2p);
}

std::unique_ptr<Transport> make_mpi_transport(const std::shared_ptr<MpiWorld>& world,
                                              const CommRequest& request,
                                              const GroupOptions& options) {
  MpiOptions mpi;
  mpi.rank = request.rank;
  for (std::size_t i = 0; i < request.ranks.size(); ++i) {
    mpi.names.push_back({request.global_ranks[i], request.hosts[i]});
  }
  mpi.group = options.name + "/" + request.name;
  mpi.generation = options.generation;
  return std::make_unique<MpiTransport>(world, rendezvous_of(request), std::move(mpi));
}

}  // namespace

CommFactory default_comm_factory(const GroupOptions& options, std::shared_ptr<MpiWorld> mpi) {
  CommFactory factory;
  factory.anywhere = make_tcp;
  factory.transport_anywhere = make_tcp_transport;
  factory.on_node = options.use_shared_memory ? CommFactory::Make(make_shm) : make_tcp;
  if (options.use_shared_memory) factory.transport_on_node = make_shm_transport;
  if (mpi != nullptr) {
    factory.anywhere = [mpi](const CommRequest& request, const GroupOptions& given,
                             const OpContext& context) -> std::unique_ptr<Comm> {
      P2pOptions p2p;
      p2p.tracker = context.tracker;
      return std::make_unique<P2pComm>(make_mpi_transport(mpi, request, given), p2p);
    };
    factory.transport_anywhere = [mpi](const CommRequest& request, const GroupOptions& given) {
      return make_mpi_transport(mpi, request, given);
    };
    if (!options.use_shared_memory) factory.transport_on_node = make_tcp_transport;
  }
  return factory;
}

}  // namespace chainmail::ops
