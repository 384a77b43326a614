// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "tests/base/membership/sim/explore.h"

#include <algorithm>
#include <memory>
#include <utility>

namespace chainmail::membership::sim {
namespace {

using Kind = Choice::Kind;

// Hashes to numbers in the order of their arrival; open addressing, never more than half full.
class StateSet {
 public:
  struct Found {
    std::uint32_t number;
    bool is_new;
  };

  Found insert(std::uint64_t hash) {
    if (2 * std::size_t{size_} >= slots_.size()) grow();
    Slot& slot = slot_of(hash);
    if (slot.number != kFree) return {slot.number, false};
    slot = {hash, size_};
    return {size_++, true};
  }
  std::uint32_t size() const { return size_; }

 private:
  static constexpr std::uint32_t kFree = ~0U;
  struct Slot {
    std::uint64_t hash = 0;
    std::uint32_t number = kFree;
  };

  Slot& slot_of(std::uint64_t hash) {
    std::size_t at = hash & (slots_.size() - 1);
    while (slots_[at].number != kFree && slots_[at].hash != hash)
      at = (at + 1) & (slots_.size() - 1);
    return slots_[at];
  }
  void grow() {
    std::vector<Slot> old(2 * slots_.size());
    std::swap(old, slots_);
    for (const Slot& slot : old) {
      if (slot.number != kFree) slot_of(slot.hash) = slot;
    }
  }

  std::vector<Slot> slots_{1024};
  std::uint32_t size_ = 0;
};

struct Node {
  std::unique_ptr<Simulation> sim;
  Faults left;
  std::uint32_t number = 0;
};

struct Origin {
  std::uint32_t parent = 0;
  Choice choice;
};

struct Edge {
  std::uint32_t from = 0;
  std::uint32_t to = 0;
};

std::uint16_t short_of(std::size_t number) { return static_cast<std::uint16_t>(number); }

class Exploration {
 public:
  Exploration(const Setup& setup, std::uint64_t most_states)
      : setup_(setup), most_states_(most_states) {}

  ExploreResult run(const Faults& faults, Order order) {
    add({std::make_unique<Simulation>(setup_), faults, 0}, {0, {}});
    while (!next_.empty() && !is_enough()) {
      order == Order::kBreadthFirst ? expand_layer() : expand_last();
    }
    result_.states = known_.size();
    result_.is_complete = next_.empty() && !is_enough();
    if (result_.is_complete) check_ends();
    return std::move(result_);
  }

 private:
  bool is_enough() const { return !result_.violation.empty() || known_.size() >= most_states_; }

  void expand_layer() {
    std::swap(now_, next_);
    next_.clear();
    ++result_.depth;
    for (Node& node : now_) {
      expand(node);
      node.sim.reset();
      if (is_enough()) break;
    }
    now_.clear();
  }

  void expand_last() {
    const Node node = std::move(next_.back());
    next_.pop_back();
    expand(node);
  }

  // The number of the state, known or new.
  std::uint32_t add(Node node, const Origin& origin) {
    const Faults& left = node.left;
    std::uint64_t hash = node.sim->digest();
    for (const std::uint8_t count :
         {left.crashes, left.stops, left.cuts, left.newcomers, left.drains, left.launcher}) {
      hash = mix(hash + count);
    }
    const auto [number, is_new] = known_.insert(hash);
    if (!is_new) return number;
    origins_.push_back(origin);
    node.number = number;
    if (!node.sim->violation().empty()) fail(number, node.sim->violation());
    next_.push_back(std::move(node));
    return number;
  }

  void fail(std::uint32_t number, const std::string& what) {
    if (!result_.violation.empty()) return;
    result_.violation = what;
    for (; number != 0; number = origins_[number].parent) {
      result_.path.push_back(origins_[number].choice);
    }
    std::reverse(result_.path.begin(), result_.path.end());
  }

  void expand(const Node& node) {
    if (node.sim->is_over()) {
      ends_.push_back(node.number);
      return;
    }
    node.sim->enabled(choices_);
    if (choices_.empty()) {
      return fail(node.number, "nothing can happen any more, and the job has not ended");
    }
    for (const Choice& choice : choices_) {
      const std::uint32_t to = follow(node, choice, node.left);
      edges_.push_back({node.number, to});
    }
    add_faults(node);
  }

  std::uint32_t follow(const Node& node, const Choice& choice, const Faults& left,
                       std::vector<HostLine> file = {}) {
    ++result_.transitions;
    Node child{std::make_unique<Simulation>(*node.sim), left, 0};
    if (choice.kind == Kind::kEdit) child.sim->set_file(std::move(file));
    child.sim->apply(choice);
    return add(std::move(child), {node.number, choice});
  }

  void add_faults(const Node& node) {
    const auto& processes = node.sim->processes();
    const bool is_launched = node.sim->is_launcher_alive();
    for (std::size_t id = 0; id < processes.size(); ++id) {
      if (!processes[id].is_alive) continue;
      Faults left = node.left;
      if (left.crashes != 0) {
        --left.crashes;
        follow(node, {Kind::kCrash, short_of(id), 1}, left);
      }
      left = node.left;
      if (left.stops != 0 && !processes[id].is_stopped && is_launched) {
        --left.stops;
        follow(node, {Kind::kStop, short_of(id), 0}, left);
      }
    }
    Faults left = node.left;
    if (left.cuts != 0 && is_launched) {
      --left.cuts;
      const std::size_t hosts = node.sim->hosts().size();
      for (std::size_t from = 0; from < hosts; ++from) {
        for (std::size_t to = 0; to < hosts; ++to) {
          if (from != to) follow(node, {Kind::kCutData, short_of(from), short_of(to)}, left);
        }
      }
    }
    if (is_launched) add_edits(node);
    left = node.left;
    if (left.launcher != 0 && is_launched) {
      --left.launcher;
      follow(node, {Kind::kLauncherDies, 0, 0}, left);
    }
  }

  void add_edits(const Node& node) {
    std::vector<HostLine> file = node.sim->file();
    Faults left = node.left;
    if (left.drains != 0 && file.size() > 1) {
      --left.drains;
      file.pop_back();
      follow(node, {Kind::kEdit, 0, 0}, left, file);
    }
    file = node.sim->file();
    left = node.left;
    if (left.newcomers != 0) {
      file.push_back({"newcomer " + std::to_string(left.newcomers--), 1});
      follow(node, {Kind::kEdit, 0, 0}, left, file);
    }
  }

  // Backwards from the ends, over all that happens without faults.
  void check_ends() {
    std::vector<std::uint32_t> first(known_.size() + 2, 0);
    for (const Edge& edge : edges_) ++first[edge.to + 2];
    for (std::size_t i = 2; i < first.size(); ++i) first[i] += first[i - 1];
    std::vector<std::uint32_t> sources(edges_.size());
    for (const Edge& edge : edges_) sources[first[edge.to + 1]++] = edge.from;
    std::vector<bool> is_reached(known_.size(), false);
    std::vector<std::uint32_t> unvisited = ends_;
    for (const std::uint32_t end : ends_) is_reached[end] = true;
    while (!unvisited.empty()) {
      const std::uint32_t state = unvisited.back();
      unvisited.pop_back();
      for (std::uint32_t i = first[state]; i < first[state + 1]; ++i) {
        if (is_reached[sources[i]]) continue;
        is_reached[sources[i]] = true;
        unvisited.push_back(sources[i]);
      }
    }
    for (std::uint32_t state = 0; state < known_.size(); ++state) {
      if (!is_reached[state]) return fail(state, "from here the job never comes to an end");
    }
  }

  const Setup& setup_;
  std::uint64_t most_states_;
  ExploreResult result_;
  StateSet known_;
  std::vector<Node> now_;
  std::vector<Node> next_;
  std::vector<Origin> origins_;  // by number
  std::vector<Edge> edges_;
  std::vector<std::uint32_t> ends_;
  std::vector<Choice> choices_;
};

}  // namespace

ExploreResult explore(const Setup& setup, const Faults& faults, std::uint64_t most_states,
                      Order order) {
  return Exploration(setup, most_states).run(faults, order);
}

}  // namespace chainmail::membership::sim
