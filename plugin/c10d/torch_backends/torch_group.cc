// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/c10d/torch_backends/torch_group.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstdlib>
#include <new>
#include <utility>
#include <vector>

#include "base/error.h"
#include "plugin/c10d/collectives/elements.h"
#include "plugin/tensor/element_type.h"

namespace chainmail::internal {
namespace {

constexpr std::size_t kAlignment = 64;  // of torch's own tensors

/// An operation that was over when submit() returned.
class DoneOperation final : public ops::Operation {
 public:
  bool is_done() const noexcept override { return true; }
  void wait(std::optional<std::chrono::milliseconds> /*timeout*/) override {}
  std::exception_ptr error() const override { return nullptr; }
  void on_done(std::function<void()> callback) override { callback(); }
  int source_rank() const noexcept override { return -1; }
};

at::Tensor view(const std::byte* data, std::size_t count, at::ScalarType type) {
  // Backends only read what they send; from_blob has no form for that.
  return at::from_blob(const_cast<std::byte*>(data), {static_cast<std::int64_t>(count)}, type);
}

at::Tensor bytes(const std::byte* data, const ops::Collective& collective) {
  return view(data, collective.count * ops::size_of(collective.dtype), at::kByte);
}

std::string text_of(const std::exception& error) {
  const auto* torchs = dynamic_cast<const c10::Error*>(&error);
  return torchs != nullptr ? torchs->what_without_backtrace() : error.what();
}

}  // namespace

TorchGroup::TorchGroup(c10::intrusive_ptr<c10d::Backend> backend, ops::Topology topology,
                       ops::GroupOptions options)
    : rank_(backend->getRank()),
      topology_(std::move(topology)),
      options_(std::move(options)),
      name_(backend->getBackendName()),
      backend_(std::move(backend)) {}

void TorchGroup::all_reduce(const ops::Collective& collective) {
  if (collective.cut) throw InvalidArgument(name_ + " cannot share a tensor inside a node");
  if (collective.shards) throw InvalidArgument(name_ + " cannot sum shards along their tree");
  c10d::AllreduceOptions how;
  // Gloo has no mean: the sum is divided.
  const bool divides = collective.reduce_op == ops::ReduceOp::kAvg;
  how.reduceOp = to_torch_reduce_op(divides ? ops::ReduceOp::kSum : collective.reduce_op, name_);
  std::vector<at::Tensor> tensors{
      view(collective.output, collective.count, scalar_type_of(collective.dtype))};
  backend_->allreduce(tensors, how)->wait();
  if (!divides) return;
  if (tensors[0].is_floating_point()) {
    tensors[0].div_(size());
  } else {
    tensors[0].div_(size(), "trunc");
  }
}

// Torch's backends gather equal parts: all travel in places as long as the longest.
void TorchGroup::all_gather_parts(const ops::Collective& collective) {
  std::vector<std::size_t> counts = collective.receive_counts;
  if (counts.empty()) counts.assign(collective.output_parts.size(), collective.count);
  const std::size_t size_of_one = ops::size_of(collective.dtype);
  const std::size_t longest = *std::ranges::max_element(counts) * size_of_one;
  if (longest == 0) return;
  std::vector<at::Tensor> inputs{at::zeros({static_cast<std::int64_t>(longest)}, at::kByte)};
  const auto begin_of = [&](const at::Tensor& place, std::size_t r) {
    return place.narrow(0, 0, static_cast<std::int64_t>(counts[r] * size_of_one));
  };
  const auto own = static_cast<std::size_t>(rank_);
  begin_of(inputs[0], own).copy_(view(collective.input, counts[own] * size_of_one, at::kByte));
  std::vector<std::vector<at::Tensor>> outputs(1);
  for (int r = 0; r < size(); ++r) outputs[0].push_back(at::empty_like(inputs[0]));
  backend_->allgather(outputs, inputs)->wait();
  for (std::size_t r = 0; r < counts.size(); ++r) {
    view(collective.output_parts.at(r), counts[r] * size_of_one, at::kByte)
        .copy_(begin_of(outputs[0][r], r));
  }
}

void TorchGroup::all_gather(const ops::Collective& collective) {
  if (!collective.output_parts.empty()) return all_gather_parts(collective);
  if (!collective.receive_counts.empty()) {
    throw InvalidArgument("communicator '" + name_ +
                          "' gathers unequal parts into places of their own only");
  }
  const std::size_t part_bytes = collective.count * ops::size_of(collective.dtype);
  std::vector<std::vector<at::Tensor>> outputs(1);
  for (int r = 0; r < size(); ++r) {
    outputs[0].push_back(
        bytes(collective.output + static_cast<std::size_t>(r) * part_bytes, collective));
  }
  std::vector<at::Tensor> inputs{bytes(collective.input, collective)};
  backend_->allgather(outputs, inputs)->wait();
}

void TorchGroup::carry_out(const ops::Collective& collective) {
  if (collective.cut != nullptr || collective.shards != nullptr) {
    throw InvalidArgument("communicator '" + name_ + "' has neither slices nor shards of a " +
                          to_string(collective.kind) + "; use one of Chainmail's own");
  }
  switch (collective.kind) {
    case ops::OpKind::kAllReduce:
      return all_reduce(collective);
    case ops::OpKind::kAllGather:
      return all_gather(collective);
    case ops::OpKind::kBroadcast: {
      c10d::BroadcastOptions how;
      how.rootRank = collective.root;
      std::vector<at::Tensor> tensors{bytes(collective.output, collective)};
      backend_->broadcast(tensors, how)->wait();
      return;
    }
    case ops::OpKind::kBarrier: {
      c10d::BarrierOptions how;
      if (collective.timeout) how.timeout = *collective.timeout;
      backend_->barrier(how)->wait();
      return;
    }
    case ops::OpKind::kReduce:
    case ops::OpKind::kReduceScatter:
    case ops::OpKind::kGather:
    case ops::OpKind::kScatter:
    case ops::OpKind::kAllToAll:
    case ops::OpKind::kSend:
    case ops::OpKind::kRecv:
    case ops::OpKind::kAllocate:
      break;
  }
  throw InvalidArgument("communicator '" + name_ + "' does not carry " +
                        to_string(collective.kind) + "; use one of Chainmail's own");
}

void TorchGroup::run(const ops::Collective& collective) {
  if (const auto error = this->error()) std::rethrow_exception(error);
  const std::lock_guard lock(mutex_);
  if (!backend_) throw InvalidArgument("group " + options_.name + " is shut down");
  ++sequence_;
  const bool has_parts = !collective.send_counts.empty() || !collective.receive_counts.empty();
  if (collective.count == 0 && !has_parts && collective.kind != ops::OpKind::kBarrier) return;
  try {
    carry_out(collective);
  } catch (const InvalidArgument&) {
    throw;
  } catch (const std::exception& failure) {
    failure_.fail(std::make_exception_ptr(
        PeerError(name_ + " on rank " + std::to_string(rank_) + " on " + options_.host + ": " +
                  to_string(collective.kind) + " #" + std::to_string(sequence_ - 1) + " of group " +
                  options_.name + " failed: " + text_of(failure))));
    std::rethrow_exception(error());
  }
}

std::shared_ptr<ops::Operation> TorchGroup::submit(ops::Collective collective) {
  if (collective.prepare) collective.prepare(collective);
  run(collective);
  return std::make_shared<DoneOperation>();
}

std::shared_ptr<std::byte> TorchGroup::allocate(std::size_t bytes) {
  const std::size_t padded = (bytes + kAlignment - 1) / kAlignment * kAlignment + kAlignment;
  auto* const memory = static_cast<std::byte*>(std::aligned_alloc(kAlignment, padded));
  if (memory == nullptr) throw std::bad_alloc();
  std::fill_n(memory, padded, std::byte{});
  return {memory, [](std::byte* data) { std::free(data); }};
}

void TorchGroup::abort(std::exception_ptr error) {
  failure_.fail(std::move(error));
  // The peers see closed connections; an operation in flight keeps the backend until it ends.
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (lock.owns_lock()) backend_.reset();
}

void TorchGroup::shutdown() {
  const std::lock_guard lock(mutex_);
  backend_.reset();
}

void TorchGroup::set_timeout(std::chrono::milliseconds /*timeout*/) {
  throw InvalidArgument("communicator '" + name_ +
                        "' keeps the time limit that it was made with; torch's own groups have no "
                        "way to change it");
}

}  // namespace chainmail::internal
