// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// How ranks that no launcher of ours started see each other end before they are connected: each
// holds a listening socket, its door, that it never answers. The kernel lets others connect while
// the process lives, however it is busy or stopped, and refuses them afterwards, however it ended.
//
// A refusal is believed of a door that cannot be out of reach: on the loopback of this process's
// own network, or one that has let this process in before. A firewall refuses, too.
//
// Thread-safe. Nothing is read from a door or written to it, so a stranger learns and does nothing.

#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/net/socket.h"
#include "base/unique_fd.h"
#include "ops/core/liveness.h"
#include "ops/core/rendezvous.h"
#include "ops/topology.h"
#include "plugin/job/settings.h"

namespace chainmail::internal {

/// Which of the ranks that have put the address of their door on `board` are gone. Asked about a
/// rank, it knocks, and looks again each time that it is asked.
class Doors final : public ops::RankLiveness {
 public:
  explicit Doors(std::shared_ptr<ops::Rendezvous> board) : board_(std::move(board)) {}

  std::optional<ops::RankEnd> end_of(int rank) override;
  /// Knocks once at the doors of those of `ranks` that are on other nodes, of so many as are
  /// watched, so that their refusals can be believed later. Takes a moment at most.
  void visit(const std::vector<int>& ranks);
  /// Where rank's door is on the board.
  [[nodiscard]] static std::string key_of(int rank) { return "door/" + std::to_string(rank); }

 private:
  struct Door {
    SocketAddress address;
    bool is_near = false;  ///< on the loopback of this process's network
    UniqueFd knock{};      ///< a connection, or one on its way
    std::optional<Deadline> gone_if_still_refused{};
  };
  std::optional<Door> find(int rank, Deadline deadline) const;
  static void knock(Door& door);
  static bool listen_for_answer(Door& door);
  static void note_answer(Door& door, int error);

  const std::shared_ptr<ops::Rendezvous> board_;
  std::mutex mutex_;
  std::map<int, Door> doors_;
};

/// Opens this process's door, if it has none yet, puts its address on the group's `board`, and
/// visits the others': on the loopback where all ranks are on one node, and otherwise on the
/// interface that data takes. Null where the ranks cannot see each other: MPI carries the data
/// between nodes, so that a firewall may well refuse a connection to a process that lives.
[[nodiscard]] std::shared_ptr<ops::RankLiveness> open_doors(std::shared_ptr<ops::Rendezvous> board,
                                                            int rank, const ops::Topology& topology,
                                                            const JobSettings& settings);

}  // namespace chainmail::internal
