// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// A failure detector for ranks that were not started by our launcher, for the time before they are
// connected: each rank holds a listening socket that it never accepts from. The kernel completes
// connections to it while the process lives, even when it is busy or stopped, and refuses them
// once the process has ended, however it ended.
//
// A refused connection counts only where the peer cannot be unreachable: on the loopback of this
// process's own network, or at an address that this process has connected to before. A firewall
// also refuses connections.
//
// Thread-safe. Nothing is read from or written to these sockets, so strangers gain nothing.

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
#include "plugin/job/environment/settings.h"

namespace chainmail::internal {

/// Which of the ranks that have published their address in `rendezvous` have ended. Asked about a
/// rank, it starts to connect, and looks at the result each time it is asked again.
class LivenessProbe final : public ops::RankLiveness {
 public:
  explicit LivenessProbe(std::shared_ptr<ops::Rendezvous> rendezvous)
      : rendezvous_(std::move(rendezvous)) {}

  std::optional<ops::RankEnd> end_of(int rank) override;
  /// Connects once to those of `ranks` that are on other nodes, up to the number of peers that are
  /// watched, so that a later refusal counts. Takes at most 100 ms.
  void probe_once(const std::vector<int>& ranks);
  /// The key under which `rank` publishes its address.
  [[nodiscard]] static std::string key_of(int rank) { return "liveness/" + std::to_string(rank); }

 private:
  struct Peer {
    SocketAddress address;
    bool is_near = false;   ///< on the loopback of this process's network
    UniqueFd connection{};  ///< established or in progress
    std::optional<Deadline> gone_if_still_refused{};
  };
  std::optional<Peer> look_up(int rank, Deadline deadline) const;
  static void connect(Peer& peer);
  static bool poll_answer(Peer& peer);
  static void record_answer(Peer& peer, int error);

  const std::shared_ptr<ops::Rendezvous> rendezvous_;
  std::mutex mutex_;
  std::map<int, Peer> peers_;
};

/// Opens this process's listening socket if it has none yet, publishes its address in the group's
/// `rendezvous`, and connects to the others' once: over the loopback where all ranks are on one
/// node, otherwise over the interface that carries data. Null where MPI carries the data between
/// nodes, since a firewall may then refuse connections to a live process.
[[nodiscard]] std::shared_ptr<ops::RankLiveness> start_liveness_probe(
    std::shared_ptr<ops::Rendezvous> rendezvous, int rank, const ops::Topology& topology,
    const JobSettings& settings);

}  // namespace chainmail::internal
