// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include <chainmail/optimizer.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "plugin/train/communicator_impl.h"
#include "plugin/train/gradient_buckets.h"
#include "plugin/train/optimizer_state.h"
#include "plugin/train/parameter_list.h"

namespace chainmail {

using internal::GradientBucket;
using internal::NamedTensor;
using internal::Presence;

struct MultiNodeOptimizer::Impl {
  std::unique_ptr<torch::optim::Optimizer> optimizer;
  std::shared_ptr<Communicator> communicator;
  MultiNodeOptimizerOptions options;
  std::vector<std::uintptr_t> signature;  ///< of what the members below were made for
  std::vector<NamedTensor> known;         ///< parameters and buffers that have been broadcast
  std::vector<NamedTensor> trainable;
  std::vector<GradientBucket> buckets;
  std::uint64_t steps = 0;

  void adopt_parameters();
  void make_buckets();
  void exchange_packed();
  void exchange_one_by_one();
  void check_presence(const std::vector<NamedTensor>& of, const std::vector<Presence>& presence);
};

namespace {

std::string list_ranks(const std::vector<std::string>& has, std::size_t index, char wanted) {
  std::string text;
  for (std::size_t r = 0; r < has.size(); ++r) {
    if (has[r].at(index) == wanted) {
      text += (text.empty() ? "" : ", ") + std::to_string(r);
    }
  }
  return text;
}

bool has_gradient(const NamedTensor& parameter) { return parameter.tensor.grad().defined(); }

}  // namespace

// Compares what the ranks have and broadcasts what is new since the last time.
void MultiNodeOptimizer::Impl::adopt_parameters() {
  std::vector<NamedTensor> now = internal::collect_parameters(options.model.get(), *optimizer);
  trainable.clear();
  std::copy_if(now.begin(), now.end(), std::back_inserter(trainable),
               [](const NamedTensor& named) { return named.tensor.requires_grad(); });
  const std::vector<NamedTensor> buffers = internal::collect_buffers(options.model.get());
  internal::compare_between_ranks(*communicator,
                                  internal::describe_training_state(now, buffers, *optimizer));
  now.insert(now.end(), buffers.begin(), buffers.end());

  std::vector<at::Tensor> added;
  for (const NamedTensor& named : now) {
    if (std::none_of(known.begin(), known.end(),
                     [&](const NamedTensor& old) { return old.tensor.is_same(named.tensor); })) {
      added.push_back(named.tensor.detach());
    }
  }
  communicator->bcast(added);
  known = std::move(now);
  make_buckets();
  signature = internal::parameter_signature(options.model.get(), *optimizer);
}

void MultiNodeOptimizer::Impl::make_buckets() {
  buckets.clear();
  if (!communicator->impl().packs()) {
    return;
  }
  std::vector<std::vector<NamedTensor>> groups;
  for (const NamedTensor& named : trainable) {
    const auto found = std::find_if(groups.begin(), groups.end(), [&](const auto& group) {
      return group.front().tensor.scalar_type() == named.tensor.scalar_type();
    });
    (found == groups.end() ? groups.emplace_back() : *found).push_back(named);
  }
  for (std::vector<NamedTensor>& group : groups) {
    buckets.emplace_back(std::move(group));
  }
}

// `presence` is the same on all ranks, so all of them come here with the same answer.
void MultiNodeOptimizer::Impl::check_presence(const std::vector<NamedTensor>& of,
                                              const std::vector<Presence>& presence) {
  const auto partial = std::find_if(presence.begin(), presence.end(),
                                    [](const Presence& p) { return p.somewhere && !p.everywhere; });
  if (options.zero_fill || partial == presence.end()) {
    return;
  }
  std::string own;
  for (const NamedTensor& parameter : of) {
    own += has_gradient(parameter) ? '1' : '0';
  }
  const std::vector<std::string> has = communicator->allgather_obj(own);
  const auto index = static_cast<std::size_t>(partial - presence.begin());
  internal::fail_on_all_ranks(
      *communicator,
      std::make_exception_ptr(MismatchError(
          "parameter '" + of[index].name + "' has a gradient on ranks " +
          list_ranks(has, index, '1') + " and none on ranks " + list_ranks(has, index, '0') +
          ". Use zero_fill = true where ranks may take different branches of the model")));
}

void MultiNodeOptimizer::Impl::exchange_packed() {
  for (GradientBucket& bucket : buckets) {
    bucket.gather();
    communicator->allreduce_mean(bucket.flat());
    const std::vector<Presence> presence = bucket.presence();
    check_presence(bucket.parameters(), presence);
    bucket.scatter(presence);
  }
}

// The "naive" way: nothing is packed, so who has which gradient travels first and by itself.
void MultiNodeOptimizer::Impl::exchange_one_by_one() {
  const at::NoGradGuard no_grad;
  if (trainable.empty()) {
    return;
  }
  const auto count = static_cast<std::int64_t>(trainable.size());
  const at::Tensor present = at::zeros({count}, c10::TensorOptions(c10::kLong));
  auto* const holders = present.mutable_data_ptr<std::int64_t>();
  for (std::size_t i = 0; i < trainable.size(); ++i) {
    holders[i] = has_gradient(trainable[i]) ? 1 : 0;
  }
  communicator->allreduce(present);
  std::vector<Presence> presence;
  for (std::size_t i = 0; i < trainable.size(); ++i) {
    presence.push_back({holders[i] != 0, holders[i] == communicator->size()});
  }
  check_presence(trainable, presence);

  std::vector<at::Tensor> gradients;
  for (std::size_t i = 0; i < trainable.size(); ++i) {
    if (!presence[i].somewhere) {
      continue;
    }
    at::Tensor& gradient = trainable[i].tensor.mutable_grad();
    gradient = gradient.defined() ? internal::dense_gradient(trainable[i])
                                  : at::zeros_like(trainable[i].tensor);
    gradients.push_back(gradient);
  }
  communicator->allreduce_mean(gradients);
}

MultiNodeOptimizer::MultiNodeOptimizer(std::unique_ptr<torch::optim::Optimizer> optimizer,
                                       std::shared_ptr<Communicator> communicator,
                                       MultiNodeOptimizerOptions options)
    : impl_(std::make_unique<Impl>()) {
  if (!optimizer || !communicator) {
    throw InvalidArgument("a multi-node optimizer needs an optimizer and a communicator");
  }
  impl_->optimizer = std::move(optimizer);
  impl_->communicator = std::move(communicator);
  impl_->options = std::move(options);
  synchronize();
}

MultiNodeOptimizer::~MultiNodeOptimizer() = default;

void MultiNodeOptimizer::synchronize() {
  impl_->known.clear();  // so that all counts as new
  impl_->adopt_parameters();
  Communicator& communicator = *impl_->communicator;
  const bool is_root = communicator.rank() == 0;
  const std::string state = communicator.bcast_obj(
      is_root && communicator.size() > 1 ? internal::save_optimizer(*impl_->optimizer) : "");
  if (!is_root) {
    internal::load_optimizer(state, *impl_->optimizer);
  }
}

void MultiNodeOptimizer::zero_grad(bool set_to_none) {
  impl_->optimizer->zero_grad(set_to_none);
  if (impl_->options.model) {
    impl_->options.model->zero_grad(set_to_none);
  }
}

void MultiNodeOptimizer::allreduce_grad() {
  if (internal::parameter_signature(impl_->options.model.get(), *impl_->optimizer) !=
      impl_->signature) {
    impl_->adopt_parameters();
  }
  if (impl_->communicator->impl().packs()) {
    impl_->exchange_packed();
  } else {
    impl_->exchange_one_by_one();
  }
}

void MultiNodeOptimizer::step() {
  allreduce_grad();
  impl_->optimizer->step();
  impl_->communicator->impl().world->report_step(++impl_->steps);
}

torch::optim::Optimizer& MultiNodeOptimizer::actual_optimizer() noexcept {
  return *impl_->optimizer;
}

std::unique_ptr<MultiNodeOptimizer> create_multi_node_optimizer(
    std::unique_ptr<torch::optim::Optimizer> optimizer,
    const std::shared_ptr<Communicator>& communicator, MultiNodeOptimizerOptions options) {
  return std::make_unique<MultiNodeOptimizer>(std::move(optimizer), communicator,
                                              std::move(options));
}

}  // namespace chainmail
