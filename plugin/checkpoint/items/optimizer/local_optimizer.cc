// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/checkpoint/items/optimizer/local_optimizer.h"

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "plugin/checkpoint/items/optimizer/optimizer_parts.h"
#include "plugin/checkpoint/items/state_entries.h"
#include "plugin/train/communicator/communicator_impl.h"
#include "plugin/train/local_steps/local_access.h"
#include "plugin/train/wire/gradient_residuals.h"

namespace chainmail::internal {

namespace {

constexpr const char* kNode = "node";
constexpr const char* kSteps = "local steps/steps";
constexpr const char* kRounds = "local steps/exchanges";
/// Where the state says how parameters lie in memory, if not row by row.
constexpr const char* kSaysOrders = "local steps/says orders";

using Load = std::function<void(const SavedStates&)>;

/// What nodes have in common, as a checkpoint has it.
struct Common {
  LocalStepping::Counts counts;
  std::map<std::string, MemoryLayout> layouts;  ///< by parameter, of its momentum
};

const std::vector<NamedTensor>& parameters_of(const MultiNodeOptimizer& optimizer) {
  return LocalAccess::model(optimizer).gradients().parameters();
}

// Of the outer optimizer: "outer momentum/l1.weight".
std::string momentum_of(const std::string& parameter) { return "outer momentum/" + parameter; }

CheckpointState save_of_node(const MultiNodeOptimizer& optimizer,
                             const std::function<CheckpointState()>& save) {
  const Communicator& communicator = LocalAccess::model(optimizer).communicator();
  CheckpointState state;
  if (communicator.intra_rank() == 0) {
    const LocalStepping::Counts counts = LocalAccess::stepping(optimizer)->counts();
    state = save();
    state.set_integer(kSteps, counts.steps);
    state.set_integer(kRounds, counts.rounds);
    state.set_integer(kSaysOrders, 1);
    // As they lay when fragments were cut, with the buckets.
    const GradientResiduals kept(LocalAccess::model(optimizer));
    for (const NamedTensor& parameter : parameters_of(optimizer)) {
      const MemoryLayout* const lies = kept.lies(parameter.name);
      save_unusual_layout(state, momentum_of(parameter.name) + '/',
                          lies == nullptr ? layout_of(parameter.tensor) : *lies);
    }
  }
  state.set_integer(kNode, communicator.inter_rank());
  return state;
}

void load_of_node(const MultiNodeOptimizer& optimizer, const SavedStates& saved, const Load& load,
                  Common& common) {
  SavedStates nodes;
  for (const CheckpointState& rank : saved.ranks) {
    if (rank.has(kSteps)) nodes.ranks.push_back(rank);
  }
  if (nodes.ranks.empty()) {
    throw CheckpointError(
        "it was saved by a job without local steps, and has no state of each node: go on from it "
        "without .local_steps, or use another name for the run");
  }
  std::ranges::stable_sort(nodes.ranks, {},
                           [](const CheckpointState& node) { return node.integer(kNode); });
  nodes.rank = LocalAccess::model(optimizer).communicator().inter_rank();
  load(nodes);
  common.counts = {nodes.own().integer(kSteps), nodes.own().integer(kRounds)};
  common.layouts.clear();
  if (!nodes.own().has(kSaysOrders)) return;
  for (const NamedTensor& parameter : parameters_of(optimizer)) {
    common.layouts[parameter.name] = saved_unusual_layout(
        nodes.own(), momentum_of(parameter.name) + '/', layout_of(parameter.tensor));
  }
}

// After the parameters were loaded, on all ranks. `finish` loads what the optimizer has besides,
// for the ranks that it averages over then.
void go_on(const MultiNodeOptimizer& optimizer, const LocalStepping::Counts& counts,
           const std::function<void()>& finish) {
  LocalStepping& stepping = *LocalAccess::stepping(optimizer);
  ModelExchange& model = LocalAccess::model(optimizer);
  stepping.drop();
  stepping.set_counts(counts);
  stepping.begin(model.gradients().parameters());
  const bool is_local = stepping.is_local();
  model.average_over(is_local ? stepping.node() : nullptr, is_local ? stepping.cross() : nullptr);
  model.renew_exchange();
  finish();
}

RankParts save_momentum(const MultiNodeOptimizer& optimizer) {
  ModelExchange& model = LocalAccess::model(optimizer);
  const std::vector<NamedTensor>& parameters = parameters_of(optimizer);
  RankParts parts;
  for (const OuterFragment::Piece& piece : LocalAccess::stepping(optimizer)->pieces()) {
    const NamedTensor& parameter = parameters.at(piece.parameter);
    const std::string name = momentum_of(parameter.name);
    const std::size_t step =
        kMaxRangeBytes / static_cast<std::size_t>(piece.velocity.element_size());
    for (std::size_t begin = piece.begin; begin < piece.end; begin += step) {
      const std::size_t end = std::min(piece.end, begin + step);
      parts.entries.set_tensor(
          range_name({name, begin, end}),
          piece.velocity.narrow(0, static_cast<std::int64_t>(begin - piece.begin),
                                static_cast<std::int64_t>(end - begin)));
    }
    parts.elements[name] = static_cast<std::uint64_t>(parameter.tensor.numel());
  }
  const ops::Topology& topology = model.communicator().impl().group->topology();
  const int rank = model.communicator().rank();
  parts.slice = ops::slice_of_rank(topology, rank, /*is_over_nodes=*/false);
  parts.is_copy = topology.node_of(rank) != 0;
  return parts;
}

void check_momentum(const std::string& name, const PartTensor& saved,
                    const NamedTensor& parameter) {
  const c10::ScalarType dtype = outer_type(parameter.tensor.scalar_type());
  if (saved.is_shared || saved.elements != static_cast<std::uint64_t>(parameter.tensor.numel()) ||
      saved.type == EntryType::kBytes || scalar_type_of(saved.type) != dtype) {
    throw CheckpointError("'" + name + "' in the checkpoint does not fit parameter '" +
                          parameter.name + "' of " + std::to_string(parameter.tensor.numel()) +
                          " elements, whose momentum is " + c10::toString(dtype));
  }
}

/// Of a parameter whose elements lay in another order: all of its momentum.
struct WholeMomentum {
  MemoryLayout lay;
  MemoryLayout lies;
  at::Tensor row;  ///< as they lay
};

/// Where momentum goes.
struct Momentum {
  std::vector<OuterFragment::Piece> pieces;
  std::map<std::size_t, WholeMomentum> whole;  ///< by parameter
};

std::span<std::byte> bytes_of(const at::Tensor& row) {
  return {static_cast<std::byte*>(row.mutable_data_ptr()), row.nbytes()};
}

void cut_momentum(Momentum& momentum) {
  const at::NoGradGuard no_grad;
  for (auto& [parameter, whole] : momentum.whole) {
    const at::Tensor row = reordered(std::exchange(whole.row, {}), whole.lay, whole.lies);
    for (const OuterFragment::Piece& piece : momentum.pieces) {
      if (piece.parameter != parameter) continue;
      piece.velocity.copy_(row.slice(0, static_cast<std::int64_t>(piece.begin),
                                     static_cast<std::int64_t>(piece.end)));
    }
  }
}

// Straight to their places, but for parameters that lay in another order. What the checkpoint does
// not have stays zero.
PartWishes wish_momentum(const MultiNodeOptimizer& optimizer, const Common& common,
                         const PartTensors& saved) {
  const std::vector<NamedTensor>& parameters = parameters_of(optimizer);
  std::set<std::string> known;
  for (const NamedTensor& parameter : parameters) {
    const std::string name = momentum_of(parameter.name);
    const auto found = saved.find(name);
    if (found == saved.end()) continue;
    check_momentum(name, found->second, parameter);
    known.insert(name);
  }
  for (const auto& [name, tensor] : saved) {
    if (known.count(name) != 0) continue;
    throw CheckpointError("the checkpoint has parts of '" + name +
                          "', which no parameter of the program has: train those that were "
                          "trained when it was saved");
  }
  const auto momentum = std::make_shared<Momentum>();
  momentum->pieces = LocalAccess::stepping(optimizer)->pieces();
  PartWishes wished;
  for (const OuterFragment::Piece& piece : momentum->pieces) {
    const NamedTensor& parameter = parameters.at(piece.parameter);
    const std::string name = momentum_of(parameter.name);
    if (known.count(name) == 0) continue;
    const MemoryLayout lies = layout_of(parameter.tensor);
    const auto lay = common.layouts.find(parameter.name);
    if (lay == common.layouts.end() || lay->second == lies) {
      wished.wishes.push_back({{name, piece.begin, piece.end}, bytes_of(piece.velocity)});
      continue;
    }
    WholeMomentum& whole = momentum->whole[piece.parameter];
    if (whole.row.defined()) continue;
    whole = {lay->second, lies, at::empty({parameter.tensor.numel()}, piece.velocity.options())};
    wished.wishes.push_back(
        {{name, 0, static_cast<std::uint64_t>(parameter.tensor.numel())}, bytes_of(whole.row)});
  }
  wished.take = [momentum] { cut_momentum(*momentum); };
  return wished;
}

}  // namespace

CheckpointItem local_optimizer_item(CheckpointItem item, MultiNodeOptimizer& optimizer) {
  const auto common = std::make_shared<Common>();
  item.scope = ItemScope::kPerRank;
  item.save = [&optimizer, save = std::move(item.save)] { return save_of_node(optimizer, save); };
  item.load = [&optimizer, common, load = std::move(item.load)](const SavedStates& saved) {
    load_of_node(optimizer, saved, load, *common);
  };
  item.finish = [&optimizer, common, finish = std::move(item.finish)] {
    go_on(optimizer, common->counts, finish);
  };
  item.save_parts = [&optimizer] { return save_momentum(optimizer); };
  item.wish_parts = [&optimizer, common](const PartTensors& saved) {
    return wish_momentum(optimizer, *common, saved);
  };
  return item;
}

}  // namespace chainmail::internal
