// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/nn/parallel/link_edges.h"

#include <cstddef>

namespace chainmail::internal {

namespace {

using Links = std::vector<std::vector<LinkEdges>>;
// counts[a][b]: from rank a to rank b.
using Counts = std::vector<std::vector<int>>;

std::size_t number_of(int rank) { return static_cast<std::size_t>(rank); }

std::string times(int count) { return std::to_string(count) + (count == 1 ? " link" : " links"); }

std::string find_other_count(const Links& links) {
  Counts sent(links.size(), std::vector<int>(links.size()));
  Counts received = sent;
  for (std::size_t rank = 0; rank < links.size(); ++rank) {
    for (const LinkEdges& link : links[rank]) {
      for (const int to : link.to) ++sent[rank][number_of(to)];
      for (const int from : link.from) ++received[number_of(from)][rank];
    }
  }
  for (std::size_t a = 0; a < links.size(); ++a) {
    for (std::size_t b = 0; b < links.size(); ++b) {
      if (sent[a][b] == received[a][b]) continue;
      return "rank " + std::to_string(a) + " sends to rank " + std::to_string(b) + " in " +
             times(sent[a][b]) + ", rank " + std::to_string(b) + " receives from rank " +
             std::to_string(a) + " in " + times(received[a][b]);
    }
  }
  return {};
}

// Every rank goes through its links as forward() does; sends do not wait.
class Walk {
 public:
  explicit Walk(const Links& links)
      : links_(links),
        under_way_(links.size(), std::vector<int>(links.size())),
        link_(links.size()),
        input_(links.size()) {}

  std::string find_wait() {
    for (bool has_moved = true; has_moved;) {
      has_moved = false;
      for (std::size_t rank = 0; rank < links_.size(); ++rank) has_moved |= advance(rank);
    }
    std::string waiting;
    for (std::size_t rank = 0; rank < links_.size(); ++rank) {
      if (link_[rank] == links_[rank].size()) continue;
      waiting += (waiting.empty() ? "rank " : ", rank ") + std::to_string(rank) + " in link " +
                 std::to_string(link_[rank]) + " for rank " +
                 std::to_string(links_[rank][link_[rank]].from[input_[rank]]);
    }
    return waiting.empty() ? waiting : "no order of the links ends; waiting would be " + waiting;
  }

 private:
  // As far as what is under way brings it.
  bool advance(std::size_t rank) {
    bool has_moved = false;
    for (; link_[rank] < links_[rank].size(); ++link_[rank]) {
      const LinkEdges& link = links_[rank][link_[rank]];
      for (; input_[rank] < link.from.size(); ++input_[rank]) {
        int& arriving = under_way_[number_of(link.from[input_[rank]])][rank];
        if (arriving == 0) return has_moved;
        --arriving;
        has_moved = true;
      }
      for (const int to : link.to) ++under_way_[rank][number_of(to)];
      input_[rank] = 0;
      has_moved = true;
    }
    return has_moved;
  }

  const Links& links_;
  Counts under_way_;
  std::vector<std::size_t> link_;   // of each rank, the one that it is in
  std::vector<std::size_t> input_;  // ... and the input of that which is next
};

}  // namespace

std::string find_unmet_edge(const Links& links) {
  std::string problem = find_other_count(links);
  return problem.empty() ? Walk(links).find_wait() : problem;
}

}  // namespace chainmail::internal
