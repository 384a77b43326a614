// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What the MPI helper of a node, its agent and the controller say to each other on behalf of MPI.
// One shape for all messages; a long one travels in several frames.
//
// Pure functions over bytes: every length is checked before use, a message is at most 256 MiB.

#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/channel/wire.h"
#include "launcher/job/options.h"

namespace chainmail::launch {

enum class MpiOp : std::uint8_t {
  // agent -> helper, once
  kConfigure = 1,  ///< data: an encoded MpiOrder; entries: the environment that ranks were given
  // helper -> agent
  kReady,      ///< connections may be handed over
  kConnected,  ///< ranks[0] has called MPI_Init
  kFinalized,  ///< ranks[0] has called MPI_Finalize
  // towards the controller
  kAbort,       ///< ranks[0] asks for the end of the job; status: its code, data: its words
  kUnserved,    ///< MPI cannot go on at this node; data: why
  kUnfinished,  ///< ranks[0] has left between MPI_Init and MPI_Finalize, with exit code 0
  kGather,      ///< key, ranks (empty: all), data: concatenated over the nodes of the ranks
  kPublish,     ///< id, ranks[0] the owner, entries
  kLookup,      ///< id, entries: the names; status 1: wait until all are there
  kUnpublish,   ///< id, ranks[0] the owner, entries: names (none: all of the owner's)
  kForget,      ///< id: the lookup is not waited for any more
  kWantHelper,  ///< this node has no helper, and a rank wants MPI
  // towards the helper
  kGathered,  ///< key, ranks, data
  // both ways
  kFetch,   ///< id, ranks[0] whose data are wanted; to the controller, then to that rank's node
  kAnswer,  ///< id, status (0 good), data or entries
};

struct MpiEntry {
  std::string key;
  std::string value;
  static void fields(auto& archive, auto& m) { archive(m.key, m.value); }
};

struct MpiMessage {
  MpiOp op = MpiOp::kReady;
  std::uint64_t id = 0;
  std::int32_t status = 0;
  std::string key = {};
  std::vector<std::uint32_t> ranks = {};
  std::vector<MpiEntry> entries = {};
  std::string data = {};
  static void fields(auto& archive, auto& m) {
    archive(m.op, m.id, m.status, m.key, m.ranks, m.entries, m.data);
  }
};
/// Throws SystemError(EPROTO).
[[nodiscard]] MpiMessage decode_mpi(std::string_view bytes);

/// Cuts a message into bodies of frames.
void send_in_pieces(const MpiMessage& message, const std::function<void(std::string)>& send);

/// Puts the bodies of one sender's frames together again.
class MpiPieces {
 public:
  /// The message that `body` completes, if it does. Throws SystemError(EPROTO).
  [[nodiscard]] std::optional<MpiMessage> add(std::string_view body);

 private:
  std::string bytes_;
};

/// A job as MPI sees it.
struct MpiOrder {
  MpiMode mode = MpiMode::kNone;
  std::string name;                         ///< of the job: random, so that it proves membership
  std::uint32_t node = 0;                   ///< whose order this is
  std::vector<std::uint32_t> node_of_rank;  ///< of every rank
  std::vector<std::string> node_names;      ///< different from each other
  bool sends_helper = false;                ///< to nodes that have none and ask for it

  std::vector<std::uint32_t> ranks_of(std::uint32_t node_rank) const;
  static void fields(auto& archive, auto& m) {
    archive(m.mode, m.name, m.sends_helper, m.node, m.node_of_rank, m.node_names);
  }
};
/// Throws SystemError(EPROTO). What the launcher orders lacks nodes and names, which are in the
/// job's table.
[[nodiscard]] MpiOrder decode_mpi_order(std::string_view bytes);
/// Throws SystemError(EPROTO) when a whole order contradicts itself.
void check_mpi_order(const MpiOrder& order);

/// `hosts` as libpmix can carry them: letters, digits and '-', none twice.
[[nodiscard]] std::vector<std::string> mpi_node_names(const std::vector<std::string>& hosts);

}  // namespace chainmail::launch
