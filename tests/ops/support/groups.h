// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Groups whose ranks are threads of the test process, over the real Comms, over a fake
// of MPI or over boards.

#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ops/core/failure/failure_news.h"
#include "ops/core/rendezvous.h"
#include "ops/engine/create_group.h"
#include "ops/engine/group.h"
#include "tests/ops/support/fake_mpi.h"
#include "tests/ops/support/ranks.h"
#include "tests/ops/support/reference_comm.h"

namespace chainmail::test {

/// What carries the data of a test group.
enum class TransportKind { kReference, kReal, kTcpEverywhere, kEncrypted, kMpi };

inline const char* to_string(TransportKind transport) {
  switch (transport) {
    case TransportKind::kReference:
      return "board";
    case TransportKind::kReal:
      return "real";
    case TransportKind::kTcpEverywhere:
      return "tcp";
    case TransportKind::kEncrypted:
      return "encrypted";
    case TransportKind::kMpi:
      return "mpi";
  }
  return "";
}

/// One group of a test: ranks call join() from their own threads. Host names are node1, node2 ...
class GroupMaker {
 public:
  GroupMaker(std::vector<int> nodes, TransportKind transport, ops::GroupOptions options = {})
      : topology_(ops::Topology::from_node_sizes(nodes)), transport_(transport), options_(options) {
    options_.secret = std::string(32, 's');
    options_.use_shared_memory =
        transport != TransportKind::kTcpEverywhere && transport != TransportKind::kEncrypted;
    if (transport == TransportKind::kEncrypted) options_.encryption = ops::Encryption::kEncrypt;
    options_.interface = "127.0.0.1";  // the "nodes" are this machine
  }

  int size() const { return topology_.size(); }

  std::shared_ptr<ops::Group> join(int rank, std::shared_ptr<ops::FailureNews> news = nullptr) {
    ops::GroupOptions options = options_;
    options.host = "node" + std::to_string(topology_.node_of(rank) + 1);
    const ops::CommFactory factory =
        transport_ == TransportKind::kReference
            ? room_->factory()
            : ops::default_comm_factory(
                  options, transport_ == TransportKind::kMpi ? mpi_->world(rank) : nullptr);
    return ops::create_group_with(factory, rank, topology_, rendezvous_, options, {},
                                  std::move(news));
  }

  /// Every rank joins and runs `body`. Another run has a group of its own.
  std::vector<std::exception_ptr> run(
      const std::function<void(int rank, ops::Group& group)>& body) {
    auto errors = run_ranks(size(), [&](int rank) {
      const auto group = join(rank);
      body(rank, *group);
    });
    rendezvous_ = std::make_shared<ops::LocalRendezvous>();
    return errors;
  }

  void run_ok(const std::function<void(int rank, ops::Group& group)>& body) {
    const auto errors = run(body);
    for (std::size_t rank = 0; rank < errors.size(); ++rank) {
      EXPECT_EQ(text_of(errors[rank]), "") << "on rank " << rank;
    }
  }

 private:
  ops::Topology topology_;
  TransportKind transport_;
  ops::GroupOptions options_;
  std::shared_ptr<ops::LocalRendezvous> rendezvous_ = std::make_shared<ops::LocalRendezvous>();
  std::shared_ptr<FakeMpi> mpi_ = std::make_shared<FakeMpi>(size());
  std::shared_ptr<ReferenceWorld> room_ = std::make_shared<ReferenceWorld>();
};

template <typename T>
const std::byte* bytes_of(const std::vector<T>& values) {
  return reinterpret_cast<const std::byte*>(values.data());
}
template <typename T>
std::byte* bytes_of(std::vector<T>& values) {
  return reinterpret_cast<std::byte*>(values.data());
}

/// An operation in place on float32 values.
inline ops::Collective on(std::vector<float>& values, ops::OpKind kind = ops::OpKind::kAllReduce) {
  ops::Collective collective;
  collective.kind = kind;
  collective.count = values.size();
  collective.input = bytes_of(values);
  collective.output = bytes_of(values);
  std::string shape("[");  // GCC 12 warns of the sum of these three
  shape.append(std::to_string(values.size())).append("]");
  collective.describe_shapes = [shape] { return shape; };
  return collective;
}

}  // namespace chainmail::test
