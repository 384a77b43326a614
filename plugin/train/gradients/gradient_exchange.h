// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The mean of all gradients over the ranks, bucket by bucket, while backward still computes others;
// with double buffering, while the next step computes. In a job that hands out shards
// (communicator_impl.h) the sum over a step's shards: of this rank's, every backward is one, and
// the last one begins the exchange.
//
// One thread per rank at a time: the one that calls backward(), or while it waits there for a GPU's
// gradients the thread of autograd that makes them. Collective: every rank runs the
// same exchanges in the same order.

#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include <chainmail/communicator.h>

#include "plugin/train/gradients/gradient_bucket.h"
#include "plugin/train/gradients/gradient_hooks.h"
#include "plugin/train/optimizer/parameter_list.h"
#include "plugin/train/shards/shard_progress.h"

namespace chainmail::internal {

/// What ranks share of an optimizer: those of a node, or all, see ExchangeOptions::is_over_nodes.
enum class SliceKind : std::uint8_t {
  kNone,    ///< nothing: means everywhere
  kWithin,  ///< near equal slices, which end within parameters
  kWhole,   ///< whole parameters
};

struct ExchangeOptions {
  bool zero_fill = true;
  bool overlaps = false;          ///< buckets start while backward goes on
  bool double_buffering = false;  ///< a mean is used one exchange later
  std::int64_t bucket_bytes = 0;  ///< 0: one per dtype
  std::int64_t first_bucket_bytes = 0;
  std::uint64_t step = 0;  ///< steps of the optimizer before the first exchange, for messages
  /// Asked at the begin of each backward: false when the parameters are no longer those of the
  /// constructor, so that this backward only leaves its own gradients.
  std::function<bool()> is_current;
  /// How the means are left; see GradientBucket.
  SliceKind slices = SliceKind::kNone;
  bool is_over_nodes = false;  ///< of slices: all ranks have one, not only those of each node
  /// With slices and overlap, without double buffering: what is not this rank's is freed as soon as
  /// the means of its bucket are known.
  bool frees_gradients = false;
  std::shared_ptr<const GradientTaker> taker;  ///< for whom it exchanges
  /// As what gradients of float32 travel between nodes; unset: as the communicator's group says.
  std::optional<ops::WireFormat> wire = std::nullopt;
  /// Buckets of fewer bytes travel as they are where `wire` is set: their time is not that of
  /// bytes.
  std::int64_t least_rounded_bytes = 0;
  /// The loss scale that gradients were made with; null: 1.
  std::function<double()> loss_scale;
};

class GradientExchange {
 public:
  struct Place {
    std::size_t bucket = 0;
    std::size_t index = 0;
  };

  /// Allocates the buckets and sets hooks. `parameters` are trainable, in the order of all ranks;
  /// `order` has the positions in which backward finishes them, empty where that is not known.
  /// Without buckets ("naive") they are exchanged one at a time. Collective.
  GradientExchange(Communicator& communicator, std::vector<NamedTensor> parameters,
                   std::vector<std::size_t> order, ExchangeOptions options);

  ~GradientExchange();
  GradientExchange(const GradientExchange&) = delete;
  GradientExchange& operator=(const GradientExchange&) = delete;

  /// False within no_sync(): backward leaves this rank's own gradients.
  void set_enabled(bool is_enabled) noexcept { is_enabled_ = is_enabled; }
  /// Exchanges the gradients as they are, unless a backward did since begin_step().
  void require();
  /// The same, but also when there was only a call of these functions since begin_step().
  void require_again();
  /// After an exchange: whether the gradients are means. Not so after the first one with double
  /// buffering, when there is none yet and no parameter has a gradient.
  bool has_mean() const noexcept { return has_mean_; }
  /// Whether an exchange has ended since begin_step().
  bool is_done() const noexcept { return is_done_; }
  /// The gradients were used or dropped. Ends an exchange that a backward began and, by an
  /// exception, did not end: the other ranks are in it.
  void begin_step();
  /// In a job of shards: the backward of this rank's next one has ended; after the last one the
  /// gradients are sums over all shards of the step.
  void end_shard();
  /// The same for one without samples, hence without a backward.
  void add_empty_shard();
  /// The step has ended without a commit: nothing of its shards counts. Ends the communicator when
  /// the exchange has begun, since the other ranks are in it.
  void drop_shards();
  /// A backward has begun an exchange and not ended it.
  bool is_open() const noexcept { return is_open_; }
  /// A step of the optimizer has ended; the next exchange is the first one of the next step.
  void count_step() noexcept;
  /// Double buffering: whether a mean is still on its way, for take_last().
  bool has_last() const noexcept { return sets_[1 - current_].is_in_flight; }
  /// Double buffering: makes the gradients the last mean that is still on its way. False when there
  /// is none.
  bool take_last();
  /// Positions in `parameters` as the last backward finished them; empty without one.
  const std::vector<std::size_t>& observed_order() const noexcept { return observed_; }
  const std::vector<NamedTensor>& parameters() const noexcept { return parameters_; }
  std::size_t bucket_count() const noexcept { return sets_[0].buckets.size(); }
  /// After the last exchange: what rounding to integers has left to be paid. Nothing else may
  /// follow.
  [[nodiscard]] std::vector<Debt> take_debts();
  /// Before the first exchange: debts of another one, of which the next exchange pays those of
  /// these parameters.
  void owe(const std::vector<Debt>& debts);
  /// What part of the gradients an integer wire has rounded away, of what it has rounded: of norms
  /// over all ranks, in an exchange of the last sixteen or so. 0 before it is known, and on other
  /// wires. The same on all ranks.
  double wire_error() const noexcept;
  /// Sums over the exchanges so far.
  struct Times {
    std::chrono::duration<double> waited{0};
    std::chrono::duration<double> travelled{
        0};  ///< from the first bucket's start to the last's end
  };
  const Times& times() const noexcept { return times_; }
  /// See GradientDebts.
  void expect_debts() noexcept;
  /// Of a position in parameters().
  Place place_of(std::size_t parameter) const { return places_.at(parameter); }
  /// With double buffering the first ones of each pair.
  const std::vector<GradientBucket>& buckets() const noexcept { return sets_[0].buckets; }
  /// With slices: those whose means were collected last, or none yet.
  const std::vector<GradientBucket>& collected() const noexcept {
    return sets_[collected_].buckets;
  }
  /// Of all buckets.
  std::size_t bytes() const noexcept;
  /// Of what an exchange sends between nodes, each element once; 0 without buckets, and on
  /// one node.
  std::size_t wire_bytes() const noexcept;

 private:
  struct BucketSet {
    std::vector<GradientBucket> buckets;
    bool is_in_flight = false;                   ///< all have started
    std::chrono::steady_clock::time_point sent;  ///< when the first one did
  };

  void make_buckets(std::vector<std::size_t> order);
  void check_wire() const;
  std::vector<std::size_t> owners_of_whole() const;
  std::optional<SliceRule> rule_for(std::vector<std::size_t>& bucket,
                                    const std::vector<std::size_t>& owner_of) const;
  void on_ready(std::size_t parameter);
  void open();
  void end();
  void start_up_to(std::size_t end_bucket, bool waits_for_last);
  bool has_shards() const noexcept;
  double weight_of_shard() const;
  bool is_last_shard() const;
  void take_of_shard(std::size_t parameter);
  void open_shard();
  void count_ready(std::size_t parameter);
  void exchange();
  void collect(BucketSet& set);

  Communicator* communicator_;
  std::vector<NamedTensor> parameters_;
  ExchangeOptions options_;
  ops::WireFormat wire_;
  std::vector<Place> places_;         ///< of each parameter
  std::array<BucketSet, 2> sets_;     ///< the second one for double buffering
  std::size_t current_ = 0;           ///< the set that takes gradients
  std::size_t collected_ = 0;         ///< the set whose means are in use
  std::vector<std::size_t> pending_;  ///< per bucket: gradients that are not ready
  std::vector<char> is_ready_;        ///< per parameter
  std::vector<std::size_t> observed_;
  std::size_t next_ = 0;              ///< the bucket that starts next; their order is fixed
  std::shared_ptr<BucketPool> pool_;  ///< null: every bucket has its own memory
  ExchangeNumber number_;             ///< of the exchange under way, or the last one
  Times times_;
  bool is_enabled_ = true;
  bool is_open_ = false;      ///< an exchange has begun and not ended
  bool is_deferred_ = false;  ///< the backward under way leaves its gradients as they are
  bool is_done_ = false;      ///< exchanged since begin_step()
  bool is_by_backward_ = false;
  bool has_mean_ = false;
  std::shared_ptr<ShardProgress> shards_;  ///< of the communicator
  std::uint32_t shards_done_ = 0;          ///< of this rank's, in the step
  std::unique_ptr<GradientHooks> hooks_;   // last: they call the rest
};

}  // namespace chainmail::internal
