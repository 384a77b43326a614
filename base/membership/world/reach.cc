// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "base/membership/world/reach.h"

#include <algorithm>
#include <set>

namespace chainmail::membership {
namespace {

constexpr int kMostSteps = 20'000;

// Searches the smallest set whose removal leaves no accusation. Whoever has the most accusations
// either goes, or all that accuse it or are accused by it go. The second branch ends at once where
// one side of a cut stands against the other.
class Search {
 public:
  Search(std::span<const HostId> hosts, std::span<const Accusation> accusations)
      : hosts_(hosts),
        cut_off_(hosts.size()),
        stays_(hosts.size(), true),
        is_heard_(hosts.size(), false) {
    for (const Accusation& a : accusations) {
      if (a.from == a.peer || a.from >= hosts.size() || a.peer >= hosts.size()) continue;
      is_heard_[a.from] = true;
      cut_off_[a.from].push_back(a.peer);
      cut_off_[a.peer].push_back(a.from);
    }
    for (auto& peers : cut_off_) {
      std::sort(peers.begin(), peers.end());
      peers.erase(std::unique(peers.begin(), peers.end()), peers.end());
    }
  }

  std::vector<std::uint32_t> run() {
    descend(static_cast<std::uint32_t>(stays_.size()));
    return best_;
  }

 private:
  std::uint32_t degree_of(std::uint32_t member) const {
    return static_cast<std::uint32_t>(std::count_if(
        cut_off_[member].begin(), cut_off_[member].end(), [&](auto peer) { return stays_[peer]; }));
  }

  void descend(std::uint32_t left) {
    if (!best_.empty() && (left < best_.size() || ++steps_ > kMostSteps)) return;
    // The youngest of equals: the branch in which it goes, and the older stay, comes first.
    std::uint32_t worst = 0;
    std::uint32_t most = 0;
    for (std::uint32_t member = 0; member < stays_.size(); ++member) {
      const std::uint32_t degree = stays_[member] ? degree_of(member) : 0;
      if (degree != 0 && degree >= most) {
        worst = member;
        most = degree;
      }
    }
    if (most == 0) return keep_if_better();
    stays_[worst] = false;
    descend(left - 1);
    stays_[worst] = true;
    std::vector<std::uint32_t> going;
    for (const std::uint32_t peer : cut_off_[worst]) {
      if (stays_[peer]) going.push_back(peer);
    }
    for (const std::uint32_t peer : going) stays_[peer] = false;
    descend(left - most);
    for (const std::uint32_t peer : going) stays_[peer] = true;
  }

  void keep_if_better() {
    std::vector<std::uint32_t> found;
    for (std::uint32_t member = 0; member < stays_.size(); ++member) {
      if (stays_[member]) found.push_back(member);
    }
    if (best_.empty() || is_better(found)) best_ = std::move(found);
  }

  bool is_better(const std::vector<std::uint32_t>& found) const {
    if (found.size() != best_.size()) return found.size() > best_.size();
    const auto heard = [this](const auto& members) {
      return std::count_if(members.begin(), members.end(), [this](auto m) { return is_heard_[m]; });
    };
    if (heard(found) != heard(best_)) return heard(found) > heard(best_);
    if (hurt_hosts(found) != hurt_hosts(best_)) return hurt_hosts(found) < hurt_hosts(best_);
    return found < best_;
  }

  /// Those of members that are not among these.
  std::size_t hurt_hosts(const std::vector<std::uint32_t>& staying) const {
    std::set<HostId> hurt;
    for (std::uint32_t member = 0; member < hosts_.size(); ++member) {
      if (!std::binary_search(staying.begin(), staying.end(), member)) hurt.insert(hosts_[member]);
    }
    return hurt.size();
  }

  const std::span<const HostId> hosts_;
  std::vector<std::vector<std::uint32_t>> cut_off_;
  std::vector<bool> stays_;
  std::vector<bool> is_heard_;
  std::vector<std::uint32_t> best_;
  int steps_ = 0;
};

}  // namespace

std::vector<std::uint32_t> largest_reaching_set(std::span<const HostId> hosts,
                                                std::span<const Accusation> accusations) {
  return Search(hosts, accusations).run();
}

}  // namespace chainmail::membership
