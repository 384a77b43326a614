// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/train/gradients/gradient_exchange.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iterator>
#include <numeric>
#include <utility>

#include <ATen/ATen.h>

#include "plugin/job/torch_group.h"
#include "plugin/train/communicator/communicator_impl.h"
#include "plugin/train/gradients/bucket_plan.h"
#include "plugin/train/gradients/plain_exchange.h"

namespace chainmail::internal {

namespace {

// Adds the time until its end to what a communicator has waited.
class WaitClock {
 public:
  explicit WaitClock(Communicator& communicator) : communicator_(communicator) {}
  WaitClock(const WaitClock&) = delete;
  WaitClock& operator=(const WaitClock&) = delete;
  ~WaitClock() { communicator_.impl().waited += std::chrono::steady_clock::now() - begin_; }

 private:
  Communicator& communicator_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

void check_shard_options(const ExchangeOptions& options) {
  if (options.zero_fill && !options.double_buffering) return;
  throw InvalidArgument(std::string("a job of shards has no ") +
                        (options.zero_fill ? "double buffering" : "zero_fill = false") +
                        ": what a step changes must not depend on who computed which shards of it");
}

}  // namespace

GradientExchange::GradientExchange(Communicator& communicator, std::vector<NamedTensor> parameters,
                                   std::vector<std::size_t> order, ExchangeOptions options)
    : communicator_(&communicator),
      parameters_(std::move(parameters)),
      options_(std::move(options)),
      wire_(options_.wire.value_or(communicator.impl().group->options().wire)),
      places_(parameters_.size()),
      is_ready_(parameters_.size()),
      pool_(options_.frees_gradients ? std::make_shared<BucketPool>() : nullptr),
      number_{.step = options_.step} {
  if (has_shards()) check_shard_options(options_);
  check_wire();
  if (communicator.impl().packs() || has_shards()) {
    if (order.empty()) {
      // Backward goes through most models from the last layer to the first.
      order.resize(parameters_.size());
      std::iota(order.rbegin(), order.rend(), std::size_t{0});
    }
    make_buckets(std::move(order));
  } else if (options_.double_buffering) {
    throw InvalidArgument(
        "communicator 'naive' exchanges gradients one by one and cannot double-buffer them; use "
        "'hierarchical' or another");
  }
  hooks_ = std::make_unique<GradientHooks>(
      parameters_, [this](std::size_t parameter) { on_ready(parameter); }, options_.taker);
  shards_ = communicator.impl().shards;
  if (shards_) shards_->exchanges.push_back(this);
}

GradientExchange::~GradientExchange() {
  if (shards_) std::erase(shards_->exchanges, this);
}

void GradientExchange::check_wire() const {
  const Communicator::Impl& impl = communicator_->impl();
  const std::string wire = std::string("the wire ") + ops::to_string(wire_);
  if (options_.wire && parse_torch_backend(impl.name) && wire_ != ops::WireFormat::kNative) {
    throw InvalidArgument(wire + ": communicator '" + impl.name +
                          "' is torch's own and sends gradients as they are; use one of "
                          "Chainmail's own");
  }
  if (options_.wire && !impl.packs()) {
    throw InvalidArgument(wire +
                          ": communicator 'naive' exchanges gradients one by one, as its "
                          "allreduce_grad_dtype says; use 'hierarchical' or another");
  }
  if (!ops::is_in_blocks(wire_)) return;
  if (has_shards()) {
    throw InvalidArgument(wire +
                          ": in a job of shards bits do not depend on who sums what, and "
                          "what this wire rounds away does; use float16 or bfloat16");
  }
  if (options_.slices == SliceKind::kWhole || options_.is_over_nodes) {
    throw InvalidArgument(wire +
                          ": what is rounded away is kept where slices of the ranks of a "
                          "node end within parameters; use Sharding::kNode with an "
                          "optimizer that works element by element, or another wire");
  }
}

std::vector<Debt> GradientExchange::take_debts() {
  const at::NoGradGuard no_grad;
  std::vector<Debt> debts;
  for (std::size_t b = 0; b < sets_[0].buckets.size(); ++b) {
    const GradientBucket& bucket = sets_[0].buckets[b];
    if (bucket.feedback()) {
      for (BucketSet& set : sets_) {
        if (b < set.buckets.size()) set.buckets[b].wait();
      }
      bucket.feedback()->give_to(bucket.debts(), communicator_->size());
    }
    std::vector<Debt> more = bucket.debts().take();
    std::ranges::move(more, std::back_inserter(debts));
  }
  return debts;
}

void GradientExchange::expect_debts() noexcept {
  for (const GradientBucket& bucket : sets_[0].buckets) bucket.debts().expect();
}

void GradientExchange::owe(const std::vector<Debt>& debts) {
  const at::NoGradGuard no_grad;
  for (const GradientBucket& bucket : sets_[0].buckets) {
    if (!bucket.pays_debts()) continue;
    for (const Debt& debt : debts) bucket.debts().owe(debt);
  }
}

std::size_t GradientExchange::wire_bytes() const noexcept {
  std::size_t sum = 0;
  if (communicator_->inter_size() == 1 || parse_torch_backend(communicator_->impl().name))
    return sum;
  for (const GradientBucket& bucket : sets_[0].buckets) sum += bucket.wire_bytes();
  return sum;
}

double GradientExchange::wire_error() const noexcept {
  ops::RoundingError sum;
  for (const GradientBucket& bucket : sets_[0].buckets) {
    if (!bucket.feedback()) continue;
    sum.given += bucket.feedback()->error().given;
    sum.lost += bucket.feedback()->error().lost;
  }
  return sum.given > 0 ? std::sqrt(sum.lost / sum.given) : 0;
}

void GradientExchange::make_buckets(std::vector<std::size_t> order) {
  std::vector<BucketItem> items;
  for (const std::size_t p : order) {
    const at::Tensor& tensor = parameters_[p].tensor;
    items.push_back({tensor.scalar_type(), static_cast<std::int64_t>(tensor.nbytes())});
  }
  const std::vector<std::vector<std::size_t>> plan =
      plan_buckets(items, {options_.overlaps ? options_.bucket_bytes : 0,
                           options_.overlaps ? options_.first_bucket_bytes : 0});
  const std::vector<std::size_t> owner_of = owners_of_whole();
  const auto context =
      order.empty() ? nullptr
                    : communicator_->impl().device_context_for_gradients(device_of(parameters_));
  for (std::size_t set = 0; set < (options_.double_buffering ? 2 : 1); ++set) {
    for (std::size_t b = 0; b < plan.size(); ++b) {
      std::vector<NamedTensor> members;
      std::vector<std::size_t> bucket;
      std::int64_t bytes = 0;
      for (const std::size_t item : plan[b]) {
        bucket.push_back(order[item]);
        bytes += items[item].bytes;
      }
      const ops::WireFormat wire =
          bytes < options_.least_rounded_bytes ? ops::WireFormat::kNative : wire_;
      if (ops::is_in_blocks(wire)) {
        std::ranges::stable_partition(
            bucket, [&](std::size_t p) { return is_rounded_to_integers(parameters_[p].tensor); });
      }
      const std::optional<SliceRule> rule = rule_for(bucket, owner_of);
      for (const std::size_t parameter : bucket) {
        places_[parameter] = {b, members.size()};
        members.push_back(parameters_[parameter]);
      }
      sets_[set].buckets.emplace_back(
          std::move(members), *communicator_->impl().group, wire, context,
          has_shards() ? communicator_->impl().shards->cut : nullptr, rule);
      if (set == 1) sets_[1].buckets[b].share_with(sets_[0].buckets[b]);
    }
  }
}

// Does not depend on the buckets: an owner keeps its state when they change.
std::vector<std::size_t> GradientExchange::owners_of_whole() const {
  if (options_.slices != SliceKind::kWhole) return {};
  std::vector<std::size_t> counts;
  for (const NamedTensor& parameter : parameters_) {
    counts.push_back(static_cast<std::size_t>(parameter.tensor.numel()));
  }
  return share_whole(
      counts, ops::slice_count(communicator_->impl().group->topology(), options_.is_over_nodes));
}

// Puts what an owner has of a bucket together.
std::optional<SliceRule> GradientExchange::rule_for(
    std::vector<std::size_t>& bucket, const std::vector<std::size_t>& owner_of) const {
  if (options_.slices == SliceKind::kNone) return std::nullopt;
  SliceRule rule;
  rule.pool = pool_;
  rule.is_over_nodes = options_.is_over_nodes;
  if (options_.slices == SliceKind::kWithin) return rule;
  std::ranges::stable_sort(bucket, {}, [&](std::size_t p) { return owner_of[p]; });
  for (const std::size_t parameter : bucket) rule.owners.push_back(owner_of[parameter]);
  return rule;
}

std::size_t GradientExchange::bytes() const noexcept {
  std::size_t sum = 0;
  for (const BucketSet& set : sets_) {
    for (const GradientBucket& bucket : set.buckets) sum += bucket.bytes();
  }
  return sum + (pool_ ? pool_->bytes() : 0);
}

void GradientExchange::on_ready(std::size_t parameter) {
  if (has_shards()) return take_of_shard(parameter);
  const bool is_sliced = options_.slices != SliceKind::kNone;
  if (is_done_ && (is_sliced || (options_.double_buffering && is_enabled_ && !is_open_))) {
    communicator_->impl().check_usable();
    throw InvalidArgument(std::string("a second backward before step(): with ") +
                          (is_sliced ? "a sharded optimizer" : "double buffering") +
                          " all but the last one of a step belong into no_sync(), and none comes "
                          "after that one");
  }
  if (!is_enabled_) {
    is_done_ = false;  // gradients are no longer the means of an earlier backward
    return;
  }
  if (!is_open_) {
    communicator_->impl().check_usable();
    open();
    at_end_of_backward([this] { end(); });
    is_deferred_ = options_.is_current && !options_.is_current();
  }
  if (is_deferred_ || sets_[current_].buckets.empty()) return;
  const Place place = places_[parameter];
  GradientBucket& bucket = sets_[current_].buckets[place.bucket];
  if (bucket.is_started()) {
    communicator_->impl().check_usable();
    throw InvalidArgument("the gradient of '" + parameters_[parameter].name +
                          "' came while it was being exchanged: an earlier backward ended with an "
                          "exception, after which zero_grad() of the multi-node optimizer is "
                          "needed, or one runs inside another, which needs no_sync()");
  }
  bucket.adopt(place.index);
  count_ready(parameter);
}

void GradientExchange::count_ready(std::size_t parameter) {
  if (std::exchange(is_ready_[parameter], 1) != 0) return;
  observed_.push_back(parameter);
  --pending_[places_[parameter].bucket];
  if (options_.overlaps && (!has_shards() || is_last_shard())) {
    std::size_t end_bucket = next_;
    while (end_bucket < pending_.size() && pending_[end_bucket] == 0) ++end_bucket;
    std::optional<WaitClock> clock;
    if (pool_) clock.emplace(*communicator_);  // for memory that earlier buckets have
    start_up_to(end_bucket, false);
  }
}

void GradientExchange::take_of_shard(std::size_t parameter) {
  const double weight = weight_of_shard();
  if (!is_enabled_) {
    throw InvalidArgument(
        "no_sync() around a shard: its gradients are exchanged with those of the step's last one "
        "anyway");
  }
  if (!is_open_) open_shard();
  const Place place = places_[parameter];
  GradientBucket& bucket = sets_[current_].buckets[place.bucket];
  if (bucket.is_started()) {
    communicator_->impl().check_usable();
    throw InvalidArgument("the gradient of '" + parameters_[parameter].name +
                          "' came twice in one backward, the second time while it was being "
                          "exchanged: where one backward runs inside another (activation "
                          "checkpointing), make the optimizer with .overlap = false");
  }
  bucket.adopt_of_shard(place.index, weight);
  count_ready(parameter);
}

void GradientExchange::open() {
  if (!has_shards()) {  // drop_shards() ends those
    for (GradientBucket& bucket : sets_[current_].buckets) bucket.drop();
  }
  is_open_ = true;
  is_deferred_ = false;
  observed_.clear();
  std::fill(is_ready_.begin(), is_ready_.end(), char{0});
  pending_.clear();
  for (const GradientBucket& bucket : sets_[current_].buckets) {
    pending_.push_back(bucket.parameters().size());
  }
  next_ = 0;
  if (shards_done_ == 0) ++number_.in_step;
}

void GradientExchange::open_shard() {
  communicator_->impl().check_usable();
  if (options_.is_current && !options_.is_current()) {
    throw InvalidArgument(
        "the parameters of the model have changed: call synchronize() of the optimizer, on all "
        "ranks, between two steps");
  }
  open();
}

bool GradientExchange::has_shards() const noexcept {
  return communicator_->impl().shards != nullptr;
}

double GradientExchange::weight_of_shard() const {
  const ShardProgress& shards = *communicator_->impl().shards;
  if (shards.own_shards() == 0) return 0;
  if (shards.weight) return *shards.weight;
  throw InvalidArgument(
      "a backward between shards: in a job of shards gradients come from Shard::backward() alone, "
      "once for each shard of the step");
}

bool GradientExchange::is_last_shard() const {
  return shards_done_ + 1 >= communicator_->impl().shards->own_shards();
}

// All ranks start the buckets in the same order, whatever backward finishes first.
void GradientExchange::start_up_to(std::size_t end_bucket, bool waits_for_last) {
  Communicator::Impl& impl = communicator_->impl();
  std::vector<GradientBucket>& buckets = sets_[current_].buckets;
  if (next_ == 0 && end_bucket > 0) sets_[current_].sent = std::chrono::steady_clock::now();
  for (; next_ < end_bucket; ++next_) {
    const bool is_async = !waits_for_last || next_ + 1 < end_bucket;
    if (pool_ && next_ >= BucketPool::kBuffers) buckets[next_ - BucketPool::kBuffers].wait();
    if (has_shards() && !buckets[next_].has_all_shards()) {
      buckets[next_].add_shard(weight_of_shard());
    }
    buckets[next_].start(*impl.group, number_, is_async,
                         options_.loss_scale ? options_.loss_scale() : 1.0);
  }
}

void GradientExchange::end() {
  is_open_ = false;
  if (std::exchange(is_deferred_, false)) {
    is_done_ = false;
    return;
  }
  communicator_->impl().check_usable();
  exchange();
}

// Unless it was this rank's last one, its gradients are put aside, and the next backward is that of
// the next shard.
void GradientExchange::end_shard() {
  if (!is_open_) open_shard();  // no parameter had part in its loss
  is_open_ = false;
  communicator_->impl().check_usable();
  const bool is_last = is_last_shard();
  ++shards_done_;
  if (is_last) return exchange();
  for (GradientBucket& bucket : sets_[current_].buckets) bucket.add_shard(weight_of_shard());
}

void GradientExchange::add_empty_shard() {
  if (shards_done_ == 0) ++number_.in_step;
  const bool is_last = is_last_shard();
  for (GradientBucket& bucket : sets_[current_].buckets) bucket.add_empty_shard();
  ++shards_done_;
  if (!is_last) return;
  next_ = 0;
  exchange();
}

void GradientExchange::drop_shards() {
  std::vector<GradientBucket>& buckets = sets_[current_].buckets;
  const bool has_begun = std::ranges::any_of(buckets, &GradientBucket::is_started);
  ops::Group& group = *communicator_->impl().group;
  if (has_begun && !group.error()) {
    group.abort(std::make_exception_ptr(
        InvalidArgument("an exception has ended a step of shards after its exchange had begun, so "
                        "that the other ranks wait in it; go on from a checkpoint")));
  }
  shards_done_ = 0;
  number_.in_step = 0;
  is_open_ = is_done_ = false;
  for (GradientBucket& bucket : buckets) bucket.drop_shards();
  for (const NamedTensor& parameter : parameters_) parameter.tensor.mutable_grad().reset();
}

void GradientExchange::exchange() {
  BucketSet& set = sets_[current_];
  if (!communicator_->impl().packs() && !has_shards()) {
    const WaitClock clock(*communicator_);
    exchange_one_by_one(*communicator_, parameters_, options_.zero_fill);
    has_mean_ = true;
  } else {
    const auto begin = std::chrono::steady_clock::now();
    {
      const WaitClock clock(*communicator_);
      start_up_to(set.buckets.size(), !options_.double_buffering);
    }
    times_.waited += std::chrono::steady_clock::now() - begin;
    set.is_in_flight = true;
    BucketSet& ended = options_.double_buffering ? sets_[1 - current_] : set;
    has_mean_ = ended.is_in_flight;
    if (has_mean_) {
      collect(ended);
    } else {
      for (const NamedTensor& parameter : parameters_) parameter.tensor.mutable_grad().reset();
    }
    current_ = options_.double_buffering ? 1 - current_ : current_;
  }
  is_done_ = true;
  is_by_backward_ = true;
}

// Waits for the means, checks who had what, and makes them the gradients.
void GradientExchange::collect(BucketSet& set) {
  set.is_in_flight = false;
  collected_ = static_cast<std::size_t>(&set - sets_.data());
  const auto begin = std::chrono::steady_clock::now();
  {
    const WaitClock clock(*communicator_);
    for (GradientBucket& bucket : set.buckets) bucket.wait();
  }
  const auto end = std::chrono::steady_clock::now();
  times_.waited += end - begin;
  if (!set.buckets.empty()) times_.travelled += end - set.sent;
  for (GradientBucket& bucket : set.buckets) {
    const std::vector<Presence> presence = bucket.presence(!options_.zero_fill);
    if (!options_.zero_fill) {
      require_equal_presence(*communicator_, bucket.parameters(), presence, bucket.own_presence());
    }
    bucket.finish(presence);
  }
}

void GradientExchange::require() {
  if (has_shards()) {
    if (is_done_) return;
    throw InvalidArgument(
        "the gradients of this step are not those of its shards: in a job of shards they come from "
        "Shard::backward() and go into Step::commit() alone");
  }
  if (is_open_) {
    end();
  } else if (!is_done_) {
    open();
    end();
  }
  is_by_backward_ = false;
}

void GradientExchange::require_again() {
  is_done_ = is_done_ && is_by_backward_;
  require();
}

void GradientExchange::begin_step() {
  if (is_open_ && !has_shards()) end();
  is_done_ = false;
}

void GradientExchange::count_step() noexcept {
  ++number_.step;
  number_.in_step = 0;
  shards_done_ = 0;
}

bool GradientExchange::take_last() {
  BucketSet& last = sets_[1 - current_];
  if (!last.is_in_flight) return false;
  collect(last);
  return true;
}

}  // namespace chainmail::internal
