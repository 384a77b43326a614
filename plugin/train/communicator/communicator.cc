// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include <chainmail/communicator.h>
#include <chainmail/train/agreed_error.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "base/log.h"
#include "plugin/tensor/tensor_bytes.h"
#include "plugin/train/communicator/communicator_impl.h"
#include "plugin/train/communicator/family.h"
#include "plugin/train/communicator/parts.h"
#include "plugin/train/tensor_checks.h"

namespace chainmail {

namespace {

constexpr auto kAgreementTimeout = std::chrono::seconds{5};

ops::Collective barrier_of(std::optional<std::chrono::milliseconds> timeout) {
  ops::Collective collective;
  collective.kind = ops::OpKind::kBarrier;
  collective.timeout = timeout;
  collective.is_async = false;
  return collective;
}

// See mark_agreed(); ascending.
thread_local std::vector<int> agreed_ranks;

}  // namespace

Communicator::Communicator(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {
  impl_->exceptions_at_start = std::uncaught_exceptions();
}

Communicator::~Communicator() {
  const bool is_unwinding = std::uncaught_exceptions() > impl_->exceptions_at_start;
  const std::exception_ptr cause = is_unwinding ? impl_->group->error() : nullptr;
  if (cause) internal::remember_cause(cause);
  if (is_unwinding) internal::tell_of_unwinding(*this, "an exception ends its program");
  // Otherwise the group waits for what is queued and closes.
}

int Communicator::rank() const noexcept { return impl_->group->rank(); }
int Communicator::size() const noexcept { return impl_->group->size(); }
int Communicator::intra_rank() const noexcept {
  return impl_->group->topology().local_rank_of(rank());
}
int Communicator::intra_size() const noexcept {
  return static_cast<int>(impl_->group->topology().ranks_of_node(inter_rank()).size());
}
int Communicator::inter_rank() const noexcept { return impl_->group->topology().node_of(rank()); }
int Communicator::inter_size() const noexcept { return impl_->group->topology().node_count(); }
const std::string& Communicator::name() const noexcept { return impl_->name; }
const CommunicatorOptions& Communicator::config() const noexcept { return impl_->options; }
std::chrono::nanoseconds Communicator::waited() const noexcept { return impl_->waited; }

void Communicator::Impl::check_usable() const {
  agreed_ranks.clear();
  internal::forget_cause();
  if (failure) std::rethrow_exception(failure);
  if (is_finalized) throw InvalidArgument("this communicator is finalized; create a new one");
  if (const std::exception_ptr error = group->error()) std::rethrow_exception(error);
}

ops::Group& Communicator::Impl::in_graph() {
  check_usable();
  if (!graph_group) {
    ops::GroupOptions graph_options = group->options();
    graph_options.name += "/graph";
    graph_group = create_group(std::move(graph_options));
    internal::add_to_family(world, graph_group);
  }
  return *graph_group;
}

void Communicator::Impl::check_root(int root, const char* operation) const {
  if (root < 0 || root >= group->size()) {
    throw InvalidArgument(std::string(operation) + ": root " + std::to_string(root) +
                          " is not a rank of this communicator of " +
                          std::to_string(group->size()));
  }
}

void Communicator::Impl::reduce(const at::Tensor& flat, ops::ReduceOp op, ops::WireFormat wire,
                                at::ArrayRef<at::Tensor> shapes) {
  ops::Collective collective = internal::all_reduce_of(flat, op, wire, shapes);
  if (const auto context = device_context(flat.device())) {
    // Queued on the caller's stream, without waiting.
    static_cast<void>(context->issue({&collective, 1}, context->begin(/*is_async=*/false)));
    return;
  }
  group->run(std::move(collective));
}

void Communicator::Impl::reduce_all(at::ArrayRef<at::Tensor> tensors, ops::ReduceOp op,
                                    ops::WireFormat wire) {
  const auto reduce_packed = [&](at::ArrayRef<at::Tensor> part) {
    if (part.size() == 1 && internal::is_flat(part.front())) {
      reduce(part.front(), op, wire, part);
      internal::mark_written(part.front());
      return;
    }
    const at::Tensor flat = pack_buffer.pack(part);
    reduce(flat, op, wire, part);
    internal::unpack(flat, part);
  };
  if (packs()) {
    for (const std::vector<at::Tensor>& part : internal::group_by_dtype(tensors)) {
      reduce_packed(part);
    }
  } else {
    for (const at::Tensor& tensor : tensors) reduce_packed(tensor);
  }
}

void Communicator::allreduce(at::ArrayRef<at::Tensor> tensors) {
  impl_->check_usable();
  internal::check_dense(tensors, "allreduce");
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> values;
  std::vector<at::Tensor> parts;  // complex numbers add up like pairs
  for (const at::Tensor& tensor : tensors) {
    values.push_back(internal::resolved(tensor));
    parts.push_back(tensor.is_complex() ? at::view_as_real(values.back().detach()) : values.back());
  }
  // Only gradients are rounded: a sum of counts or indices must stay what it is.
  impl_->reduce_all(parts, ops::ReduceOp::kSum, ops::WireFormat::kNative);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (!values[i].is_same(tensors[i])) tensors[i].copy_(values[i]);
  }
}

void Communicator::allreduce_mean(at::ArrayRef<at::Tensor> tensors) {
  impl_->check_usable();
  internal::check_dense(tensors, "allreduce_mean");
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.is_floating_point()) {
      throw InvalidArgument(std::string("allreduce_mean takes floating-point tensors, not ") +
                            c10::toString(tensor.scalar_type()) +
                            "; use allreduce and divide the sum");
    }
  }
  impl_->reduce_all(tensors, ops::ReduceOp::kAvg, impl_->group->options().wire);
}

void Communicator::barrier() {
  impl_->check_usable();
  impl_->group->run(barrier_of(std::nullopt));
}

void Communicator::Impl::wait_for_agreement() noexcept {
  try {
    group->run(barrier_of(kAgreementTimeout));
  } catch (const std::exception& error) {
    // The agreed error counts, whatever happens here.
    internal::LogMessage(internal::LogLevel::kInfo) << "after an agreed error: " << error.what();
  }
}

void Communicator::Impl::mark_agreed() const {
  agreed_ranks = world_ranks;
  std::ranges::sort(agreed_ranks);
}

void Communicator::abort(const std::string& reason) {
  const auto error = std::make_exception_ptr(
      PeerError("rank " + std::to_string(impl_->world->rank()) + " on " + impl_->world->host() +
                    " ended communicator " + impl_->group->options().name + ": " + reason,
                impl_->world->rank()));
  impl_->group->abort(error);
  if (impl_->graph_group) impl_->graph_group->abort(error);
}

void Communicator::finalize() {
  if (impl_->is_finalized) return;
  impl_->is_finalized = true;
  impl_->device_contexts->shutdown();
  impl_->group->shutdown();
  if (impl_->graph_group) impl_->graph_group->shutdown();
}

namespace internal {

void require_communicator(const std::shared_ptr<Communicator>& communicator, const char* what) {
  if (!communicator) throw InvalidArgument(std::string(what) + " needs a communicator");
}

bool have_agreed(std::vector<int> ranks) {
  std::ranges::sort(ranks);
  return std::ranges::includes(agreed_ranks, ranks);
}

void fail_on_all_ranks(Communicator& communicator, const std::string& message) {
  const auto error = std::make_exception_ptr(Agreed(MismatchError(message)));
  communicator.impl().wait_for_agreement();
  communicator.impl().mark_agreed();
  communicator.impl().failure = error;
  std::rethrow_exception(error);
}

}  // namespace internal
}  // namespace chainmail
