// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "tests/ops/support/fake_gpu/fake_nccl.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "ops/kernels/pack.h"
#include "tests/ops/support/fake_gpu/fake_meeting.h"

namespace chainmail::test {

using ops::DataType;
using ops::DeviceStream;
using ops::NcclCode;
using ops::NcclConfig;
using ops::NcclHandle;
using ops::NcclId;
using ops::OpKind;
using ops::ReduceOp;

/// A rank's place in a communicator.
struct FakeEndpoint {
  std::shared_ptr<FakeComm> comm;
  int rank = 0;
  std::string name;
  bool is_blocking = false;
  bool is_aborted = false;
  bool is_dead = false;                 ///< destroyed or aborted
  std::shared_ptr<FakeComm> splitting;  ///< whom it waits for: joined of size
  // As NCCL does, the child is told, at the caller's address, when the parent has settled or was
  // aborted.
  NcclHandle* child_slot = nullptr;
  FakeEndpoint* child = nullptr;
  bool is_captured = false;  ///< a graph refers to it
  std::uint64_t next_meeting = 0;
  // What has been called and has not settled yet.
  std::vector<std::shared_ptr<FakeCall>> calls;
  DeviceStream stream;
  std::vector<std::weak_ptr<FakeCall>> launched;
  bool has_launch = false;
  int polls_left = 0;
};

namespace {

FakeEndpoint& endpoint_of(NcclHandle comm) { return *static_cast<FakeEndpoint*>(comm.comm); }

void tell_child(FakeEndpoint& parent) {
  if (parent.child_slot != nullptr) parent.child_slot->comm = parent.child;
  parent.child_slot = nullptr;
}

bool is_transfer(OpKind kind) { return kind == OpKind::kSend || kind == OpKind::kRecv; }

}  // namespace

std::string FakeCall::describe() const {
  return std::string(ops::to_string(kind)) + " " + std::to_string(count) + " " +
         ops::to_string(type) + " " + ops::to_string(op) + " " + std::to_string(peer);
}

FakeCluster::FakeCluster(std::vector<int> nodes, unsigned seed)
    : node_of(std::move(nodes)),
      machine(std::make_shared<FakeMachine>(seed)),
      bytes_out(node_of.size()) {}

std::size_t FakeCluster::bytes_out_of(int node) {
  const std::lock_guard lock(machine->mutex());
  return bytes_out[static_cast<std::size_t>(node)];
}

std::string FakeCluster::first_mismatch() {
  const std::lock_guard lock(machine->mutex());
  return mismatch;
}

FakeNccl::FakeNccl(std::shared_ptr<FakeCluster> cluster, FakeDevice& device, int rank)
    : cluster_(std::move(cluster)), device_(device), rank_(rank) {}

FakeNccl::~FakeNccl() = default;

std::map<std::string, std::vector<std::string>> FakeNccl::log() {
  const std::lock_guard lock(cluster_->machine->mutex());
  return log_;
}

void FakeNccl::fail_next(const std::string& call, NcclCode code) {
  const std::lock_guard lock(cluster_->machine->mutex());
  injected_[call] = code;
}

void FakeNccl::fail_in_the_background(NcclCode code) {
  const std::lock_guard lock(cluster_->machine->mutex());
  background_ = code;
}

void FakeNccl::hang() {
  const std::lock_guard lock(cluster_->machine->mutex());
  is_hanging_ = true;
}

int FakeNccl::live_communicators() {
  const std::lock_guard lock(cluster_->machine->mutex());
  return live_;
}

int FakeNccl::graph_waits() {
  const std::lock_guard lock(cluster_->machine->mutex());
  return graph_waits_;
}

int FakeNccl::aborts() {
  const std::lock_guard lock(cluster_->machine->mutex());
  return aborts_;
}

NcclCode FakeNccl::injected(const std::string& call) {
  const auto found = injected_.find(call);
  if (found == injected_.end()) return NcclCode::kSuccess;
  const NcclCode code = found->second;
  injected_.erase(found);
  return code;
}

NcclCode FakeNccl::make_id(NcclId& id) noexcept {
  const std::lock_guard lock(cluster_->machine->mutex());
  const std::string text = "id " + std::to_string(++cluster_->ids);
  id.fill('\0');
  std::copy(text.begin(), text.end(), id.begin());
  return injected("make_id");
}

FakeEndpoint& FakeNccl::add_endpoint(std::shared_ptr<FakeComm> comm, int rank,
                                     const NcclConfig& config) {
  endpoints_.push_back(std::make_shared<FakeEndpoint>());
  FakeEndpoint& endpoint = *endpoints_.back();
  if (config.shares_resources) {
    cluster_->mismatch = config.name + " shares resources: nothing overlaps what its family does";
  }
  endpoint.comm = std::move(comm);
  endpoint.rank = rank;
  endpoint.name = config.name;
  endpoint.is_blocking = config.is_blocking;
  ++live_;
  return endpoint;
}

NcclCode FakeNccl::init(NcclHandle& comm, int size, const NcclId& id, int rank,
                        const NcclConfig& config) noexcept {
  const std::lock_guard lock(cluster_->machine->mutex());
  if (const NcclCode code = injected("init"); code != NcclCode::kSuccess) return code;
  auto& shared = cluster_->by_id[std::string(id.data(), id.size())];
  if (shared == nullptr) {
    shared = std::make_shared<FakeComm>();
    shared->size = static_cast<std::size_t>(size);
    shared->ranks.resize(shared->size);
  }
  shared->ranks[static_cast<std::size_t>(rank)] = rank_;
  ++shared->joined;
  comm.comm = &add_endpoint(shared, rank, config);
  return NcclCode::kInProgress;
}

NcclCode FakeNccl::split(NcclHandle parent, int color, int key, NcclHandle& child,
                         const NcclConfig& config) noexcept {
  const std::lock_guard lock(cluster_->machine->mutex());
  if (const NcclCode code = injected("split"); code != NcclCode::kSuccess) return code;
  FakeEndpoint& from = endpoint_of(parent);
  // Ranks that split for the n-th time meet; the order within a color is that of the keys, which
  // our callers choose as the members' own ranks.
  const std::string where = "split " +
                            std::to_string(reinterpret_cast<std::uintptr_t>(from.comm.get())) +
                            " " + std::to_string(from.next_meeting++);
  auto& everybody = cluster_->by_id[where];
  if (everybody == nullptr) {
    everybody = std::make_shared<FakeComm>();
    everybody->size = from.comm->size;
  }
  ++everybody->joined;
  from.splitting = everybody;
  if (color < 0) return NcclCode::kInProgress;
  auto& shared = cluster_->by_id[where + " " + std::to_string(color)];
  if (shared == nullptr) shared = std::make_shared<FakeComm>();
  const auto place = static_cast<std::size_t>(key);
  shared->ranks.resize(std::max(shared->ranks.size(), place + 1));
  shared->ranks[place] = rank_;
  FakeEndpoint& endpoint = add_endpoint(shared, key, config);
  endpoint.splitting = everybody;
  child.comm = nullptr;
  from.child_slot = &child;
  from.child = &endpoint;
  return NcclCode::kInProgress;
}

NcclCode FakeNccl::finalize(NcclHandle comm) noexcept {
  const std::lock_guard lock(cluster_->machine->mutex());
  if (endpoint_of(comm).is_captured) ++graph_waits_;
  return injected("finalize");
}

NcclCode FakeNccl::destroy(NcclHandle comm) noexcept {
  const std::lock_guard lock(cluster_->machine->mutex());
  if (!std::exchange(endpoint_of(comm).is_dead, true)) --live_;
  return NcclCode::kSuccess;
}

NcclCode FakeNccl::abort(NcclHandle comm) noexcept {
  const std::lock_guard lock(cluster_->machine->mutex());
  FakeEndpoint& endpoint = endpoint_of(comm);
  endpoint.is_aborted = true;
  tell_child(endpoint);
  for (const auto& weak : endpoint.launched) {
    if (const auto call = weak.lock(); call != nullptr) call->is_cancelled = true;
  }
  if (!std::exchange(endpoint.is_dead, true)) --live_;
  ++aborts_;
  return NcclCode::kSuccess;
}

NcclCode FakeNccl::async_error(NcclHandle comm, NcclCode& state) noexcept {
  const std::lock_guard lock(cluster_->machine->mutex());
  FakeEndpoint& endpoint = endpoint_of(comm);
  state = NcclCode::kSuccess;
  if (background_ != NcclCode::kSuccess) {
    state = background_;
  } else if (endpoint.comm->joined < endpoint.comm->size ||
             (endpoint.splitting != nullptr &&
              endpoint.splitting->joined < endpoint.splitting->size)) {
    state = NcclCode::kInProgress;
  } else if (endpoint.has_launch) {
    if (endpoint.polls_left-- > 0) {
      state = NcclCode::kInProgress;
    } else {
      launch(endpoint);
    }
  } else {
    tell_child(endpoint);
  }
  return NcclCode::kSuccess;
}

NcclCode FakeNccl::group_start() noexcept {
  const std::lock_guard lock(cluster_->machine->mutex());
  ++groups_[std::this_thread::get_id()].depth;
  return NcclCode::kSuccess;
}

NcclCode FakeNccl::group_end() noexcept {
  const std::lock_guard lock(cluster_->machine->mutex());
  OpenGroup& group = groups_[std::this_thread::get_id()];
  if (--group.depth > 0 || group.endpoint == nullptr) return NcclCode::kSuccess;
  FakeEndpoint& endpoint = *std::exchange(group.endpoint, nullptr);
  endpoint.has_launch = true;
  endpoint.polls_left = cluster_->polls_until_settled;
  if (!endpoint.is_blocking) return NcclCode::kInProgress;
  launch(endpoint);
  return NcclCode::kSuccess;
}

NcclCode FakeNccl::add(FakeCall call, NcclHandle comm, DeviceStream stream) {
  const std::lock_guard lock(cluster_->machine->mutex());
  if (const NcclCode code = injected(ops::to_string(call.kind)); code != NcclCode::kSuccess) {
    return code;
  }
  FakeEndpoint& endpoint = endpoint_of(comm);
  // A call before the one before has settled, or on a dead communicator, is the caller's mistake.
  if (endpoint.is_dead || endpoint.has_launch || endpoint.child_slot != nullptr) {
    return NcclCode::kInvalidUsage;
  }
  log_[endpoint.name].push_back(call.describe());
  OpenGroup& group = groups_[std::this_thread::get_id()];
  const bool is_alone = group.depth == 0;
  if (is_alone) ++group.depth;
  endpoint.calls.push_back(std::make_shared<FakeCall>(call));
  endpoint.stream = stream;
  group.endpoint = &endpoint;
  return is_alone ? group_end() : NcclCode::kSuccess;
}

void FakeNccl::launch(FakeEndpoint& endpoint) {
  endpoint.has_launch = false;
  const auto* const stream = static_cast<const FakeStream*>(endpoint.stream.handle);
  if (stream != nullptr && stream->capture != 0) endpoint.is_captured = true;
  auto calls = std::exchange(endpoint.calls, {});
  std::erase_if(endpoint.launched, [](const auto& weak) { return weak.expired(); });
  endpoint.launched.insert(endpoint.launched.end(), calls.begin(), calls.end());
  // A collective takes a number when it is called; transfers are matched by their peers.
  const std::uint64_t first = endpoint.next_meeting;
  for (const auto& call : calls) endpoint.next_meeting += is_transfer(call->kind) ? 0U : 1U;
  device_.queue(endpoint.stream, [this, &endpoint, calls, first, is_posted = false]() mutable {
    return run(endpoint, calls, first, is_posted);
  });
}

// With the machine locked, when the kernel is at the head of its stream.
bool FakeNccl::run(FakeEndpoint& endpoint, std::vector<std::shared_ptr<FakeCall>>& calls,
                   std::uint64_t first, bool& is_posted) {
  if (endpoint.is_aborted) return true;
  if (is_hanging_) return false;
  if (!is_posted) {
    is_posted = true;
    for (const auto& call : calls) {
      const bool is_collective = !is_transfer(call->kind);
      post_call(*cluster_, *endpoint.comm, endpoint.rank, call, is_collective ? first++ : 0);
    }
  }
  return std::all_of(calls.begin(), calls.end(), [](const auto& call) { return call->is_done; });
}

NcclCode FakeNccl::all_reduce(const void* source, void* target, std::size_t count, DataType type,
                              ReduceOp op, NcclHandle comm, DeviceStream stream) noexcept {
  if (!ops::nccl_can_reduce(type, op)) return NcclCode::kInvalidArgument;
  return add({OpKind::kAllReduce, source, target, count, type, op}, comm, stream);
}

NcclCode FakeNccl::reduce(const void* source, void* target, std::size_t count, DataType type,
                          ReduceOp op, int root, NcclHandle comm, DeviceStream stream) noexcept {
  if (!ops::nccl_can_reduce(type, op)) return NcclCode::kInvalidArgument;
  return add({OpKind::kReduce, source, target, count, type, op, root}, comm, stream);
}

NcclCode FakeNccl::reduce_scatter(const void* source, void* target, std::size_t count,
                                  DataType type, ReduceOp op, NcclHandle comm,
                                  DeviceStream stream) noexcept {
  if (!ops::nccl_can_reduce(type, op)) return NcclCode::kInvalidArgument;
  return add({OpKind::kReduceScatter, source, target, count, type, op}, comm, stream);
}

NcclCode FakeNccl::all_gather(const void* source, void* target, std::size_t bytes, NcclHandle comm,
                              DeviceStream stream) noexcept {
  return add({OpKind::kAllGather, source, target, bytes}, comm, stream);
}

NcclCode FakeNccl::broadcast(const void* source, void* target, std::size_t bytes, int root,
                             NcclHandle comm, DeviceStream stream) noexcept {
  return add({OpKind::kBroadcast, source, target, bytes, DataType::kUInt8, ReduceOp::kSum, root},
             comm, stream);
}

NcclCode FakeNccl::send(const void* source, std::size_t bytes, int peer, NcclHandle comm,
                        DeviceStream stream) noexcept {
  return add({OpKind::kSend, source, nullptr, bytes, DataType::kUInt8, ReduceOp::kSum, peer}, comm,
             stream);
}

NcclCode FakeNccl::receive(void* target, std::size_t bytes, int peer, NcclHandle comm,
                           DeviceStream stream) noexcept {
  return add({OpKind::kRecv, nullptr, target, bytes, DataType::kUInt8, ReduceOp::kSum, peer}, comm,
             stream);
}

NcclCode FakeNccl::allocate(void*& memory, std::size_t bytes) noexcept {
  return device_.allocate(memory, bytes) == ops::kDeviceSuccess ? NcclCode::kSuccess
                                                                : NcclCode::kUnhandledCudaError;
}

void FakeNccl::free(void* memory) noexcept { device_.free(memory); }

NcclCode FakeNccl::register_memory(NcclHandle /*comm*/, void* memory, std::size_t /*bytes*/,
                                   void*& registration) noexcept {
  registration = memory;
  return NcclCode::kSuccess;
}

NcclCode FakeNccl::deregister_memory(NcclHandle /*comm*/, void* /*registration*/) noexcept {
  return NcclCode::kSuccess;
}

std::string FakeNccl::describe(NcclCode code, NcclHandle /*comm*/) const {
  return "fake NCCL error " + std::to_string(static_cast<int>(code));
}

}  // namespace chainmail::test
