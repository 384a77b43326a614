// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What an agent does so that MPI_Init works in its ranks: a PMIx server for Open MPI, started when
// the first rank calls, and PMI-1 for MPICH. A job that uses no MPI pays for two folders, a
// listening socket and one socket pair per rank.
//
// One per node and generation. One thread, the main one.

#pragma once

#include <asio/io_context.hpp>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "launcher/mpi/mpi_environment.h"
#include "launcher/mpi/mpi_wire.h"
#include "launcher/mpi/service/mpi_directories.h"
#include "launcher/mpi/service/pmix_helper.h"
#include "launcher/mpi/service/pmix_listener.h"
#include "launcher/pmi1/pmi1_server.h"

namespace chainmail::launch {

class MpiService {
 public:
  using Send = std::function<void(const MpiMessage&)>;

  /// `marker` is the agent's; `send` reaches the controller. Throws SystemError when `order` wants
  /// what this node does not have.
  /// `sent_helper`: chainmail-pmix as the launcher has sent it, or empty.
  MpiService(asio::io_context& io, MpiOrder order, const std::string& marker,
             const std::string& sent_helper, Send send);
  /// The answer to kWantHelper.
  void helper_arrived(const std::string& program);

  /// Completes the environment of a rank: `is_crowded` when the node has more ranks than cores.
  void add_variables(Environment& variables, std::uint32_t rank, bool is_crowded) const;
  /// The rank's end of its PMI-1 socket, for the number kPmi1Fd; closed in `--mpi pmix`.
  [[nodiscard]] internal::UniqueFd socket_for(std::uint32_t rank);
  /// From the controller.
  void handle(MpiMessage message);
  /// Before the exit is reported: says so when the rank left others waiting.
  void on_rank_exit(std::uint32_t rank, bool is_good);
  /// For who reaps this process's children, before it does: a helper's end is explained by it.
  void on_child_end(const siginfo_t& info);

 private:
  enum class Stage : std::uint8_t { kOutside, kInside, kOver };

  void open_listener();
  void start_helper();
  void ask_for_helper();
  void admit(internal::UniqueFd connection);
  void on_helper_message(MpiMessage message);
  void on_helper_lost(const std::string& words);
  MpiRank place_of(std::uint32_t rank) const;
  bool any_inside() const;

  asio::io_context& io_;
  MpiOrder order_;
  Send send_;
  std::vector<std::uint32_t> local_ranks_;
  MpiDirectories directories_;
  std::map<std::uint32_t, Stage> stages_;
  std::string helper_program_;
  std::string why_no_helper_;  // of one that is there but is not run
  std::unique_ptr<PmixListener> listener_;
  std::unique_ptr<PmixHelper> helper_;
  bool has_asked_for_helper_ = false;
  bool helper_is_ready_ = false;
  bool helper_is_lost_ = false;
  std::vector<internal::UniqueFd> early_;
  std::vector<MpiMessage> early_messages_;
  std::unique_ptr<Pmi1Server> pmi1_;
};

}  // namespace chainmail::launch
