// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include <string>
#include <utility>

#include <ATen/ATen.h>

#include <chainmail/data/iterators.h>

namespace chainmail {

TensorIterator::TensorIterator(TensorList tensors, MultiNodeSampler sampler,
                               TensorIteratorOptions options)
    : tensors_(std::move(tensors)), sampler_(std::move(sampler)), options_(options) {
  if (options_.batch_size < 1) {
    throw InvalidArgument("batches of " + std::to_string(options_.batch_size) + " samples");
  }
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const bool has_rows = tensors_[i].defined() && tensors_[i].dim() > 0;
    if (!has_rows || tensors_[i].size(0) != static_cast<std::int64_t>(sampler_.size())) {
      throw InvalidArgument("tensor " + std::to_string(i) + " has " +
                            (has_rows ? std::to_string(tensors_[i].size(0)) : std::string("no")) +
                            " rows, the sampler " + std::to_string(sampler_.size()) + " samples");
    }
  }
}

std::optional<TensorList> TensorIterator::next() {
  if (std::exchange(is_at_end_, false)) sampler_.reset();
  std::optional<std::vector<std::size_t>> indices =
      sampler_.next(static_cast<std::size_t>(options_.batch_size));
  if (!indices) {
    is_at_end_ = true;
    return std::nullopt;
  }
  const at::NoGradGuard no_grad;
  static_assert(sizeof(std::size_t) == sizeof(std::int64_t));
  const at::Tensor rows =
      at::from_blob(indices->data(), {static_cast<std::int64_t>(indices->size())}, at::kLong);
  TensorList batch;
  for (const at::Tensor& tensor : tensors_) {
    const bool is_first = batch.empty();
    const at::Tensor picked = tensor.index_select(0, rows.to(tensor.device()));
    batch.push_back(picked.to(is_first ? options_.data_type : options_.target_type));
    if (is_first && options_.scale != 1.0) batch.front().mul_(options_.scale);
  }
  return batch;
}

void TensorIterator::load_state(const SamplerState& state) {
  sampler_.load_state(state);
  is_at_end_ = false;
}

std::int64_t TensorIterator::batches_per_epoch() const {
  return static_cast<std::int64_t>(
      sampler_.batches_per_epoch(static_cast<std::size_t>(options_.batch_size)));
}

}  // namespace chainmail
