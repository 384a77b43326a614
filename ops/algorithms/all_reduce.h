// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The all-reduce algorithms over the Comms of a group; all give the same bits on every rank and
// from run to run. P ranks per node, N nodes, n = P*N, S bytes:
//
// flat, naive, single_node: one all-reduce over all ranks, wherever they sit. ChainerMN's "flat"
// (pack all, one MPI_Allreduce); "naive" is the same, tensor by tensor. One node: shared memory,
// every rank reduces S/n. Between nodes with the ring of P2pComm:
//   steps 2(n-1), log2(n) for small messages
//   bytes sent per rank 2S(n-1)/n; per node and direction the same when ranks are numbered node by
//   node, P times as much when they are numbered round robin
//
// hierarchical and two_dimensional: one pipeline with another number of owners. Chunk by chunk a
// local reduce-scatter to the first `owners` ranks of each node, an all-reduce of every owner's
// slice between nodes, a local all-gather. Several chunks are between the nodes while later ones
// are being reduced inside, so that the time tends to max(local, wire) instead of their sum
// (Horovod PR 1047). All ranks of a node do the local steps in the same order.
//
// hierarchical, one owner: ChainerMN's "hierarchical" (NCCL reduce, MPI all-reduce, NCCL bcast).
//   local  2 synchronisations per chunk, the leader reduces P*S
//   cross  among N leaders: 2(N-1) steps (1 for N=2), 2S(N-1)/N bytes sent per node, half of that
//          with a 16-bit wire; one connection per pair of leaders
// One core per node moves the data: the choice for small messages, where only steps count, and for
// nodes of one rank beside larger ones.
//
// two_dimensional, as many owners as the smallest node has ranks: ChainerMN's "two_dimensional";
// Mikami et al. 2018 (2D-torus); Horovod PR 3608.
//   local  2(P-1)/P * S bytes per rank through shared memory, 2 synchronisations per chunk
//   cross  P all-reduces of S/P at the same time: 2(N-1) steps (1 for N=2), 2(S/P)(N-1)/N bytes
//          sent per rank, 2S(N-1)/N per node (flat: 2S(PN-1)/(PN)), half with a 16-bit wire
// All cores of a node work: the choice for large messages. Local ranks beyond the smallest node's
// own no slice.

#pragma once

#include <cstddef>

#include "ops/algorithms/shard_plan.h"
#include "ops/comm/comm.h"
#include "ops/node_cut.h"
#include "ops/topology.h"
#include "ops/types.h"

namespace chainmail::ops {

/// The Comms that an algorithm composes, as one rank sees them. A plain value that owns nothing.
struct Comms {
  const Topology* topology = nullptr;
  /// Ranks of this node by local rank; null when this rank is alone on its node.
  Comm* local = nullptr;
  /// Ranks of equal local rank by node; null on one node, and for a local rank that the smallest
  /// node does not have. Local rank 0's joins the leaders.
  Comm* cross = nullptr;
  /// All ranks.
  Comm* flat = nullptr;
};

/// In place over `count` elements. `algorithm` was chosen: not kAuto. On one node needs comms.local
/// (nothing is rounded to a wire format there); between nodes kHierarchical and kTwoDimensional
/// need comms.local and, on owners, comms.cross; the others comms.flat. `chunk_bytes` bounds a
/// chunk of the pipeline. With `shards` the sum follows their tree, which every rank, and with two
/// levels every node, brings one node of (ShardLevel::is_one_each). Throws what the Comms throw;
/// they are dead then.
void all_reduce(Algorithm algorithm, const Comms& comms, std::byte* data, std::size_t count,
                const Reduction& reduction, const OpContext& context, std::size_t chunk_bytes,
                const ShardPlan* shards = nullptr);

/// The first two steps of two_dimensional, with slices of the caller's, of all elements of the cut:
/// every owner's slice of `data`, and the common elements on every rank, become what that algorithm
/// gives, bit for bit (on a 16-bit wire where the bounds are multiples of kWireBlock). Other
/// elements are undefined afterwards. Needs comms.local and, on owners, comms.cross. With a cut
/// over the nodes the second step is a reduce-scatter, too: S(N-1)/N bytes sent per node, and one
/// rounding to a 16-bit wire instead of two on more than two nodes; it is not pipelined with the
/// first one.
void reduce_to_owners(const Comms& comms, const NodeCut& cut, std::byte* data,
                      const Reduction& reduction, const OpContext& context,
                      std::size_t chunk_bytes);

/// Gives the slices of `data` to all ranks of the node, or of all nodes that share them, the common
/// elements alone. Needs comms.local and, for a cut over the nodes, comms.cross.
void gather_from_owners(const Comms& comms, const NodeCut& cut, std::byte* data, DataType dtype,
                        const OpContext& context);

}  // namespace chainmail::ops
