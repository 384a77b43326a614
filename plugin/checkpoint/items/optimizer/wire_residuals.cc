// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/checkpoint/items/optimizer/wire_residuals.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <c10/util/StringUtil.h>
#include <c10/util/accumulate.h>

#include "base/log.h"
#include "plugin/checkpoint/items/optimizer/optimizer_parts.h"
#include "plugin/checkpoint/items/state_entries.h"
#include "plugin/checkpoint/items/values.h"
#include "plugin/train/communicator/communicator_impl.h"
#include "plugin/train/local_steps/local_access.h"
#include "plugin/train/local_steps/local_residuals.h"
#include "plugin/train/wire/gradient_residuals.h"
#include "plugin/train/wire/wire_choice.h"

namespace chainmail::internal {

namespace {

constexpr const char* kJobLayout = "layout";
constexpr const char* kExchanges = "exchanges";
/// In a state that says how elements of parameters lie, where that is not row by row.
constexpr const char* kSaysOrders = "says orders";
/// That the optimizer averaged over; in the state of each that has something.
constexpr const char* kRanks = "ranks";
// Of a parameter: in which order rows have its elements.
std::string order_of(const std::string& parameter) { return "parameter/" + parameter + '/'; }
// Elements of a page: what a rank does not round is pages of zeros.
constexpr std::int64_t kPage = 1024;
constexpr auto kMostElements = static_cast<std::int64_t>(kMaxRangeBytes / sizeof(float));

/// Whose row a tensor in parts is a piece of, and where that piece begins.
struct PieceName {
  int rank = 0;
  std::string kind;
  std::string parameter;
  std::int64_t begin = 0;
};

constexpr std::string_view kRank = "rank ";
constexpr std::string_view kFrom = "/from ";

// "rank 3/results/l1.weight/from 4096"
std::string to_text(const PieceName& name) {
  return std::string(kRank) + std::to_string(name.rank) + '/' + name.kind + '/' + name.parameter +
         std::string(kFrom) + std::to_string(name.begin);
}

template <typename Number>
bool read_number(std::string_view text, Number& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() && number >= 0;
}

std::optional<PieceName> parse_piece(std::string_view text) {
  PieceName name;
  const std::size_t from = text.rfind(kFrom);
  if (!text.starts_with(kRank) || from == std::string_view::npos) return std::nullopt;
  if (!read_number(text.substr(from + kFrom.size()), name.begin)) return std::nullopt;
  text = text.substr(kRank.size(), from - kRank.size());
  const std::size_t kind = text.find('/');
  const std::size_t parameter = kind == std::string_view::npos ? kind : text.find('/', kind + 1);
  if (parameter == std::string_view::npos) return std::nullopt;
  if (!read_number(text.substr(0, kind), name.rank)) return std::nullopt;
  name.kind = text.substr(kind + 1, parameter - kind - 1);
  name.parameter = text.substr(parameter + 1);
  return name;
}

// Calls take(begin, end) for what is not pages of zeros.
void for_each_run(const at::Tensor& values,
                  const std::function<void(std::int64_t begin, std::int64_t end)>& take) {
  const std::span<const float> all(values.const_data_ptr<float>(),
                                   static_cast<std::size_t>(values.numel()));
  const auto is_zeros = [&](std::int64_t begin) {
    const auto page = all.subspan(static_cast<std::size_t>(begin));
    return std::ranges::all_of(page.first(std::min<std::size_t>(page.size(), kPage)),
                               [](float value) { return value == 0; });
  };
  const std::int64_t count = values.numel();
  for (std::int64_t at = 0; at < count;) {
    const std::int64_t begin = at;
    while (at < count && at - begin < kMostElements && !is_zeros(at)) at += kPage;
    if (at > begin) {
      take(begin, std::min(at, count));
    } else {
      at += kPage;
    }
  }
}

RankParts save_rows(const KeptResiduals& kept, int rank) {
  const at::NoGradGuard no_grad;
  RankParts parts;
  parts.slice = static_cast<std::uint64_t>(rank);
  for (const KeptRow& row : kept.rows()) {
    for_each_run(row.values, [&](std::int64_t begin, std::int64_t end) {
      const std::string name = to_text({rank, row.kind, row.parameter, row.begin + begin});
      const at::Tensor values = row.values.narrow(0, begin, end - begin);
      parts.entries.set_tensor(range_name({name, 0, static_cast<std::uint64_t>(end - begin)}),
                               row.factor == 1 ? values : values * row.factor);
      parts.elements[name] = static_cast<std::uint64_t>(end - begin);
    });
  }
  return parts;
}

/// What the ranks of the job that saved have said.
struct Saved {
  std::vector<std::string> layouts;  ///< of each rank of the job
  int ranks = 1;
  std::vector<std::int64_t> exchanges;  ///< of this rank's row, in a job of as many
  bool says_orders = false;
  std::map<std::string, MemoryLayout> orders;  ///< by parameter, where not row by row

  bool is_of(const std::string& layout, int size) const {
    return ranks == size &&
           std::ranges::all_of(layouts, [&](const std::string& of) { return of == layout; });
  }
};

const std::vector<NamedTensor>& parameters_of(const MultiNodeOptimizer& optimizer) {
  return LocalAccess::model(optimizer).gradients().parameters();
}

void save_orders(const MultiNodeOptimizer& optimizer, const KeptResiduals& kept,
                 CheckpointState& state) {
  state.set_integer(kSaysOrders, 1);
  for (const NamedTensor& parameter : parameters_of(optimizer)) {
    const MemoryLayout* const lies = kept.lies(parameter.name);
    if (lies != nullptr) save_unusual_layout(state, order_of(parameter.name), *lies);
  }
}

Saved read_saved(const MultiNodeOptimizer& optimizer, const SavedStates& states) {
  Saved saved;
  for (const CheckpointState& rank : states.ranks) {
    if (!rank.has(kSaysOrders)) continue;
    saved.says_orders = true;
    for (const NamedTensor& parameter : parameters_of(optimizer)) {
      auto order = saved_layout(rank, order_of(parameter.name));
      if (order) saved.orders.insert_or_assign(parameter.name, *std::move(order));
    }
  }
  for (const CheckpointState& rank : states.ranks) {
    saved.layouts.push_back(rank.has(kJobLayout) ? rank.text(kJobLayout) : "");
    if (rank.has(kRanks)) saved.ranks = std::max(1, static_cast<int>(rank.integer(kRanks)));
  }
  if (states.own().has(kExchanges)) get(states.own(), kExchanges, saved.exchanges);
  return saved;
}

[[noreturn]] void refuse(const std::string& tensor) {
  throw CheckpointError("'" + tensor + "' in the checkpoint is nothing that rounding has lost");
}

class Reading {
 public:
  Reading(KeptResiduals& kept, Saved saved, int rank, int ranks)
      : kept_(kept),
        saved_(std::move(saved)),
        rank_(rank),
        is_same_(saved_.is_of(kept.layout(), ranks)) {}

  /// Of a parameter whose rows have its elements as `now` says.
  void expect_order(const std::string& parameter, const MemoryLayout& now) {
    if (!saved_.says_orders) return;
    const auto found = saved_.orders.find(parameter);
    MemoryLayout saved =
        found == saved_.orders.end() ? contiguous_layout(now.sizes) : found->second;
    if (saved == now) return;
    if (saved.sizes != now.sizes) {
      throw CheckpointError("parameter '" + parameter + "' is of shape " +
                            c10::str(c10::IntArrayRef(saved.sizes)) + " in the checkpoint, of " +
                            c10::str(c10::IntArrayRef(now.sizes)) + " in the program");
    }
    is_same_ = false;
    changed_.emplace(parameter, Change{std::move(saved), now});
  }

  void wish(const std::string& tensor, const PartTensor& part) {
    const std::optional<PieceName> name = parse_piece(tensor);
    if (!name || part.is_shared || part.type == EntryType::kBytes ||
        scalar_type_of(part.type) != c10::kFloat) {
      refuse(tensor);
    }
    constexpr auto kMost = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
    if (part.elements > kMost - static_cast<std::uint64_t>(name->begin)) refuse(tensor);
    has_any_ = true;
    const KeptResiduals::Place place{
        name->kind,
        name->parameter,
        {name->begin, name->begin + static_cast<std::int64_t>(part.elements)},
        changed_.contains(name->parameter)};
    std::vector<KeptResiduals::Range> ranges;
    if (!kept_.takes(place)) {
      lost_.insert(name->parameter);
    } else if (!is_same_) {
      ranges = kept_.wants(name->rank, place);
    } else if (name->rank == rank_) {
      if (!kept_.has(place)) refuse(tensor);
      ranges = {place.elements};
    }
    for (const auto& [begin, end] : ranges) {
      rows_.push_back({name->kind, name->parameter, begin, at::empty({end - begin}, at::kFloat)});
      const at::Tensor& values = rows_.back().values;
      wishes_.push_back({{tensor, static_cast<std::uint64_t>(begin - name->begin),
                          static_cast<std::uint64_t>(end - name->begin)},
                         {static_cast<std::byte*>(values.mutable_data_ptr()), values.nbytes()}});
    }
  }
  std::vector<PartWish> take_wishes() { return std::move(wishes_); }
  /// Parameters of which the job cannot pay what is owed.
  const std::set<std::string>& lost() const noexcept { return lost_; }

  void take() {
    const at::NoGradGuard no_grad;
    kept_.clear();
    if (has_any_) kept_.expect_debts();
    if (is_same_) kept_.set_exchanges(saved_.exchanges);
    reorder();
    for (const KeptRow& row : rows_) is_same_ ? kept_.put(row) : kept_.owe(row, saved_.ranks);
  }

 private:
  /// Of the order of a parameter's elements in rows.
  struct Change {
    MemoryLayout saved;
    MemoryLayout now;
  };

  // All rows of a kind of a parameter whose elements lie elsewhere now become one.
  void reorder() {
    std::map<std::pair<std::string, std::string>, at::Tensor> sums;
    std::erase_if(rows_, [&](const KeptRow& row) {
      const auto change = changed_.find(row.parameter);
      if (change == changed_.end()) return false;
      at::Tensor& sum = sums[{row.kind, row.parameter}];
      if (!sum.defined()) {
        sum = at::zeros({c10::multiply_integers(change->second.now.sizes)}, at::kFloat);
      }
      sum.narrow(0, row.begin, row.values.numel()).add_(row.values);
      return true;
    });
    for (const auto& [name, sum] : sums) {
      const auto& [kind, parameter] = name;
      const Change& change = changed_.at(parameter);
      rows_.push_back({kind, parameter, 0, reordered(sum, change.saved, change.now)});
    }
  }

  KeptResiduals& kept_;
  Saved saved_;
  int rank_;
  bool is_same_;
  std::map<std::string, Change> changed_;  ///< by parameter
  std::vector<KeptRow> rows_;
  std::vector<PartWish> wishes_;
  std::set<std::string> lost_;
  bool has_any_ = false;
};

bool rounds_to_integers(const MultiNodeOptimizer& optimizer) {
  const auto& wire = LocalAccess::model(optimizer).options().wire;
  return wire && (wire == kAutoWire || ops::is_in_blocks(ops::parse_wire_format(*wire)));
}

std::shared_ptr<KeptResiduals> kept_by(MultiNodeOptimizer& optimizer) {
  ModelExchange& model = LocalAccess::model(optimizer);
  if (LocalStepping* const stepping = LocalAccess::stepping(optimizer)) {
    return std::make_shared<LocalResiduals>(model, *stepping);
  }
  return std::make_shared<GradientResiduals>(model);
}

void warn_of(const std::set<std::string>& lost, const std::string& item) {
  if (lost.empty()) return;
  LogMessage(LogLevel::kWarning)
      << "'" << item << "': the checkpoint has what an integer wire has still to pay of '"
      << *lost.begin() << "'"
      << (lost.size() == 1 ? "" : " and " + std::to_string(lost.size() - 1) + " more parameters")
      << ", and this job cannot pay it: it is dropped. Jobs that train these parameters can, with "
         "a communicator other than 'naive', without shards, and what local steps owe from "
         ".local_steps.start on";
}

}  // namespace

CheckpointItem wire_residuals_item(const std::string& optimizer_name,
                                   MultiNodeOptimizer& optimizer) {
  const std::shared_ptr<KeptResiduals> kept = kept_by(optimizer);
  const bool is_rounding = rounds_to_integers(optimizer);
  const auto saved = std::make_shared<Saved>();
  CheckpointItem item;
  item.name = optimizer_name + " wire";
  item.scope = ItemScope::kPerRank;
  item.has_parts_in_all_sets = true;
  item.job_ranks = LocalAccess::model(optimizer).communicator().impl().world_ranks;
  item.save = [kept, is_rounding, &optimizer] {
    CheckpointState state;
    if (!is_rounding && kept->rows().empty()) return state;
    const Communicator& communicator = LocalAccess::model(optimizer).communicator();
    state.set_integer(kRanks, communicator.size());
    if (communicator.rank() == 0 || !is_rounding) save_orders(optimizer, *kept, state);
    if (!is_rounding) return state;  // it owes what another job has rounded
    state.set_text(kJobLayout, kept->layout());
    put(state, kExchanges, kept->exchanges());
    return state;
  };
  item.load = [saved, &optimizer](const SavedStates& states) {
    *saved = read_saved(optimizer, states);
  };
  item.save_parts = [kept, &optimizer] {
    return save_rows(*kept, LocalAccess::model(optimizer).communicator().rank());
  };
  item.wish_parts = [kept, saved, &optimizer, name = item.name](const PartTensors& tensors) {
    const Communicator& communicator = LocalAccess::model(optimizer).communicator();
    const auto reading =
        std::make_shared<Reading>(*kept, *saved, communicator.rank(), communicator.size());
    for (const NamedTensor& parameter : parameters_of(optimizer)) {
      const MemoryLayout* const lies = kept->lies(parameter.name);
      if (lies != nullptr) reading->expect_order(parameter.name, *lies);
    }
    for (const auto& [tensor, part] : tensors) reading->wish(tensor, part);
    if (communicator.rank() == 0) warn_of(reading->lost(), name);
    return PartWishes{reading->take_wishes(), [reading] { reading->take(); }};
  };
  return item;
}

}  // namespace chainmail::internal
