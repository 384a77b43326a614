// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Life, errors and point-to-point of the backend; collectives are in reductions.cc and
// movements.cc.

#include "plugin/c10d/backend/chainmail_backend.h"
#include "plugin/c10d/backend/checks.h"

#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>

#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "plugin/c10d/backend/elements.h"
#include "plugin/tensor/tensor_bytes.h"

namespace chainmail::internal {

ChainmailBackend::ChainmailBackend(std::shared_ptr<ops::Group> group, std::string group_name)
    : Backend(group->rank(), group->size()),
      group_(std::move(group)),
      group_name_(std::move(group_name)),
      timeout_(group_->options().timeout) {
  init();
}

ChainmailBackend::~ChainmailBackend() {
  if (!is_registered_) return;
  try {
    c10d::unregister_process_group(group_name_);
  } catch (const std::exception& failure) {
    log_line(LogLevel::kWarning, "forgetting group " + group_name_ + ": " + failure.what());
  }
}

c10::intrusive_ptr<c10d::Backend::Options> ChainmailBackend::getBackendOptions() {
  auto options = c10::make_intrusive<Options>(getBackendName(), timeout_.load());
  options->group_name = group_name_;
  return options;
}

ChainmailBackend::WorkPtr ChainmailBackend::launch(const Call& call, ops::Collective collective,
                                                   std::shared_ptr<Payload> payload) {
  // c10d's "unset" is -1 ms; 0 would mean "at once", which nobody wants.
  collective.timeout = call.timeout.count() > 0 ? call.timeout : timeout_.load();
  collective.is_async = call.is_async;
  // The operation keeps this function, and with it the tensors, until it is done.
  collective.describe_shapes = [payload] { return describe_shapes(payload->results); };
  const std::uint64_t sequence = group_->sequence();
  auto work = c10::make_intrusive<ChainmailWork>(rank_, call.type, sequence, std::move(payload),
                                                 group_->submit(std::move(collective)));
  if (!call.is_async) work->wait();
  return work;
}

void ChainmailBackend::check_rank(std::int64_t rank, const char* what) const {
  TORCH_CHECK(rank >= 0 && rank < size_, "chainmail: ", what, ": rank ", rank,
              " is not in a group of ", size_);
}

ChainmailBackend::WorkPtr ChainmailBackend::send(std::vector<at::Tensor>& tensors, int destination,
                                                 int tag) {
  const at::Tensor& tensor = only_tensor(tensors, "send");
  check_rank(destination, "send");
  const at::Tensor flat = pack(tensors);
  const Elements elements = elements_to_move(tensor.scalar_type());
  ops::Collective collective;
  collective.kind = ops::OpKind::kSend;
  collective.dtype = elements.dtype;
  collective.count = static_cast<std::size_t>(flat.numel()) * elements.factor;
  collective.input = static_cast<const std::byte*>(flat.const_data_ptr());
  collective.root = destination;
  collective.tag = static_cast<std::uint32_t>(tag);
  auto payload = std::make_shared<Payload>();
  payload->results = tensors;
  payload->buffers = {flat};
  return launch({c10d::OpType::SEND, c10d::kUnsetTimeout, true}, std::move(collective),
                std::move(payload));
}

ChainmailBackend::WorkPtr ChainmailBackend::recv(std::vector<at::Tensor>& tensors, int source,
                                                 int tag) {
  const at::Tensor& tensor = only_tensor(tensors, "recv");
  check_rank(source, "recv");
  check_writable(tensors, "recv");
  const at::Tensor flat = pack_empty(tensors);
  const Elements elements = elements_to_move(tensor.scalar_type());
  ops::Collective collective;
  collective.kind = ops::OpKind::kRecv;
  collective.dtype = elements.dtype;
  collective.count = static_cast<std::size_t>(flat.numel()) * elements.factor;
  collective.output = static_cast<std::byte*>(flat.mutable_data_ptr());
  collective.root = source;
  collective.tag = static_cast<std::uint32_t>(tag);
  auto payload = std::make_shared<Payload>();
  payload->results = tensors;
  if (!flat.is_same(tensor)) payload->copy_out = [flat, tensors] { unpack(flat, tensors); };
  return launch({c10d::OpType::RECV, c10d::kUnsetTimeout, true}, std::move(collective),
                std::move(payload));
}

ChainmailBackend::WorkPtr ChainmailBackend::barrier(const c10d::BarrierOptions& opts) {
  ops::Collective collective;
  collective.kind = ops::OpKind::kBarrier;
  return launch({c10d::OpType::BARRIER, opts.timeout, opts.asyncOp}, std::move(collective),
                std::make_shared<Payload>());
}

void ChainmailBackend::monitoredBarrier(const c10d::BarrierOptions& opts, bool /*wait_all_ranks*/) {
  // Every barrier of ours names the ranks that did not come.
  c10d::BarrierOptions blocking = opts;
  blocking.asyncOp = false;
  barrier(blocking);
}

void ChainmailBackend::abort() {
  group_->abort(
      std::make_exception_ptr(PeerError("group " + group_name_ + " was aborted by rank " +
                                            std::to_string(rank_) + " on " + group_->options().host,
                                        rank_)));
}

void ChainmailBackend::shutdown() { group_->shutdown(); }

c10d::ErrorType ChainmailBackend::getError() {
  const std::exception_ptr error = group_->error();
  if (!error) return c10d::ErrorType::SUCCESS;
  try {
    std::rethrow_exception(error);
  } catch (const TimeoutError&) {
    return c10d::ErrorType::TIMEOUT;
  } catch (const PeerError&) {
    return c10d::ErrorType::REMOTE_ERROR;
  } catch (...) {
    return c10d::ErrorType::COMM_ERROR;
  }
}

void ChainmailBackend::setTimeout(std::chrono::milliseconds timeout) {
  TORCH_CHECK(timeout.count() > 0, "chainmail: a timeout must be positive, got ", timeout.count(),
              " ms");
  timeout_ = timeout;
}

}  // namespace chainmail::internal
