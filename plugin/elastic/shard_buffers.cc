// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/elastic/shard_buffers.h"

#include <algorithm>
#include <utility>

#include <ATen/ATen.h>

#include <chainmail/error.h>

namespace chainmail::internal {
namespace {

at::Tensor flatten(const std::vector<at::Tensor>& tensors, c10::ScalarType type) {
  std::vector<at::Tensor> parts;
  for (const at::Tensor& tensor : tensors) parts.push_back(tensor.reshape({-1}).to(type));
  return parts.empty() ? at::empty({0}, c10::TensorOptions(type)) : at::cat(parts);
}

void unflatten(const at::Tensor& flat, const std::vector<at::Tensor>& tensors) {
  std::int64_t begin = 0;
  for (const at::Tensor& tensor : tensors) {
    tensor.copy_(flat.narrow(0, begin, tensor.numel()).view(tensor.sizes()));
    begin += tensor.numel();
  }
}

}  // namespace

void ShardBuffers::add(const std::vector<NamedTensor>& buffers) {
  for (const NamedTensor& buffer : buffers) {
    if (!buffer.tensor.is_cpu() || buffer.tensor.is_complex()) {
      throw InvalidArgument("buffer '" + buffer.name + "' is a " + buffer.tensor.toString() +
                            ": in a job of shards buffers are real numbers on the CPU");
    }
    auto& kind = buffer.tensor.is_floating_point() ? real_ : whole_;
    const bool is_known = std::any_of(kind.begin(), kind.end(), [&](const at::Tensor& known) {
      return known.is_same(buffer.tensor);
    });
    if (is_known) continue;
    kind.push_back(buffer.tensor);
    stack_.reset();  // of another size
  }
}

void ShardBuffers::begin() {
  if (is_empty()) return;
  const at::NoGradGuard no_grad;
  committed_ = flatten(real_, c10::kDouble);
  committed_whole_ = flatten(whole_, c10::kLong);
  largest_whole_ = committed_whole_.clone();
  if (stack_) return;
  flat_ = at::zeros_like(committed_);
  stack_.emplace(progress_->cut, progress_->rank, flat_, ops::WireFormat::kNative);
}

void ShardBuffers::restore() {
  if (is_empty()) return;
  const at::NoGradGuard no_grad;
  unflatten(committed_, real_);
  unflatten(committed_whole_, whole_);
}

// The change counts, so that what no shard changes keeps its bits, infinity too.
void ShardBuffers::take(double weight) {
  if (is_empty()) return;
  const at::NoGradGuard no_grad;
  const at::Tensor now = flatten(real_, c10::kDouble);
  flat_.copy_(at::where(now == committed_, at::zeros_like(now), now - committed_));
  stack_->add(weight);
  largest_whole_ = at::maximum(largest_whole_, flatten(whole_, c10::kLong));
}

void ShardBuffers::take_nothing() {
  if (is_empty()) return;
  flat_.zero_();
  stack_->add(0);
}

void ShardBuffers::exchange(ops::Group& group) {
  if (is_empty()) return;
  ops::Collective sum;
  sum.dtype = ops::DataType::kFloat64;
  sum.count = static_cast<std::size_t>(flat_.numel());
  sum.output = static_cast<std::byte*>(flat_.data_ptr());
  sum.shards = progress_->cut;
  sum.pieces = stack_->pieces();
  sum.is_async = false;
  sum.describe_shapes = [] { return std::string("a model's buffers"); };
  group.run(sum);
  if (whole_.empty()) return;
  ops::Collective largest;
  largest.dtype = ops::DataType::kInt64;
  largest.reduce_op = ops::ReduceOp::kMax;
  largest.count = static_cast<std::size_t>(largest_whole_.numel());
  largest.output = static_cast<std::byte*>(largest_whole_.data_ptr());
  largest.is_async = false;
  largest.describe_shapes = sum.describe_shapes;
  group.run(largest);
}

void ShardBuffers::commit() {
  if (is_empty()) return;
  const at::NoGradGuard no_grad;
  unflatten(committed_ + flat_, real_);
  unflatten(largest_whole_, whole_);
  stack_->clear();
}

void ShardBuffers::drop() {
  if (is_empty() || !stack_) return;
  stack_->clear();
  restore();
}

}  // namespace chainmail::internal
