// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/train/local_steps/local_stepping.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <memory>
#include <string>
#include <utility>

#include <ATen/ATen.h>

#include "base/bytes.h"
#include "base/log.h"
#include "ops/engine/callbacks/callback_executor.h"
#include "plugin/job/torch_group.h"
#include "plugin/tensor/tensor_bytes.h"
#include "plugin/train/communicator/communicator_impl.h"
#include "plugin/train/communicator/parts.h"
#include "plugin/train/local_steps/schedule.h"
#include "plugin/train/pack_buffer.h"
#include "plugin/train/sharding/memory_ties.h"
#include "plugin/train/wire/bucket_feedback.h"

namespace chainmail::internal {

namespace {

// Rounds of all fragments from one comparison of the nodes to the next.
constexpr std::int64_t kRoundsPerComparison = 100;

ops::Group& group_of(Communicator& communicator) { return *communicator.impl().group; }

std::uint64_t digest_of(const std::vector<OuterFragment::Piece>& pieces) {
  StreamHash hash;
  for (const OuterFragment::Piece& piece : pieces) {
    for (const at::Tensor& tensor : {piece.common, piece.velocity}) {
      hash.add({static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()});
    }
  }
  return hash.value();
}

// What the model has by the name of `buffer` now: a forward may put another one in its place.
at::Tensor in_place_of(const at::Tensor& buffer, const std::vector<NamedTensor>& before,
                       const std::vector<NamedTensor>& now) {
  const auto named = std::ranges::find_if(
      before, [&](const NamedTensor& other) { return other.tensor.is_same(buffer); });
  if (named == before.end()) return buffer;
  const auto found = std::ranges::find(now, named->name, &NamedTensor::name);
  const bool fits = found != now.end() && found->tensor.sizes() == buffer.sizes() &&
                    found->tensor.scalar_type() == buffer.scalar_type() &&
                    found->tensor.device() == buffer.device() &&
                    why_not_writable(found->tensor).empty();
  return fits ? found->tensor : buffer;
}

// When one of them ends, ranks may wait in the others for some that know. As long as `token` lives.
void tie_ends(const std::vector<std::shared_ptr<ops::Group>>& groups,
              const std::weak_ptr<const char>& token) {
  const auto end = [token](const std::weak_ptr<ops::Group>& weak, const std::exception_ptr& error) {
    try {
      const auto group = weak.lock();
      if (group && !token.expired() && !group->error()) group->abort(error);
    } catch (const std::exception& failure) {
      log_line(LogLevel::kWarning,
               std::string("telling other ranks of a failure: ") + failure.what());
    }
  };
  for (const std::shared_ptr<ops::Group>& one : groups) {
    for (const std::shared_ptr<ops::Group>& other : groups) {
      if (one == other) continue;
      one->on_failure([end, weak = std::weak_ptr(other)](const std::exception_ptr& error) {
        // Not in this thread, which may be the one that brings news: it is to bring the other
        // groups theirs first, and what abort() asks may be for it to answer.
        const auto group = weak.lock();
        const auto executor = group ? group->callbacks() : nullptr;
        if (executor) executor->post([end, weak, error] { end(weak, error); });
      });
    }
  }
}

}  // namespace

LocalStepping::LocalStepping(Communicator& communicator, const LocalSteps& options,
                             std::optional<ops::WireFormat> wire, ModuleRef model)
    : communicator_(&communicator), options_(options), model_(std::move(model)) {
  if (parse_torch_backend(communicator.name())) {
    throw InvalidArgument("local_steps: communicator '" + communicator.name() +
                          "' is torch's own, which gives no rank a slice; use 'hierarchical' or "
                          "another");
  }
  if (communicator.impl().shards) {
    throw InvalidArgument(
        "local_steps: in a job of shards a step must not depend on which node computes what, and "
        "here every node steps by itself; start the job without shards");
  }
  wire_ = wire.value_or(group_of(communicator).options().wire);
}

template <typename Work>
void LocalStepping::timed(const Work& work) {
  const auto begin = std::chrono::steady_clock::now();
  communicator_->impl().check_usable();
  work();
  communicator_->impl().waited += std::chrono::steady_clock::now() - begin;
}

void LocalStepping::make_groups() {
  if (node_) return;
  const int owners = group_of(*communicator_).topology().min_local_size();
  node_ = communicator_->split(communicator_->inter_rank(), communicator_->rank());
  cross_ = communicator_->split(std::min(communicator_->intra_rank(), owners),
                                communicator_->inter_rank());
  tie_ends({communicator_->impl().group, node_->impl().group, cross_->impl().group}, tie_);
}

void LocalStepping::check_parameters(const std::vector<NamedTensor>& parameters) const {
  for (const NamedTensor& parameter : parameters) {
    const at::Tensor& tensor = parameter.tensor;
    if (!tensor.is_cpu()) {
      throw InvalidArgument("local_steps: parameter '" + parameter.name + "' is on " +
                            tensor.device().str() +
                            ", and nodes exchange what is in host memory; train on the CPU, or "
                            "leave .local_steps out");
    }
    if (!tensor.is_floating_point() || !tensor.is_non_overlapping_and_dense()) {
      throw InvalidArgument("local_steps: parameter '" + parameter.name +
                            "' is not of a floating-point type, or its elements do not lie in a "
                            "row, and it cannot be cut; make it contiguous()");
    }
  }
  if (const auto tie = find_memory_tie(parameters)) {
    refuse_memory_tie(
        "local_steps",
        describe_memory_tie(parameters[tie->first].name, parameters[tie->second].name),
        ", or leave .local_steps out");
  }
}

std::vector<std::vector<FragmentRow>> LocalStepping::cut(
    const std::vector<NamedTensor>& parameters) const {
  std::vector<FragmentItem> items;
  for (const NamedTensor& parameter : parameters) {
    const c10::ScalarType dtype = parameter.tensor.scalar_type();
    items.push_back({.dtype = dtype,
                     .elements = static_cast<std::size_t>(parameter.tensor.numel()),
                     .is_rounded = ops::is_in_blocks(wire_) && outer_type(dtype) == c10::kFloat &&
                                   is_rounded_to_integers(parameter.tensor)});
  }
  auto rows = cut_into_fragments(items, static_cast<std::size_t>(options_.fragments));
  if (!parameters.empty() && std::ranges::any_of(rows, [](const auto& of) { return of.empty(); })) {
    throw InvalidArgument("local_steps: .fragments is " + std::to_string(options_.fragments) +
                          ", more than there are elements of one type in the parameters that are "
                          "trained; use fewer");
  }
  return rows;
}

void LocalStepping::check(const std::vector<NamedTensor>& parameters) const {
  check_parameters(parameters);
  static_cast<void>(cut(parameters));
}

void LocalStepping::check_begun() const {
  if (!is_local() || has_begun_) return;
  throw InvalidArgument(
      "local_steps: the last synchronize() has failed, and nodes have nothing in common to go on "
      "from: call it again before step() and flush()");
}

void LocalStepping::begin(const std::vector<NamedTensor>& parameters) {
  check_parameters(parameters);
  auto rows = cut(parameters);
  make_groups();
  fragments_.clear();
  if (!is_local()) return;
  const ops::Topology& topology = group_of(*communicator_).topology();
  for (std::vector<FragmentRow>& of_fragment : rows) {
    fragments_.emplace_back(std::move(of_fragment), parameters,
                            ops::slice_count(topology, /*is_over_nodes=*/false),
                            ops::slice_of_rank(topology, communicator_->rank(),
                                               /*is_over_nodes=*/false),
                            wire_);
  }
  is_common_.assign(fragments_.size(), 1);
  has_begun_ = true;
  if (communicator_->rank() == 0) {
    LogMessage(LogLevel::kInfo) << "every node steps by itself from step " << steps_ << " on; "
                                << describe(options_);
  }
}

bool LocalStepping::count_step() {
  const bool was_local = is_local();
  ++steps_;
  if (!was_local) return is_local();
  // What the node's gradients have waited for counts as the communicator's.
  communicator_->impl().waited += std::exchange(node_->impl().waited, std::chrono::nanoseconds{0});
  std::fill(is_common_.begin(), is_common_.end(), char{0});
  timed([this] { exchange_due(); });
  return false;
}

void LocalStepping::exchange_due() {
  if (travelling_ && local_steps() == sent_after_ + options_.delay) complete(due_rule());
  const auto due = fragment_after(options_, local_steps());
  if (!due || fragments_.empty()) return;
  send(*due);
  if (options_.delay == 0) complete(due_rule());
}

OuterRule LocalStepping::due_rule() const {
  return {.lr = options_.outer_lr, .momentum = options_.outer_momentum, .merge = options_.merge};
}

FragmentNumber LocalStepping::number_of(std::size_t fragment) const {
  return {.fragment = fragment,
          .fragments = static_cast<std::uint64_t>(options_.fragments),
          .round = static_cast<std::uint64_t>(rounds_),
          .step = static_cast<std::uint64_t>(local_steps()),
          .every = static_cast<std::uint64_t>(options_.steps)};
}

void LocalStepping::send(std::size_t fragment) {
  const FragmentNumber number = number_of(fragment);
  fragments_[fragment].send(group_of(*cross_), number);
  travelling_ = fragment;
  sent_after_ = local_steps();
  ++rounds_;
  if (fragment == 0) send_buffers(number);
}

void LocalStepping::complete(const OuterRule& rule) {
  const std::size_t fragment = *std::exchange(travelling_, std::nullopt);
  fragments_[fragment].complete(rule, group_of(*node_));
  is_common_[fragment] = local_steps() == sent_after_ && !rule.merge ? 1 : 0;
  if (fragment != 0) return;
  complete_buffers();
  const std::int64_t round = sent_after_ / options_.steps;
  if (!rule.is_mean && round > 0 && round % kRoundsPerComparison == 0) compare_nodes();
}

// Running statistics, of which every rank has its own. Never rounded.
void LocalStepping::send_buffers(const FragmentNumber& number) {
  const at::NoGradGuard no_grad;
  sent_buffers_ = collect_buffers(model_);
  std::vector<at::Tensor> all;
  for (const NamedTensor& buffer : sent_buffers_) {
    if (buffer.tensor.is_floating_point() && buffer.tensor.numel() > 0) {
      all.push_back(buffer.tensor);
    }
  }
  for (std::vector<at::Tensor>& of_type : group_by_dtype(all)) {
    BufferMean mean;
    mean.flat =
        at::empty({total_elements(of_type)}, at::TensorOptions(of_type.front().scalar_type()));
    pack_into(mean.flat, of_type);
    ops::Collective collective =
        all_reduce_of(mean.flat, ops::ReduceOp::kAvg, ops::WireFormat::kNative, of_type);
    collective.shape_hash = NumberHash().add(collective.shape_hash).add(number.hash()).value();
    collective.describe_shapes = [flat = mean.flat, number] {
      return "buffers [" + std::to_string(flat.numel()) + "] with " + number.describe();
    };
    collective.is_async = true;
    mean.operation = group_of(*communicator_).submit(std::move(collective));
    mean.buffers = std::move(of_type);
    buffers_.push_back(std::move(mean));
  }
}

void LocalStepping::complete_buffers() {
  const std::vector<NamedTensor> now = collect_buffers(model_);
  for (BufferMean& mean : buffers_) {
    mean.operation->wait();
    for (at::Tensor& buffer : mean.buffers) buffer = in_place_of(buffer, sent_buffers_, now);
    unpack(mean.flat, mean.buffers);
  }
  buffers_.clear();
  sent_buffers_.clear();
}

bool LocalStepping::flush() {
  if (fragments_.empty()) return false;
  bool has_changed = false;
  timed([&] {
    if (travelling_) {
      OuterRule rule = due_rule();
      rule.merge.reset();  // the parameters are to be the common values in the end
      complete(rule);
      has_changed = true;
    }
    for (std::size_t fragment = 0; fragment < fragments_.size(); ++fragment) {
      if (is_common_[fragment] != 0) continue;
      send(fragment);
      complete({.is_mean = true});
      has_changed = true;
    }
    for (OuterFragment& fragment : fragments_) fragment.settle();
  });
  return has_changed;
}

void LocalStepping::drop() {
  timed([this] {
    for (OuterFragment& fragment : fragments_) fragment.drop();
    for (BufferMean& mean : buffers_) mean.operation->wait();
    buffers_.clear();
    sent_buffers_.clear();
    travelling_.reset();
  });
  fragments_.clear();
  has_begun_ = false;
}

void LocalStepping::set_counts(const Counts& counts) noexcept {
  steps_ = counts.steps;
  rounds_ = counts.rounds;
}

std::vector<OuterFragment::Piece> LocalStepping::pieces() const {
  std::vector<OuterFragment::Piece> all;
  for (const OuterFragment& fragment : fragments_) {
    for (OuterFragment::Piece& piece : fragment.pieces()) all.push_back(std::move(piece));
  }
  return all;
}

void LocalStepping::owe(std::size_t parameter, std::size_t begin, const at::Tensor& values) {
  for (OuterFragment& fragment : fragments_) fragment.owe(parameter, begin, values);
}

void LocalStepping::clear_residuals() {
  for (OuterFragment& fragment : fragments_) fragment.clear_residuals();
}

std::vector<WireResiduals*> LocalStepping::residuals() const {
  std::vector<WireResiduals*> all;
  for (const OuterFragment& fragment : fragments_) {
    for (WireResiduals* const residuals : fragment.residuals()) all.push_back(residuals);
  }
  return all;
}

std::string LocalStepping::describe_exchanges() const {
  return std::string(ops::to_string(wire_)) + ", " + describe(options_);
}

// They have equal bits unless memory or a processor has failed, or the program has changed them.
void LocalStepping::compare_nodes() {
  const std::uint64_t own = digest_of(pieces());
  std::vector<std::uint64_t> all(static_cast<std::size_t>(cross_->size()));
  all_gather(group_of(*cross_), &own, all.data(), sizeof own,
             label_of("digests of what nodes have in common"));
  std::string others;
  for (std::size_t node = 1; node < all.size(); ++node) {
    if (all[node] != all[0]) {
      others += (others.empty() ? "node " : ", node ") + std::to_string(node) + " has " +
                to_hex(all[node]);
    }
  }
  if (others.empty()) return;
  const auto error = std::make_exception_ptr(MismatchError(
      "local_steps: the nodes differ in what they have in common, after " +
      std::to_string(local_steps()) + " local steps: node 0 has digest " + to_hex(all[0]) + ", " +
      others +
      ". A processor or memory has failed, or the nodes run different builds; go on from a "
      "checkpoint"));
  cross_->impl().wait_for_agreement();
  group_of(*cross_).abort(error);
  std::rethrow_exception(error);
}

}  // namespace chainmail::internal
