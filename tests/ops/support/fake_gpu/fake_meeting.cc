// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "tests/ops/support/fake_gpu/fake_meeting.h"

#include <cstring>

#include "ops/kernels/cpu/kernels.h"
#include "ops/kernels/pack.h"

namespace chainmail::test {
namespace {

using ops::DataType;
using ops::OpKind;
using ops::ReduceOp;

using Bytes = std::vector<std::byte>;

const std::byte* source_of(const FakeCall& call) {
  return static_cast<const std::byte*>(call.source);
}
std::byte* target_of(const FakeCall& call) { return static_cast<std::byte*>(call.target); }

/// What NCCL makes of its ranks' elements: kAvg multiplies each by 1/ranks, rounded to the type.
Bytes reduced(const FakeMeeting& meeting, std::size_t first, std::size_t count) {
  const FakeCall& call = *meeting.calls.front();
  const std::size_t element = ops::size_of(call.type);
  double factor = 1.0;
  if (call.op == ReduceOp::kAvg) {
    const double exact = 1.0 / static_cast<double>(meeting.calls.size());
    Bytes rounded(element);
    static_cast<void>(ops::convert(rounded.data(), call.type, &exact, DataType::kFloat64, 1, 1.0));
    static_cast<void>(ops::convert(&factor, DataType::kFloat64, rounded.data(), call.type, 1, 1.0));
  }
  Bytes result;
  for (const auto& one : meeting.calls) {
    const std::byte* const from = source_of(*one) + first * element;
    Bytes term(from, from + count * element);
    if (call.op == ReduceOp::kAvg) ops::scale_in_place(term.data(), count, call.type, factor);
    if (result.empty()) {
      result = std::move(term);
    } else {
      ops::accumulate(result.data(), term.data(), count, call.type, call.op);
    }
  }
  return result;
}

/// `bytes` over the link of a ring from each rank to the next, but not over the one into `skipped`.
void count_ring(FakeCluster& cluster, const FakeComm& comm, double bytes, int skipped = -1) {
  const std::size_t size = comm.ranks.size();
  for (std::size_t r = 0; r < size; ++r) {
    const std::size_t next = (r + 1) % size;
    const int from = cluster.node_of[static_cast<std::size_t>(comm.ranks[r])];
    const int to = cluster.node_of[static_cast<std::size_t>(comm.ranks[next])];
    if (from != to && static_cast<int>(next) != skipped) {
      cluster.bytes_out[static_cast<std::size_t>(from)] += static_cast<std::size_t>(bytes);
    }
  }
}

void put(const FakeCall& call, std::size_t offset, const Bytes& bytes) {
  if (!bytes.empty()) std::memcpy(target_of(call) + offset, bytes.data(), bytes.size());
}

void run_collective(FakeCluster& cluster, const FakeComm& comm, const FakeMeeting& meeting) {
  const FakeCall& call = *meeting.calls.front();
  const std::size_t size = meeting.calls.size();
  const double bytes = static_cast<double>(call.bytes());
  const double share = static_cast<double>(size - 1) / static_cast<double>(size);
  switch (call.kind) {
    case OpKind::kAllReduce: {
      const Bytes result = reduced(meeting, 0, call.count);
      for (const auto& one : meeting.calls) put(*one, 0, result);
      count_ring(cluster, comm, 2 * bytes * share);
      return;
    }
    case OpKind::kReduce:
      put(*meeting.calls[static_cast<std::size_t>(call.peer)], 0, reduced(meeting, 0, call.count));
      // The chain begins after the root and ends in it.
      count_ring(cluster, comm, bytes, (call.peer + 1) % static_cast<int>(size));
      return;
    case OpKind::kReduceScatter: {
      std::vector<Bytes> results;
      for (std::size_t r = 0; r < size; ++r) {
        results.push_back(reduced(meeting, r * call.count, call.count));
      }
      for (std::size_t r = 0; r < size; ++r) put(*meeting.calls[r], 0, results[r]);
      count_ring(cluster, comm, bytes * static_cast<double>(size - 1));
      return;
    }
    case OpKind::kAllGather: {
      Bytes all;
      for (const auto& one : meeting.calls) {
        all.insert(all.end(), source_of(*one), source_of(*one) + one->count);
      }
      for (const auto& one : meeting.calls) put(*one, 0, all);
      count_ring(cluster, comm, bytes * static_cast<double>(size - 1));
      return;
    }
    case OpKind::kBroadcast: {
      const FakeCall& root = *meeting.calls[static_cast<std::size_t>(call.peer)];
      const Bytes data(source_of(root), source_of(root) + root.count);
      for (const auto& one : meeting.calls) put(*one, 0, data);
      count_ring(cluster, comm, bytes, call.peer);
      return;
    }
    case OpKind::kGather:
    case OpKind::kScatter:
    case OpKind::kAllToAll:
    case OpKind::kSend:
    case OpKind::kRecv:
    case OpKind::kBarrier:
    case OpKind::kAllocate:
      return;
  }
}

void match_transfers(FakeCluster& cluster, FakeComm& comm, int from, int to) {
  auto& sends = comm.sends[{from, to}];
  auto& receives = comm.receives[{from, to}];
  while (!sends.empty() && !receives.empty()) {
    FakeCall& send = *sends.front();
    FakeCall& receive = *receives.front();
    if (send.is_cancelled || receive.is_cancelled) return;
    if (send.count != receive.count) {
      if (cluster.mismatch.empty()) {
        cluster.mismatch = send.describe() + " met " + receive.describe();
      }
      return;
    }
    std::memcpy(receive.target, send.source, send.count);
    send.is_done = receive.is_done = true;
    const auto node = [&](int rank) {
      return cluster.node_of[static_cast<std::size_t>(comm.ranks[static_cast<std::size_t>(rank)])];
    };
    if (node(from) != node(to)) {
      cluster.bytes_out[static_cast<std::size_t>(node(from))] += send.count;
    }
    sends.pop_front();
    receives.pop_front();
  }
}

}  // namespace

void post_call(FakeCluster& cluster, FakeComm& comm, int rank,
               const std::shared_ptr<FakeCall>& call, std::uint64_t number) {
  if (call->kind == OpKind::kSend) {
    comm.sends[{rank, call->peer}].push_back(call);
    return match_transfers(cluster, comm, rank, call->peer);
  }
  if (call->kind == OpKind::kRecv) {
    comm.receives[{call->peer, rank}].push_back(call);
    return match_transfers(cluster, comm, call->peer, rank);
  }
  auto& meeting = comm.meetings[number];
  if (meeting == nullptr) {
    meeting = std::make_shared<FakeMeeting>();
    meeting->calls.resize(comm.ranks.size());
  }
  meeting->calls[static_cast<std::size_t>(rank)] = call;
  if (++meeting->arrived < meeting->calls.size()) return;
  for (const auto& one : meeting->calls) {
    if (one->is_cancelled) return;
    if (!one->matches(*meeting->calls.front())) {
      if (cluster.mismatch.empty()) {
        cluster.mismatch = one->describe() + " met " + meeting->calls.front()->describe();
      }
      return;  // NCCL would hang or mix the data
    }
  }
  run_collective(cluster, comm, *meeting);
  for (const auto& one : meeting->calls) one->is_done = true;
  comm.meetings.erase(number);
}

}  // namespace chainmail::test
