// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Where the nodes of a job meet on behalf of MPI, in the controller: fences, published names and
// the data that one rank wants of another.
//
// One thread. State of one world; a new generation has a new one.

#pragma once

#include <deque>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "launcher/mpi/mpi_wire.h"

namespace chainmail::launch {

class MpiExchange {
 public:
  using Send = std::function<void(std::uint32_t node, const MpiMessage& message)>;
  /// The same message to several nodes.
  using SendAll = std::function<void(const std::set<std::uint32_t>& nodes, const MpiMessage&)>;

  /// Without `send_all`, one after the other. Holds `limit` bytes of names and of what is asked
  /// for, as much as the job's store.
  MpiExchange(std::vector<std::uint32_t> node_of_rank, Send send, SendAll send_all = nullptr,
              std::size_t limit = std::size_t{256} << 20);

  /// A message from a node, whatever is not the controller's own matter (kAbort and its like).
  /// Throws SystemError(EPROTO) for what no helper says.
  void handle(std::uint32_t node, MpiMessage message);

  /// Names that are published now.
  std::size_t published() const noexcept { return names_.size(); }

 private:
  struct Party {
    std::uint32_t node = 0;
    std::uint64_t id = 0;
  };
  struct Name {
    std::uint32_t owner = 0;
    std::string value;
  };
  struct Waiting {
    Party party;
    std::vector<MpiEntry> wanted;
  };
  // Contributions to the fences of one group of ranks: the n-th of each node belong together.
  using Fence = std::map<std::uint32_t, std::deque<std::string>>;

  void gather(std::uint32_t node, MpiMessage message);
  void fetch(std::uint32_t node, const MpiMessage& message);
  void publish(std::uint32_t node, const MpiMessage& message);
  void look_up(std::uint32_t node, MpiMessage message);
  void unpublish(std::uint32_t node, const MpiMessage& message);
  void forget(std::uint32_t node, std::uint64_t id);
  template <typename Predicate>
  void drop_lookups(const Predicate& is_over);
  [[nodiscard]] bool take_room(std::size_t bytes);
  void pass_on_answer(MpiMessage message);
  bool answer_if_known(const Waiting& lookup, bool is_last_word);
  void answer(Party party, std::int32_t status, std::vector<MpiEntry> entries);
  std::uint32_t owner_in(const MpiMessage& message) const;

  std::vector<std::uint32_t> node_of_rank_;
  Send send_;
  SendAll send_all_;
  std::map<std::pair<std::string, std::vector<std::uint32_t>>, Fence> fences_;
  std::map<std::string, Name> names_;
  std::size_t limit_;
  std::size_t bytes_ = 0;  // of names, of lookups that wait and of fetches under way
  std::vector<Waiting> waiting_;
  std::map<std::uint64_t, Party> fetches_;
  std::uint64_t last_fetch_ = 0;
};

/// Status of an answer. Numbers of our own; the helper translates them.
inline constexpr std::int32_t kMpiGood = 0;
inline constexpr std::int32_t kMpiNotFound = 1;
inline constexpr std::int32_t kMpiTaken = 2;
inline constexpr std::int32_t kMpiFull = 3;

}  // namespace chainmail::launch
