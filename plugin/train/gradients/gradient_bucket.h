// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Gradients of one dtype that travel as one message, in memory that the group allocates: the ranks
// of a node reduce it where it lies, so that putting a gradient here is the only copy.
//
// Gradients on a GPU lie in memory that NCCL knows. Their exchange is queued, and wait() makes the
// current stream wait for it, not the thread.
//
// Behind the gradients lie two numbers per parameter: one is 1 where this rank has a gradient, the
// other where it has none. Their means over the ranks are zero only if they are zero everywhere, so
// every rank learns from the same exchange who is missing what, and all decide alike.
//
// On an integer wire small parameters stand behind the others, and they and the marks travel as
// they are. What rounding loses of the others is kept and added to the next gradients, and two more
// elements say how much that is.
//
// One thread at a time.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

#include "ops/engine/group.h"
#include "ops/node_cut.h"
#include "plugin/c10d/device/device_context.h"
#include "plugin/tensor/memory_layout.h"
#include "plugin/train/gradients/bucket_pool.h"
#include "plugin/train/gradients/presence.h"
#include "plugin/train/optimizer/parameter_list.h"
#include "plugin/train/sharding/slice_cut.h"
#include "plugin/train/shards/shard_stack.h"
#include "plugin/train/wire/bucket_feedback.h"
#include "plugin/train/wire/gradient_debts.h"

namespace chainmail::internal {

/// Which exchange a message belongs to; ranks that are not at the same one get a MismatchError.
struct ExchangeNumber {
  std::uint64_t step = 0;
  std::uint64_t in_step = 0;  ///< 1 for the first
};

/// For means that are left with the owners of slices, one per local rank, or one per rank.
struct SliceRule {
  bool is_over_nodes = false;  ///< as NodeCut has it
  /// Whole parameters: the slice that each is in, ascending. Empty: the slices are near equal and
  /// end within parameters.
  std::vector<std::size_t> owners;
  /// Where the bucket has its memory from while it is on its way. Null: it has its own for ever.
  std::shared_ptr<BucketPool> pool;
};

class GradientBucket {
 public:
  /// `parameters` are trainable, of one dtype, on the CPU or on the GPU of `context`. Collective:
  /// allocates from the group. With `cut` gradients are sums over a step's shards, which are in
  /// host memory and weigh what add_shard() says; else they are means over the ranks. With `slices`
  /// a mean is known where its slice's owner is: no parameter has a gradient after finish(), and
  /// own_means() has them. With `slices->pool` gradients stay where backward has left them until
  /// start(), which takes memory of the pool, and wait() gives it back.
  /// On an integer `wire` the parameters that are rounded come first.
  GradientBucket(std::vector<NamedTensor> parameters, ops::Group& group, ops::WireFormat wire,
                 std::shared_ptr<const DeviceContext> context = nullptr,
                 std::shared_ptr<const ops::ShardCut> cut = nullptr,
                 const std::optional<SliceRule>& slices = std::nullopt);

  /// Copies gradient `index` here unless it lies here already, and makes the parameter's gradient
  /// the view of it. A sparse one becomes dense, one of another dtype is converted. A parameter
  /// without a gradient counts as missing. Throws InvalidArgument for one that cannot be taken.
  void adopt(std::size_t index);
  /// With shards: takes gradient `index` as that of this rank's next shard, which counts `weight`;
  /// the parameter has none afterwards. A second one of the same shard is added.
  void adopt_of_shard(std::size_t index, double weight);
  /// With shards: adopts the gradients that are left, and ends this rank's next shard.
  void add_shard(double weight);
  /// With shards: those of one without samples.
  void add_empty_shard();
  /// With shards: drops what was added, and the next one is the first one of a step.
  void drop_shards() noexcept;
  [[nodiscard]] bool has_all_shards() const noexcept { return stack_->is_full(); }
  /// Without shards adopts all gradients; starts their mean or sum; nothing may touch them until
  /// finish(). Synchronous unless `is_async`. `loss_scale`: what the gradients were made with.
  void start(ops::Group& group, const ExchangeNumber& number, bool is_async, double loss_scale = 1);
  /// Waits for what start() began, if it did.
  void wait();
  bool is_started() const noexcept { return is_started_; }
  /// After an exchange that an exception has ended: waits, and drops what it was about. Nothing
  /// after one that has ended with finish().
  void drop();
  /// Whether it has memory of its pool: from start() to wait(), and at most as many as that has
  /// buffers.
  bool holds_memory() const noexcept { return pool_ != nullptr && flat_.defined(); }
  /// After wait(), in the order of parameters(): who has which gradient. A GPU is waited for only
  /// where this rank cannot know by itself: when it lacks one, or `everywhere` matters.
  std::vector<Presence> presence(bool everywhere_matters) const;
  /// For which parameters this rank brought one.
  const std::vector<char>& own_presence() const noexcept { return is_present_; }
  /// Points every gradient that exists somewhere at its mean, drops the others, or all with slices,
  /// and makes the bucket ready for the next exchange.
  void finish(const std::vector<Presence>& presence);

  ops::WireFormat wire() const noexcept { return wire_; }
  /// Null where nothing is kept. Between exchanges.
  const std::shared_ptr<BucketFeedback>& feedback() const noexcept { return feedback_; }
  /// What the next exchange pays besides. Between exchanges; not with shards.
  GradientDebts& debts() const noexcept { return *debts_; }
  bool pays_debts() const noexcept { return !stack_; }
  /// From now on those of a bucket of the same parameters, which takes turns with this one.
  void share_with(const GradientBucket& other) {
    feedback_ = other.feedback_;
    debts_ = other.debts_;
  }

  const std::vector<NamedTensor>& parameters() const noexcept { return parameters_; }
  /// Of its own memory.
  std::size_t bytes() const noexcept;
  /// Of its elements as they travel between nodes, each once and in one message.
  std::size_t wire_bytes() const noexcept;

  /// With slices, whose owners they are; the common elements are the marks. Else null.
  const std::shared_ptr<const ops::NodeCut>& slices() const noexcept { return slices_; }
  /// How parameter `index` lay in memory when the bucket was made; its gradients do ever since.
  const MemoryLayout& layout(std::size_t index) const { return layouts_.at(index); }
  /// Where each gradient lies in the bucket.
  const std::vector<ParameterPlace>& places() const noexcept { return places_; }
  /// After wait(), with slices: a row with the means of this rank's slice, which is the bucket from
  /// own_begin() on.
  const at::Tensor& own_means() const noexcept { return pool_ ? own_ : flat_; }
  std::size_t own_begin() const noexcept { return pool_ ? own_begin_ : 0; }
  /// With slices, after wait(): a row like the bucket that carries something else between two
  /// exchanges. Its values are undefined, and may be those of own_means(). To be given back.
  at::Tensor borrow() const;
  void give_back(const at::Tensor& borrowed) const;
  /// After finish(): whether a rank had a gradient of parameter `index`.
  bool is_somewhere(std::size_t index) const { return is_somewhere_.at(index) != 0; }

 private:
  void allocate(std::int64_t elements, c10::ScalarType dtype, ops::Group& group);
  void set_flat(at::Tensor flat);
  void take_memory();
  void clear_gaps();
  void retire();
  void adopt_all();
  void write_marks();
  void make_feedback();
  void make_debts(const ops::Group& group);
  void tell_error();
  void learn_error();
  void start_on_device(const ops::Collective& collective);
  bool has_all() const noexcept;
  void cut(const SliceRule& rule, std::size_t end, const ops::Group& group);

  std::vector<NamedTensor> parameters_;
  std::vector<MemoryLayout> layouts_;  ///< of parameters_
  at::Tensor flat_;                    ///< with a pool undefined but from start() to wait()
  std::vector<at::Tensor> views_;      ///< one per parameter, shaped like it
  at::Tensor marks_;                   ///< the numbers behind the gradients, [2, parameters]
  std::vector<char> is_present_;
  std::vector<char> is_somewhere_;
  std::vector<ParameterPlace> places_;
  std::shared_ptr<const ops::NodeCut> slices_;
  std::int64_t elements_ = 0;  ///< with the marks
  c10::ScalarType dtype_ = c10::ScalarType::Undefined;
  ops::WireFormat wire_;
  std::size_t rounded_ = 0;  ///< on an integer wire: how many elements are rounded
  std::shared_ptr<BucketFeedback> feedback_;
  std::shared_ptr<GradientDebts> debts_;
  double loss_scale_ = 1;             ///< of the exchange that started last
  std::shared_ptr<BucketPool> pool_;  ///< null: flat_ is there for ever
  at::Tensor own_;                    ///< with a pool: the means of this rank's slice
  std::size_t own_begin_ = 0;
  std::vector<Presence> presence_;  ///< with a pool: of the last exchange
  std::uint32_t shape_hash_ = 0;
  std::shared_ptr<const std::string> shapes_;     ///< for messages
  std::shared_ptr<ops::Operation> operation_;     ///< in flight
  std::shared_ptr<const DeviceContext> context_;  ///< null on the CPU
  at::Tensor all_present_;                        ///< on a GPU: the marks of a rank that has all
  std::shared_ptr<ops::DeviceOperation> queued_;
  std::optional<c10::Event> end_;  ///< of what was queued on another stream than the caller's
  bool is_started_ = false;
  std::shared_ptr<const ops::ShardCut> cut_;
  std::optional<ShardStack> stack_;
};

/// The gradient as a dense tensor of the parameter's dtype; throws InvalidArgument when it is not
/// on the parameter's device or not of its shape.
[[nodiscard]] at::Tensor dense_gradient(const NamedTensor& parameter);

}  // namespace chainmail::internal
