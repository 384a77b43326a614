// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/train/sharding/optimizer_slices.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>

#include <ATen/ATen.h>
#include <c10/util/StringUtil.h>

#include "plugin/train/communicator/communicator_impl.h"
#include "plugin/train/optimizer/fused_step.h"
#include "plugin/train/optimizer/grad_norm.h"
#include "plugin/train/sharding/slice_gather.h"

namespace chainmail::internal {

namespace {

std::int64_t length_of(std::size_t begin, std::size_t end) {
  return static_cast<std::int64_t>(end - begin);
}

}  // namespace

// While one lives, the optimizer's groups hold the parts.
class OptimizerSlices::InGroups {
 public:
  InGroups(torch::optim::Optimizer& optimizer, const std::vector<Part>& parts,
           const std::vector<NamedTensor>& shared)
      : optimizer_(optimizer) {
    std::unordered_map<const c10::TensorImpl*, const Part*> part_of;
    for (const NamedTensor& one : shared) part_of[one.tensor.unsafeGetTensorImpl()] = nullptr;
    for (const Part& part : parts) part_of[part.parameter.unsafeGetTensorImpl()] = &part;
    for (torch::optim::OptimizerParamGroup& group : optimizer.param_groups()) {
      std::vector<at::Tensor> own;
      for (const at::Tensor& parameter : group.params()) {
        const auto found = part_of.find(parameter.unsafeGetTensorImpl());
        if (found == part_of.end())
          own.push_back(parameter);  // frozen, without a gradient
        else if (found->second != nullptr)
          own.push_back(found->second->view);
      }
      whole_.push_back(std::exchange(group.params(), std::move(own)));
    }
  }
  ~InGroups() {
    for (std::size_t g = 0; g < whole_.size(); ++g) {
      optimizer_.param_groups()[g].params() = std::move(whole_[g]);
    }
  }
  InGroups(const InGroups&) = delete;
  InGroups& operator=(const InGroups&) = delete;

 private:
  torch::optim::Optimizer& optimizer_;
  std::vector<std::vector<at::Tensor>> whole_;
};

OptimizerSlices::OptimizerSlices(torch::optim::Optimizer& optimizer, Communicator& communicator,
                                 bool is_elementwise, bool shares_parameters, bool is_over_nodes)
    : optimizer_(&optimizer),
      communicator_(&communicator),
      has_known_state_(internal::has_known_state(optimizer)),
      kind_(has_known_state_ || is_elementwise ? SliceKind::kWithin : SliceKind::kWhole),
      is_over_nodes_(is_over_nodes),
      slice_(ops::slice_of_rank(communicator.impl().group->topology(), communicator.rank(),
                                is_over_nodes)),
      shared_(shares_parameters ? std::make_unique<SharedParameters>(communicator) : nullptr) {}

void OptimizerSlices::unshare_parameters() {
  if (shared_) shared_->release();
}

void OptimizerSlices::share_parameters(const std::vector<NamedTensor>& parameters) {
  if (shared_) shared_->share(parameters);
}

void OptimizerSlices::begin_step(const GradientExchange& exchange) {
  const at::NoGradGuard no_grad;
  prepare(exchange);
  for (const NamedTensor& parameter : exchange.parameters()) {
    if (!parameter.tensor.grad().defined() || is_own_mean(parameter.tensor)) continue;
    throw InvalidArgument(
        "the gradient of '" + parameter.name +
        "' was set between backward() and step(): in a sharded optimizer the means "
        "are in slices by then; set gradients before, within no_sync()");
  }
  follow_storage();
  cut_state(exchange);
  for (Part& part : parts_) {
    const GradientBucket& bucket = exchange.collected()[part.bucket];
    if (bucket.is_somewhere(part.index)) {
      part.view.mutable_grad() = mean_of(bucket, part);
    } else {
      part.view.mutable_grad().reset();
    }
  }
}

// Of gradient_shards(), which has looked at them before.
bool OptimizerSlices::is_own_mean(const at::Tensor& parameter) const {
  return std::ranges::any_of(parts_, [&](const Part& part) {
    return part.view.is_same(parameter) &&
           std::ranges::any_of(part.means, [&](const at::Tensor& mean) {
             return mean.defined() && mean.is_same(parameter.grad());
           });
  });
}

// Views are kept, as they cost more than small slices' steps.
const at::Tensor& OptimizerSlices::mean_of(const GradientBucket& bucket, Part& part) const {
  if (!part.has_elements()) {
    if (!part.means[0].defined()) part.means[0] = at::empty_like(part.parameter.detach());
    return part.means[0];
  }
  const at::Tensor& means = bucket.own_means();
  const auto at = static_cast<std::int64_t>(bucket.places()[part.index].begin + part.begin -
                                            bucket.own_begin());
  const auto* const address =
      static_cast<const std::byte*>(means.const_data_ptr()) +
      static_cast<std::size_t>(at) * static_cast<std::size_t>(means.element_size());
  for (const at::Tensor& known : part.means) {
    if (known.defined() && known.const_data_ptr() == address) return known;
  }
  std::swap(part.means[0], part.means[1]);
  // Detached: Optimizer::zero_grad() calls detach_() on gradients, which throws for views.
  part.means[0] =
      kind_ == SliceKind::kWhole
          ? means.as_strided(part.parameter.sizes(), part.parameter.strides(), at).detach()
          : means.narrow(0, at, length_of(part.begin, part.end)).detach();
  return part.means[0];
}

void OptimizerSlices::check_parameters(const GradientExchange& exchange) const {
  for (const NamedTensor& parameter : exchange.parameters()) {
    if (!parameter.tensor.is_non_overlapping_and_dense()) {
      throw InvalidArgument("the elements of parameter '" + parameter.name +
                            "' are not in a row, and a sharded optimizer cannot cut it: make it "
                            "contiguous(), or use Sharding::kNone");
    }
    const auto has_it = [&](const torch::optim::OptimizerParamGroup& group) {
      return std::ranges::any_of(
          group.params(), [&](const at::Tensor& known) { return known.is_same(parameter.tensor); });
    };
    if (std::ranges::none_of(optimizer_->param_groups(), has_it)) {
      throw InvalidArgument("parameter '" + parameter.name +
                            "' of the model is in no group of the optimizer: sharded, its "
                            "mean would be left in slices; freeze it, or add it to a group");
    }
  }
}

void OptimizerSlices::prepare(const GradientExchange& exchange) {
  if (!has_parts_) check_parameters(exchange);
  (void)keep_order(exchange);
  if (!has_parts_) find_parts(exchange);
}

void OptimizerSlices::find_parts(const GradientExchange& exchange) {
  parts_.clear();
  const std::vector<GradientBucket>& buckets = exchange.collected();
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    for (std::size_t i = 0; i < buckets[b].parameters().size(); ++i) {
      if (buckets[b].places()[i].count > 0) continue;
      const at::Tensor& parameter = buckets[b].parameters()[i].tensor;
      parts_.push_back({parameter, parameter, b, i});
    }
    const ops::NodeCut& cut = *buckets[b].slices();
    if (slice_ >= cut.owners()) continue;
    for (const SlicePart& part :
         parts_of_slice(buckets[b].places(), cut.bounds[slice_], cut.bounds[slice_ + 1])) {
      const at::Tensor& parameter = buckets[b].parameters()[part.parameter].tensor;
      parts_.push_back(
          {parameter,
           kind_ == SliceKind::kWhole ? parameter : row_of(parameter, part.begin, part.end), b,
           part.parameter, part.begin, part.end});
    }
  }
  has_parts_ = true;
}

// A parameter that the program has laid out in another way (channels_last) gets its order back:
// slices of means and of state are cut in the order that the buckets know.
std::vector<std::pair<at::Tensor, at::Tensor>> OptimizerSlices::keep_order(
    const GradientExchange& exchange) {
  std::vector<std::pair<at::Tensor, at::Tensor>> changed;
  for (const GradientBucket& bucket : exchange.collected()) {
    for (std::size_t i = 0; i < bucket.parameters().size(); ++i) {
      const at::Tensor& parameter = bucket.parameters()[i].tensor;
      const auto& [sizes, strides] = bucket.layout(i);
      if (parameter.sizes() != sizes) {
        refuse_changed(bucket.parameters()[i].name, c10::str(c10::IntArrayRef(sizes)),
                       c10::str(parameter.sizes()));
      }
      if (parameter.strides() == strides) continue;
      changed.emplace_back(parameter, parameter.detach());
      parameter.set_data(at::empty_strided(sizes, strides, parameter.options().requires_grad(false))
                             .copy_(parameter.detach()));
    }
  }
  return changed;
}

// Loading a file into a model gives its parameters other memory.
void OptimizerSlices::follow_storage() {
  if (kind_ == SliceKind::kWhole) return;
  for (const Part& part : parts_) {
    if (!part.has_elements() || part.view.const_data_ptr() == part.address()) continue;
    part.view.set_data(row_of(part.parameter, part.begin, part.end));
  }
}

const void* OptimizerSlices::Part::address() const {
  return static_cast<const std::byte*>(parameter.const_data_ptr()) +
         begin * static_cast<std::size_t>(parameter.element_size());
}

std::vector<at::Tensor> OptimizerSlices::gradients() const {
  std::vector<at::Tensor> result;
  for (const Part& part : parts_) {
    if (part.view.grad().defined()) result.push_back(part.view.grad());
  }
  return result;
}

// A block of the norm lies in one slice, since slices are cut at such blocks.
double OptimizerSlices::norm(const GradientExchange& exchange) const {
  const NormLayout layout(exchange.collected());
  std::vector<double> sums(layout.size());
  for (const Part& part : parts_) {
    const at::Tensor& gradient = part.view.grad();
    if (!gradient.defined()) continue;
    const std::size_t first = layout.position(part.bucket, part.index) + part.begin / kSliceUnit;
    add_squares(gradient, std::span(sums).subspan(
                              first, norm_blocks(static_cast<std::size_t>(gradient.numel()))));
  }
  layout.gather(*communicator_->impl().group, sums);
  double all = 0;
  for (std::size_t p = 0; p < exchange.parameters().size(); ++p) {
    const GradientExchange::Place place = exchange.place_of(p);
    const std::size_t first = layout.position(place.bucket, place.index);
    const at::Tensor& parameter = exchange.parameters()[p].tensor;
    const std::size_t blocks = norm_blocks(static_cast<std::size_t>(parameter.numel()));
    if (!exchange.collected()[place.bucket].is_somewhere(place.index)) continue;
    for (std::size_t b = 0; b < blocks; ++b) all += sums[first + b];
  }
  return std::sqrt(all);
}

// The same on all ranks, whatever lies in their slices.
bool OptimizerSlices::can_fuse(const GradientExchange& exchange) const {
  for (const GradientBucket& bucket : exchange.collected()) {
    for (std::size_t i = 0; i < bucket.parameters().size(); ++i) {
      if (bucket.is_somewhere(i) && !is_fusable(bucket.parameters()[i].tensor)) return false;
    }
  }
  return true;
}

void OptimizerSlices::step(const GradientExchange& exchange, bool use_fused_step) {
  if (shared_) return step_shared(exchange, use_fused_step);
  step_own(exchange, use_fused_step);
  gather_parameters(exchange);
}

void OptimizerSlices::step_own(const GradientExchange& exchange, bool use_fused_step) {
  {
    const InGroups in_groups(*optimizer_, parts_, exchange.parameters());
    // A type of the program's own may look at all of its state, and knows nothing of a mark there.
    if (!has_known_state_) unmark_sliced(*optimizer_);
    const bool is_done = use_fused_step && can_fuse(exchange) && fused_step(*optimizer_);
    if (!is_done) optimizer_->step();
  }
  mark_sliced(*optimizer_);
  drop_gradients();
}

// Before the first meeting another rank may still be in its backward, or its program may read
// parameters between backward() and step(); after the second one everybody has the new ones.
void OptimizerSlices::step_shared(const GradientExchange& exchange, bool use_fused_step) {
  shared_->meet();
  shared_->bring_back([this](const at::Tensor& parameter, const at::Tensor& place) {
    for (const Part& part : parts_) {
      if (!part.parameter.is_same(parameter)) continue;
      row_of(place, part.begin, part.end).copy_(row_of(parameter, part.begin, part.end));
    }
  });
  follow_storage();
  step_own(exchange, use_fused_step);
  shared_->meet();
}

void OptimizerSlices::drop_gradients() {
  for (const Part& part : parts_) part.view.mutable_grad().reset();
}

std::vector<GradientShard> OptimizerSlices::shards(const GradientExchange& exchange) const {
  std::vector<GradientShard> result;
  for (const Part& part : parts_) {
    const at::Tensor& gradient = part.view.grad();
    if (!gradient.defined() || !part.has_elements()) continue;
    const NamedTensor& parameter = exchange.collected()[part.bucket].parameters()[part.index];
    result.push_back({parameter.name, parameter.tensor, static_cast<std::int64_t>(part.begin),
                      static_cast<std::int64_t>(part.end), gradient});
  }
  return result;
}

// A few buckets at a time, which is all that a pool has memory for.
void OptimizerSlices::gather_parameters(const GradientExchange& exchange) {
  const at::NoGradGuard no_grad;
  const ops::Topology& topology = communicator_->impl().group->topology();
  if (topology.size() == (is_over_nodes_ ? 1 : topology.node_count())) return;
  struct OnItsWay {
    const GradientBucket* bucket;
    at::Tensor row;
    std::shared_ptr<ops::Operation> gather;
  };
  std::deque<OnItsWay> on_their_way;
  const auto take_first = [&] {
    const OnItsWay first = std::move(on_their_way.front());
    on_their_way.pop_front();
    first.gather->wait();
    take_parameters(*first.bucket, first.row, slice_);
    first.bucket->give_back(first.row);
  };
  const std::vector<GradientBucket>& buckets = exchange.collected();
  auto part = parts_.begin();  // in the order of buckets
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    if (on_their_way.size() == BucketPool::kBuffers) take_first();
    const at::Tensor row = buckets[b].borrow();
    for (; part != parts_.end() && part->bucket == b; ++part) {
      const auto at =
          static_cast<std::int64_t>(buckets[b].places()[part->index].begin + part->begin);
      row.narrow(0, at, length_of(part->begin, part->end))
          .copy_(row_of(part->parameter, part->begin, part->end));
    }
    on_their_way.push_back({&buckets[b], row,
                            start_gather(*communicator_->impl().group, row,
                                         slices_of_gradients(buckets[b]), "parameters")});
  }
  while (!on_their_way.empty()) take_first();
}

void OptimizerSlices::forget_slices() {
  parts_.clear();
  has_parts_ = false;
}

}  // namespace chainmail::internal
