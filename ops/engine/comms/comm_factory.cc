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

TransportMember member_of(const CommRequest& request, const GroupOptions& options) {
  TransportMember member;
  member.rank = request.rank;
  for (std::size_t i = 0; i < request.ranks.size(); ++i) {
    member.names.push_back({request.global_ranks[i], request.hosts[i]});
  }
  member.group = options.name + "/" + request.name;
  member.generation = options.generation;
  return member;
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
  TcpOptions tcp;
  static_cast<TransportMember&>(tcp) = member_of(request, options);
  tcp.secret = options.secret;
  tcp.interface = options.interface;
  tcp.on_one_node = request.on_one_node;
  tcp.use_checksum = options.use_checksum;
  tcp.silence_limit = options.silence_limit;
  tcp.silence = options.silence;
  tcp.encryption = options.encryption;
  return std::make_unique<TcpTransport>(rendezvous_of(request), std::move(tcp));
}

CommFactory::MakeTransport over_mpi(std::shared_ptr<MpiWorld> world) {
  return [world = std::move(world)](const CommRequest& request, const GroupOptions& options) {
    return std::make_unique<MpiTransport>(world, rendezvous_of(request),
                                          member_of(request, options));
  };
}

CommFactory::Make comm_over(CommFactory::MakeTransport make) {
  return [make = std::move(make)](const CommRequest& request, const GroupOptions& options,
                                  const OpContext& context) {
    P2pOptions p2p;
    p2p.tracker = context.tracker;
    return std::make_unique<P2pComm>(make(request, options), p2p);
  };
}

}  // namespace

CommFactory default_comm_factory(const GroupOptions& options, std::shared_ptr<MpiWorld> mpi) {
  const bool has_mpi = mpi != nullptr;
  CommFactory factory;
  factory.transport_anywhere = has_mpi ? over_mpi(std::move(mpi)) : make_tcp_transport;
  factory.anywhere = comm_over(factory.transport_anywhere);
  factory.on_node = options.use_shared_memory ? make_shm : comm_over(make_tcp_transport);
  if (options.use_shared_memory) {
    factory.transport_on_node = make_shm_transport;
  } else if (has_mpi) {
    factory.transport_on_node = make_tcp_transport;
  }
  return factory;
}

}  // namespace chainmail::ops
