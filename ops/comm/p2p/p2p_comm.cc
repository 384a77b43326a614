// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/comm/p2p/p2p_comm.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "base/error.h"
#include "ops/kernels/cpu/kernels.h"

namespace chainmail::ops {
namespace {

// Lives in its Call.
class CallRequest final : public Request {
 public:
  [[nodiscard]] static std::unique_ptr<Request> make(CallQueue& queue, Call& call) {
    return std::unique_ptr<Request>(new (call) CallRequest(queue, call));
  }
  ~CallRequest() override {
    // The buffer goes with its request: nobody may write to it any more.
    if (!call_.is_done && !queue_.has_failed()) {
      queue_.fail(std::make_exception_ptr(PeerError(
                      "a rank gave up " + call_.args.header.describe() + " before it was done")),
                  call_.context.failure);
    }
    queue_.give_back(call_);
  }
  CallRequest(const CallRequest&) = delete;
  CallRequest& operator=(const CallRequest&) = delete;
  bool test() override { return queue_.test(call_); }
  void wait() override { queue_.wait(call_); }

  static void* operator new(std::size_t /*bytes*/, Call& call) noexcept {
    static_assert(sizeof(CallRequest) <= sizeof call.handle_memory);
    return call.handle_memory.data();
  }
  static void operator delete(void* /*memory*/) noexcept {}
  static void operator delete(void* /*memory*/, Call& /*call*/) noexcept {}

 private:
  CallRequest(CallQueue& queue, Call& call) : queue_(queue), call_(call) {}

  CallQueue& queue_;
  Call& call_;
};

// What a reduction over one rank is: the factor, no rounding, since nothing travels.
void reduce_alone(std::byte* data, std::size_t count, const Reduction& reduction) {
  if (count != 0 && is_floating_point(reduction.dtype) && reduction.scale != 1.0) {
    scale_in_place(data, count, reduction.dtype, reduction.scale);
  }
}

}  // namespace

P2pComm::P2pComm(std::unique_ptr<Transport> transport, const P2pOptions& options)
    : transport_(std::move(transport)),
      options_(options),
      queue_(*transport_, options.tracker != nullptr ? *options.tracker : own_tracker_, options_) {}

Call& P2pComm::all_reduce_call(std::byte* data, std::size_t count, const Reduction& reduction,
                               const OpContext& context) {
  Call& call = queue_.take(context);
  call.args.reduction = reduction;
  call.args.data = data;
  call.args.count = count;
  return call;
}

void P2pComm::all_reduce(std::byte* data, std::size_t count, const Reduction& reduction,
                         const OpContext& context) {
  if (size() == 1) return reduce_alone(data, count, reduction);
  Call& call = all_reduce_call(data, count, reduction, context);
  queue_.run(call, plan_all_reduce(call.args, size(), options_));
}

std::unique_ptr<Request> P2pComm::start_all_reduce(std::byte* data, std::size_t count,
                                                   const Reduction& reduction,
                                                   const OpContext& context) {
  if (size() == 1) {
    reduce_alone(data, count, reduction);
    return nullptr;
  }
  Call& call = all_reduce_call(data, count, reduction, context);
  auto request = CallRequest::make(queue_, call);
  queue_.launch(call, plan_all_reduce(call.args, size(), options_));
  return request;
}

void P2pComm::reduce(std::byte* data, std::size_t count, const Reduction& reduction, int root,
                     const OpContext& context) {
  const std::size_t bytes = count * size_of(reduction.dtype);
  if (root != rank() && bytes != 0) {
    std::byte* copy = reduce_copy_.get(bytes);
    std::memcpy(copy, data, bytes);
    data = copy;
  }
  all_reduce(data, count, reduction, context);
}

void P2pComm::reduce_scatter(ConstParts input, std::byte* output, const Reduction& reduction,
                             const OpContext& context) {
  std::size_t bytes = 0;
  for (const auto& part : input) bytes += part.size();
  const std::size_t count = bytes / size_of(reduction.dtype);
  if (size() == 1) {
    if (bytes != 0 && output != input[0].data()) std::memcpy(output, input[0].data(), bytes);
    return reduce_alone(output, count, reduction);
  }
  Call& call = all_reduce_call(output, count, reduction, context);
  call.args.inputs.assign(input.begin(), input.end());
  queue_.run(call, plan_reduce_scatter(call.args, size(), options_));
}

void P2pComm::all_gather(Parts parts, const OpContext& context) {
  if (size() == 1) return;
  Call& call = queue_.take(context);
  call.args.count = 0;
  for (const auto& part : parts) call.args.count += part.size();
  call.args.parts.assign(parts.begin(), parts.end());
  queue_.run(call, plan_all_gather(call.args, size(), options_));
}

void P2pComm::broadcast(std::byte* data, std::size_t bytes, int root, const OpContext& context) {
  if (size() == 1) return;
  Call& call = queue_.take(context);
  call.args.data = data;
  call.args.count = bytes;
  call.args.root = root;
  queue_.run(call, plan_broadcast(call.args, size(), options_));
}

void P2pComm::all_to_all(ConstParts send, Parts receive, const OpContext& context) {
  Call& call = queue_.take(context);
  call.args.inputs.assign(send.begin(), send.end());
  call.args.parts.assign(receive.begin(), receive.end());
  queue_.run(call, ScheduleKind::kAllToAll);
}

void P2pComm::barrier(const OpContext& context) {
  if (size() == 1) return;
  queue_.run(queue_.take(context), ScheduleKind::kBarrier);
}

}  // namespace chainmail::ops
