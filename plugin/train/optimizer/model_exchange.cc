// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/train/optimizer/model_exchange.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <exception>
#include <iterator>
#include <numeric>
#include <string>
#include <utility>

#include <ATen/ATen.h>
#include <c10/util/StringUtil.h>

#include "base/log.h"
#include "plugin/train/communicator/communicator_impl.h"
#include "plugin/train/local_steps/schedule.h"
#include "plugin/train/sharding/memory_ties.h"
#include "plugin/train/shards/shard_progress.h"
#include "plugin/train/wire/wire_choice.h"

namespace chainmail::internal {

namespace {

std::int64_t default_bucket_bytes(const std::vector<NamedTensor>& parameters) {
  std::int64_t total = 0;
  for (const NamedTensor& parameter : parameters) {
    total += static_cast<std::int64_t>(parameter.tensor.nbytes());
  }
  return std::clamp(total / 16, std::int64_t{1} << 20, std::int64_t{4} << 20);
}

// The shortest text that is read as this number again.
std::string option_text(double value) {
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  return {text.data(), end};
}

std::string option_text(Sharding shard) {
  constexpr std::array kNames{"Sharding::kNone", "Sharding::kNode", "Sharding::kAll"};
  return kNames.at(static_cast<std::size_t>(shard));
}

std::string option_text(const LossScaler* scaler) {
  if (scaler == nullptr) return "none";
  const LossScalerOptions& options = scaler->options();
  return "{growth_factor " + option_text(options.growth_factor) + ", backoff_factor " +
         option_text(options.backoff_factor) + ", growth_interval " +
         std::to_string(options.growth_interval) + "}";
}

// A line each. Of what ranks may write differently only what comes of it is compared.
std::vector<std::string> option_lines(const MultiNodeOptimizerOptions& options, bool overlaps) {
  std::vector<std::string> lines;
  const auto add = [&](const char* name, const std::string& value) {
    lines.push_back(std::string(kOptionLine) + name + " = " + value);
  };
  const auto add_bool = [&](const char* name, bool value) { add(name, value ? "true" : "false"); };
  add("model", options.model ? "given" : "none");
  add_bool("zero_fill", options.zero_fill);
  add_bool("overlap", overlaps);
  add("bucket_bytes", options.bucket_bytes ? std::to_string(*options.bucket_bytes) : "unset");
  add("first_bucket_bytes", std::to_string(options.first_bucket_bytes));
  add_bool("double_buffering", options.double_buffering);
  add("max_grad_norm", option_text(options.max_grad_norm));
  add_bool("use_fused_step", options.use_fused_step);
  add_bool("skip_nonfinite", options.skip_nonfinite);
  add("loss_scaler", option_text(options.loss_scaler.get()));
  add("shard", option_text(options.shard));
  add_bool("is_elementwise", options.is_elementwise);
  add_bool("share_parameters", options.share_parameters);
  add_bool("free_gradients", options.free_gradients);
  add("wire", options.wire.value_or("unset"));
  add("local_steps", options.local_steps ? describe(*options.local_steps) : "unset");
  return lines;
}

}  // namespace

void check_options(const MultiNodeOptimizerOptions& options) {
  if (options.bucket_bytes.value_or(0) < 0 || options.first_bucket_bytes < 0 ||
      options.max_grad_norm < 0) {
    throw InvalidArgument(
        "bucket_bytes, first_bucket_bytes and max_grad_norm must not be negative");
  }
  check_local_steps(options);
  if (options.shard != Sharding::kNode && options.share_parameters) {
    throw InvalidArgument(
        "share_parameters goes with Sharding::kNode, where the ranks of a node step all of its "
        "parameters: set .shard, or leave .share_parameters out");
  }
  if (options.shard == Sharding::kNone && options.free_gradients) {
    throw InvalidArgument(
        "free_gradients goes with Sharding::kNode and kAll, where a rank steps a part of the "
        "parameters: set .shard, or leave .free_gradients out");
  }
  if (options.wire == kAutoWire) {
    if (options.shard != Sharding::kNone || options.local_steps) {
      throw InvalidArgument(
          "wire = \"auto\" makes buckets anew when it has chosen, and goes neither with .shard nor "
          "with .local_steps: name a wire, such as \"int8\"");
    }
  } else if (options.wire) {
    try {
      static_cast<void>(ops::parse_wire_format(*options.wire));
    } catch (const InvalidArgument& error) {
      throw InvalidArgument(std::string(".wire: ") + error.what() + ", auto");
    }
  }
  if (!options.free_gradients) return;
  if (options.double_buffering) {
    throw InvalidArgument(
        "free_gradients and double_buffering: one has the memory of a few buckets, the other twice "
        "that of all; leave one of them out");
  }
  if (!options.overlap.value_or(true) || options.bucket_bytes.value_or(1) == 0) {
    throw InvalidArgument(
        "free_gradients frees buckets while backward goes on: leave .overlap = false and "
        ".bucket_bytes = 0 out");
  }
}

ModelExchange::ModelExchange(std::shared_ptr<Communicator> communicator,
                             MultiNodeOptimizerOptions options, torch::optim::Optimizer* optimizer)
    : communicator_(std::move(communicator)),
      options_(std::move(options)),
      optimizer_(optimizer),
      taker_(std::make_shared<const GradientTaker>(
          GradientTaker{optimizer != nullptr, options_.shard != Sharding::kNone})) {
  if (options_.wire == kAutoWire) auto_.emplace(*communicator_);
  if (ShardProgress* const shards = communicator_->impl().shards.get()) {
    shards->models.push_back(this);
  }
}

ModelExchange::~ModelExchange() {
  if (ShardProgress* const shards = communicator_->impl().shards.get()) {
    std::erase(shards->models, this);
  }
}

void ModelExchange::enter_world() {
  steps_ = 0;
  if (auto_) auto_->begin(steps_);
  make_exchange(std::vector<NamedTensor>(trainable_), {});
}

void ModelExchange::check_turn(const char* call, bool or_between) const {
  const ShardProgress* const shards = communicator_->impl().shards.get();
  if (shards == nullptr || shards->is_committing || (or_between && !shards->is_in_step)) return;
  throw InvalidArgument(
      std::string(call) +
      " by hand: in a job of shards Step::commit() exchanges the gradients, steps "
      "the optimizer and drops them");
}

bool ModelExchange::is_current() {
  return parameter_signature(options_.model, optimizer_) == signature_ && !has_new_tie();
}

bool ModelExchange::has_new_tie() {
  std::vector<const void*> now = addresses_of(untied_);
  if (now == addresses_) return false;
  if (find_memory_tie(untied_, /*of_trained_only=*/true)) return true;
  addresses_ = std::move(now);
  return false;
}

double ModelExchange::parts_of_mean() const {
  const int nodes = averaged_over_ ? communicator_->inter_size() : 1;
  return static_cast<double>(averaged_over().size()) * nodes;
}

Communicator& ModelExchange::averaged_over() const noexcept {
  return averaged_over_ ? *averaged_over_ : *communicator_;
}

void ModelExchange::average_over(std::shared_ptr<Communicator> communicator,
                                 std::shared_ptr<Communicator> other) {
  averaged_over_ = std::move(communicator);
  compared_over_ = std::move(other);
}

void ModelExchange::renew_exchange() {
  make_exchange(std::vector<NamedTensor>(trainable_), std::vector<std::size_t>(order_));
}

void ModelExchange::expect_debts() {
  expects_debts_ = true;
  exchange_->expect_debts();
}

bool ModelExchange::overlaps() const {
  return options_.overlap.value_or(averaged_over().inter_size() > 1 || options_.free_gradients) &&
         options_.bucket_bytes.value_or(1) > 0;
}

// With shards a step ends with its exchange, so that it counts on all ranks or on none.
bool ModelExchange::learns_order() const {
  return overlaps() && !options_.double_buffering && !communicator_->impl().shards && !keeps_order_;
}

void ModelExchange::use_slices(SliceKind kind, bool keeps_order, SliceListener listener) {
  slices_ = kind;
  keeps_order_ = keeps_order;
  listener_ = std::move(listener);
}

void ModelExchange::adopt_all(const std::function<void()>& before) {
  check_no_means();
  Found found = examine();
  if (before) before();
  known_.clear();  // so that all counts as new
  adopt(std::move(found));
}

// Before anything else happens: what is refused changes nothing.
void ModelExchange::check_no_means() const {
  if (slices_ == SliceKind::kNone || !exchange_ || !exchange_->is_done()) return;
  throw InvalidArgument(
      "the model or what it trains has changed, or synchronize() is called, between backward() "
      "and step(): in a sharded optimizer the means are in slices of the old parameters; do that "
      "after step(), or call zero_grad() before to drop them");
}

std::optional<ops::WireFormat> ModelExchange::integer_wire() const {
  if (auto_ || !options_.wire) return std::nullopt;
  const ops::WireFormat wire = ops::parse_wire_format(*options_.wire);
  return ops::is_in_blocks(wire) ? std::optional(wire) : std::nullopt;
}

// What is refused here changes nothing, and on all ranks, since all have found the same before.
ModelExchange::Found ModelExchange::examine() {
  Found found;
  found.parameters = collect_parameters(options_.model, optimizer_);
  std::copy_if(found.parameters.begin(), found.parameters.end(),
               std::back_inserter(found.trainable),
               [](const NamedTensor& named) { return named.tensor.requires_grad(); });
  found.buffers = collect_buffers(options_.model);
  std::vector<std::string> described = option_lines(options_, overlaps());
  for (std::string& line : describe_training_state(found.parameters, found.buffers, optimizer_)) {
    described.push_back(std::move(line));
  }
  if (auto_ || integer_wire()) describe_devices(found.trainable, described);
  const bool has_stray =
      communicator_->impl().packs() && find_on_other_device(found.trainable) != nullptr;
  if (has_stray) described.emplace_back("parameters on several devices");
  const std::vector<NamedTensor>& untied =
      options_.share_parameters ? found.parameters : found.trainable;
  std::string tied;
  if (options_.shard != Sharding::kNone) {
    if (const auto tie = find_memory_tie(untied, /*of_trained_only=*/true)) {
      tied = describe_memory_tie(untied[tie->first].name, untied[tie->second].name);
      described.push_back(tied);
    }
  }
  const std::optional<std::string> taken = taken_by_another(found.trainable);
  if (taken) described.push_back("parameter '" + *taken + "' of another multi-node optimizer");
  // Where others see it that still average gradients.
  for (const auto& some : {averaged_over_, compared_over_}) {
    if (some) compare_among_some(*some, described);
  }
  compare_between_ranks(*communicator_, described, described_);
  if (taken) {
    throw InvalidArgument(
        "parameter '" + *taken +
        "' is trained by another multi-node optimizer, too, and one of the two is sharded: it "
        "takes the gradients of backward() into its slices, and the other would step without any; "
        "give each parameters of its own, with .model as the part that it trains, or without, or "
        "end the other one before");
  }
  if (auto_) AutoWire::check(found.trainable);
  if (const auto wire = integer_wire()) {
    for (const NamedTensor& parameter : found.trainable) check_on_host(parameter, *wire);
  }
  if (has_stray) static_cast<void>(device_of(found.trainable));  // throws
  if (listener_.check) listener_.check(found.trainable);
  check_receivable("parameter", found.parameters);
  check_receivable("buffer", found.buffers);
  if (!tied.empty()) {
    refuse_memory_tie(options_.share_parameters ? "share_parameters" : "a sharded optimizer", tied,
                      ", or use Sharding::kNone");
  }
  check_adopted();
  described_ = std::move(described);
  if (options_.shard != Sharding::kNone) untied_ = untied;
  return found;
}

// The others, which have found nothing among themselves, would learn only that these have gone.
void ModelExchange::compare_among_some(Communicator& some, const std::vector<std::string>& lines) {
  try {
    compare_between_ranks(some, lines, described_);
  } catch (const MismatchError&) {
    communicator_->impl().group->abort(std::current_exception());
    throw;
  }
}

// A DistributedModel loses nothing: what it has averaged is averaged again, or not at all by it.
std::optional<std::string> ModelExchange::taken_by_another(
    const std::vector<NamedTensor>& trainable) const {
  for (const NamedTensor& parameter : trainable) {
    const GradientTaker* const other = taker_of(parameter.tensor);
    if (other == nullptr || other == taker_.get()) continue;
    if (other->is_optimizer && taker_->is_optimizer &&
        (other->leaves_slices || taker_->leaves_slices)) {
      return parameter.name;
    }
  }
  return std::nullopt;
}

void ModelExchange::check_adopted() const {
  if (options_.shard == Sharding::kNone) return;
  const auto has_state = [&](const at::Tensor& parameter) {
    return optimizer_->state().count(parameter.unsafeGetTensorImpl()) != 0;
  };
  for (const auto& [named, is_trained, sizes, dtype, device] : adopted_) {
    const at::Tensor& now = named.tensor;
    if (!is_trained && !has_state(now)) continue;
    if (now.sizes() != sizes) {
      refuse_changed(named.name, c10::str(c10::IntArrayRef(sizes)), c10::str(now.sizes()));
    }
    if (now.device() != device) refuse_changed(named.name, device.str(), now.device().str());
    if (now.scalar_type() == dtype || !exchange_->has_last()) continue;
    throw InvalidArgument("parameter '" + named.name + "' is of type " +
                          c10::toString(now.scalar_type()) + " now, and its mean on its way " +
                          c10::toString(dtype) +
                          ": convert parameters of a sharded optimizer after flush()");
  }
}

// Broadcasts what is new since the last time.
void ModelExchange::adopt(Found found) {
  adopted_.clear();
  for (const NamedTensor& named : found.parameters) {
    const at::Tensor& tensor = named.tensor;
    adopted_.push_back({named, tensor.requires_grad(), tensor.sizes().vec(), tensor.scalar_type(),
                        tensor.device()});
  }
  std::vector<NamedTensor> now = std::move(found.parameters);
  now.insert(now.end(), found.buffers.begin(), found.buffers.end());
  if (listener_.before_broadcast) listener_.before_broadcast();
  std::vector<at::Tensor> added;
  for (const NamedTensor& named : now) {
    if (std::none_of(known_.begin(), known_.end(),
                     [&](const NamedTensor& old) { return old.tensor.is_same(named.tensor); })) {
      added.push_back(named.tensor.detach());
    }
  }
  communicator_->bcast(added);
  if (listener_.after_broadcast) listener_.after_broadcast(found.trainable);
  known_ = std::move(now);
  order_.clear();
  if (auto_) auto_->begin(steps_);
  make_exchange(std::move(found.trainable), {});
  knows_order_ = !learns_order();
  signature_ = parameter_signature(options_.model, optimizer_);
}

void ModelExchange::make_exchange(std::vector<NamedTensor> trainable,
                                  std::vector<std::size_t> order) {
  ExchangeOptions how;
  how.zero_fill = options_.zero_fill;
  how.overlaps = overlaps();
  how.double_buffering = options_.double_buffering;
  how.bucket_bytes = options_.bucket_bytes.value_or(default_bucket_bytes(trainable));
  how.first_bucket_bytes = options_.first_bucket_bytes;
  how.step = steps_;
  how.is_current = [this] { return is_current(); };
  how.slices = slices_;
  how.is_over_nodes = options_.shard == Sharding::kAll;
  how.frees_gradients = options_.free_gradients;
  how.taker = taker_;
  if (auto_) {
    how.wire = auto_->wire();
    how.least_rounded_bytes = AutoWire::kLeastRoundedBytes;
  } else if (options_.wire) {
    how.wire = ops::parse_wire_format(*options_.wire);
  }
  if (const auto scaler = options_.loss_scaler) {
    how.loss_scale = [scaler] { return scaler->get_scale(); };
  }
  // A world that is over before its exchange is made leaves none; the next one needs these.
  trainable_ = trainable;
  if (listener_.before_change && exchange_) listener_.before_change();
  std::vector<Debt> debts = exchange_ ? exchange_->take_debts() : std::vector<Debt>();
  const double parts_before = std::exchange(parts_, parts_of_mean());
  for (Debt& debt : debts) debt.owed = debt.owed * (parts_ / parts_before);
  exchange_.reset();  // its hooks and memory first
  exchange_ = std::make_unique<GradientExchange>(averaged_over(), std::move(trainable),
                                                 std::move(order), std::move(how));
  if (expects_debts_) exchange_->expect_debts();
  exchange_->owe(debts);
  exchange_->set_enabled(is_enabled());
  if (communicator_->rank() == 0) {
    LogMessage(LogLevel::kInfo) << "gradients of " << exchange_->parameters().size()
                                << " parameters in " << exchange_->bucket_count() << " buckets of "
                                << exchange_->bytes() << " bytes together"
                                << (overlaps() ? ", sent while backward computes" : "")
                                << (options_.double_buffering ? ", applied one step later" : "")
                                << (averaged_over_ ? ", averaged inside each node" : "")
                                << (options_.model ? ""
                                                   : "; of no model, so no buffers are broadcast");
  }
}

bool ModelExchange::follow_model(const std::function<void()>& use_last) {
  if (is_current()) return false;
  check_no_means();
  Found found = examine();
  std::vector<at::Tensor> own;
  for (const NamedTensor& parameter : exchange_->parameters()) {
    own.push_back(parameter.tensor.grad());
  }
  const bool has_last = exchange_->take_last();
  if (has_last) {
    use_last();
    for (std::size_t i = 0; i < own.size(); ++i) {
      exchange_->parameters()[i].tensor.mutable_grad() = own[i];
    }
  }
  adopt(std::move(found));
  return has_last;
}

void ModelExchange::count_step() noexcept {
  exchange_->count_step();
  ++steps_;
}

// As rank 0 saw it.
void ModelExchange::take_observed_order() {
  if (std::exchange(knows_order_, true)) return;
  const std::size_t count = exchange_->parameters().size();
  std::vector<std::size_t> order = communicator_->bcast_obj(exchange_->observed_order());
  std::vector<char> is_known(count);
  for (const std::size_t parameter : order) is_known.at(parameter) = 1;
  for (std::size_t p = count; p-- > 0;) {  // those without a gradient in that step come last
    if (is_known[p] == 0) order.push_back(p);
  }
  order_ = order;
  make_exchange(exchange_->parameters(), std::move(order));
}

std::optional<ops::WireFormat> ModelExchange::choose_wire() {
  if (!auto_) return std::nullopt;
  const std::size_t bytes = exchange_->bytes() / (options_.double_buffering ? 2 : 1);
  return auto_->choose(averaged_over(), *exchange_, bytes, steps_);
}

void ModelExchange::use_wire(ops::WireFormat wire) {
  if (wire == auto_->wire()) return;
  auto_->use(wire, steps_);
  renew_exchange();
}

void ModelExchange::use_order(std::vector<std::size_t> order) {
  std::vector<std::size_t> sorted = order;
  std::sort(sorted.begin(), sorted.end());
  std::vector<std::size_t> all(exchange_->parameters().size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  if (!learns_order() || order.empty() || sorted != all || order == order_) return;
  knows_order_ = true;
  order_ = order;
  make_exchange(exchange_->parameters(), std::move(order));
}

void ModelExchange::add_syncs_off(int change) noexcept {
  syncs_off_ += change;
  exchange_->set_enabled(is_enabled());
}

}  // namespace chainmail::internal
