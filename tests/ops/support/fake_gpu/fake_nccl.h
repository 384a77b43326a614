// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// NCCL for ranks that are threads, on the streams of a FakeMachine: communicators that are made in
// the background, calls that settle late, kernels that meet; with a log, injected errors and hangs,
// and a count of the bytes that go from node to node.
//
// Thread-safe. Sums go in rank order and are stored in the type after every addition, as a ring's
// are; bytes are those of a ring in rank order (a chain for reduce and broadcast).

#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "ops/device_library/device_library.h"
#include "tests/ops/support/fake_gpu/fake_machine.h"

namespace chainmail::test {

class FakeNccl;
struct FakeMeeting;
struct FakeEndpoint;

/// One call of a rank's.
struct FakeCall {
  ops::OpKind kind = ops::OpKind::kAllReduce;
  const void* source = nullptr;
  void* target = nullptr;
  std::size_t count = 0;
  ops::DataType type = ops::DataType::kUInt8;
  ops::ReduceOp op = ops::ReduceOp::kSum;
  int peer = -1;  ///< or the root
  bool is_done = false;
  bool is_cancelled = false;  ///< its rank has aborted: nothing touches its memory any more

  std::size_t bytes() const { return count * ops::size_of(type); }
  bool matches(const FakeCall& other) const {
    return kind == other.kind && count == other.count && type == other.type && op == other.op &&
           peer == other.peer;
  }
  std::string describe() const;
};

/// A communicator, as all its ranks see it.
struct FakeComm {
  std::vector<int> ranks;  ///< of the machine, by rank of the communicator
  std::size_t size = 0;
  std::size_t joined = 0;
  std::map<std::uint64_t, std::shared_ptr<FakeMeeting>> meetings;
  std::map<std::pair<int, int>, std::deque<std::shared_ptr<FakeCall>>> sends;
  std::map<std::pair<int, int>, std::deque<std::shared_ptr<FakeCall>>> receives;
};

/// What all ranks share.
struct FakeCluster {
  explicit FakeCluster(std::vector<int> nodes, unsigned seed);

  const std::vector<int> node_of;
  const std::shared_ptr<FakeMachine> machine;
  int version = 22809;
  int polls_until_settled = 2;  ///< looks at a communicator before a call has settled
  std::map<std::string, std::shared_ptr<FakeComm>> by_id;
  std::uint64_t ids = 0;
  std::vector<std::size_t> bytes_out;  ///< by node, to other nodes
  std::string mismatch;                ///< of the first calls that met and differ

  std::size_t bytes_out_of(int node);
  std::string first_mismatch();
};

/// One rank's NCCL.
class FakeNccl final : public ops::NcclApi {
 public:
  FakeNccl(std::shared_ptr<FakeCluster> cluster, FakeDevice& device, int rank);
  ~FakeNccl() override;

  /// Calls on each communicator, by its name, in order.
  std::map<std::string, std::vector<std::string>> log();
  /// The next call of that name ("all_reduce", "init", "split") returns `code`.
  void fail_next(const std::string& call, ops::NcclCode code);
  /// Communicators say so from now on when they are asked.
  void fail_in_the_background(ops::NcclCode code);
  /// Kernels of this rank do not begin any more.
  void hang();
  int live_communicators();
  int aborts();
  /// Communicators that were to be given up while a graph refers to them, for which NCCL waits.
  int graph_waits();

  int version() const noexcept override { return cluster_->version; }
  ops::NcclCode make_id(ops::NcclId& id) noexcept override;
  ops::NcclCode init(ops::NcclHandle& comm, int size, const ops::NcclId& id, int rank,
                     const ops::NcclConfig& config) noexcept override;
  ops::NcclCode split(ops::NcclHandle parent, int color, int key, ops::NcclHandle& child,
                      const ops::NcclConfig& config) noexcept override;
  ops::NcclCode finalize(ops::NcclHandle comm) noexcept override;
  ops::NcclCode destroy(ops::NcclHandle comm) noexcept override;
  ops::NcclCode abort(ops::NcclHandle comm) noexcept override;
  ops::NcclCode async_error(ops::NcclHandle comm, ops::NcclCode& state) noexcept override;
  ops::NcclCode group_start() noexcept override;
  ops::NcclCode group_end() noexcept override;
  ops::NcclCode all_reduce(const void* source, void* target, std::size_t count, ops::DataType type,
                           ops::ReduceOp op, ops::NcclHandle comm,
                           ops::DeviceStream stream) noexcept override;
  ops::NcclCode reduce(const void* source, void* target, std::size_t count, ops::DataType type,
                       ops::ReduceOp op, int root, ops::NcclHandle comm,
                       ops::DeviceStream stream) noexcept override;
  ops::NcclCode reduce_scatter(const void* source, void* target, std::size_t count,
                               ops::DataType type, ops::ReduceOp op, ops::NcclHandle comm,
                               ops::DeviceStream stream) noexcept override;
  ops::NcclCode all_gather(const void* source, void* target, std::size_t bytes,
                           ops::NcclHandle comm, ops::DeviceStream stream) noexcept override;
  ops::NcclCode broadcast(const void* source, void* target, std::size_t bytes, int root,
                          ops::NcclHandle comm, ops::DeviceStream stream) noexcept override;
  ops::NcclCode send(const void* source, std::size_t bytes, int peer, ops::NcclHandle comm,
                     ops::DeviceStream stream) noexcept override;
  ops::NcclCode receive(void* target, std::size_t bytes, int peer, ops::NcclHandle comm,
                        ops::DeviceStream stream) noexcept override;
  ops::NcclCode allocate(void*& memory, std::size_t bytes) noexcept override;
  void free(void* memory) noexcept override;
  ops::NcclCode register_memory(ops::NcclHandle comm, void* memory, std::size_t bytes,
                                void*& registration) noexcept override;
  ops::NcclCode deregister_memory(ops::NcclHandle comm, void* registration) noexcept override;
  std::string describe(ops::NcclCode code, ops::NcclHandle comm) const override;

 private:
  ops::NcclCode injected(const std::string& call);
  FakeEndpoint& add_endpoint(std::shared_ptr<FakeComm> comm, int rank,
                             const ops::NcclConfig& config);
  ops::NcclCode add(FakeCall call, ops::NcclHandle comm, ops::DeviceStream stream);
  void launch(FakeEndpoint& endpoint);
  bool run(FakeEndpoint& endpoint, std::vector<std::shared_ptr<FakeCall>>& calls,
           std::uint64_t first, bool& is_posted);

  const std::shared_ptr<FakeCluster> cluster_;
  FakeDevice& device_;
  const int rank_;
  // Never freed before the machine: tasks refer to them.
  std::vector<std::shared_ptr<FakeEndpoint>> endpoints_;
  std::map<std::string, std::vector<std::string>> log_;
  /// What a thread has begun with group_start().
  struct OpenGroup {
    int depth = 0;
    FakeEndpoint* endpoint = nullptr;
  };
  std::map<std::thread::id, OpenGroup> groups_;
  std::map<std::string, ops::NcclCode> injected_;
  ops::NcclCode background_ = ops::NcclCode::kSuccess;
  bool is_hanging_ = false;
  int live_ = 0;
  int aborts_ = 0;
  int graph_waits_ = 0;
};

/// What a rank opens in place of libchainmail_cuda.so.
class FakeLibrary final : public ops::DeviceLibrary {
 public:
  FakeLibrary(const std::shared_ptr<FakeCluster>& cluster, int rank)
      : device_(cluster->machine, rank), nccl_(cluster, device_, rank) {}
  std::string refusal() override { return {}; }
  std::string describe() override { return "fake"; }
  FakeDevice& device() override { return device_; }
  FakeNccl& nccl() override { return nccl_; }

 private:
  FakeDevice device_;
  FakeNccl nccl_;
};

}  // namespace chainmail::test
