// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Device groups whose ranks are threads, over a fake GPU and a fake NCCL.

#pragma once

#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "ops/engine/device/device_group.h"
#include "ops/engine/failure/rendezvous_news.h"
#include "tests/ops/support/fake_gpu/fake_nccl.h"
#include "tests/ops/support/groups.h"
#include "tests/ops/support/reference.h"

namespace chainmail::test {

inline std::vector<int> nodes_of_ranks(const std::vector<int>& sizes) {
  std::vector<int> nodes;
  for (std::size_t node = 0; node < sizes.size(); ++node) {
    nodes.insert(nodes.end(), static_cast<std::size_t>(sizes[node]), static_cast<int>(node));
  }
  return nodes;
}

/// What a rank has in its hands. The stream is the caller's own.
struct DeviceRank {
  int rank = 0;
  ops::Group& group;
  ops::DeviceGroup& device_group;
  FakeLibrary& library;
  ops::DeviceStream stream;

  /// In place over `data`, waited for.
  std::shared_ptr<ops::DeviceOperation> all_reduce(ops::Collective collective, std::byte* data,
                                                   std::size_t count) {
    collective.kind = ops::OpKind::kAllReduce;
    collective.output = data;
    collective.count = count;
    auto operation = device_group.issue(collective, stream);
    operation->wait();
    return operation;
  }
};

class DeviceWorld {
 public:
  explicit DeviceWorld(const std::vector<int>& nodes, ops::GroupOptions group = {},
                       ops::DeviceGroupOptions device = {}, unsigned seed = 1)
      : cluster_(std::make_shared<FakeCluster>(nodes_of_ranks(nodes), seed)),
        maker_(nodes, TransportKind::kReference, with_limit(group)),
        options_(device) {
    for (int rank = 0; rank < maker_.size(); ++rank) {
      libraries_.push_back(std::make_unique<FakeLibrary>(cluster_, rank));
    }
  }

  using Body = std::function<void(DeviceRank&)>;

  std::vector<std::exception_ptr> run(const Body& body) {
    return run_ranks(maker_.size(), [&](int rank) {
      FakeLibrary& library = this->library(rank);
      const auto group = maker_.join(rank, std::make_shared<ops::RendezvousNews>(board_));
      const auto device_group = ops::create_device_group(library, group, keys_, options_);
      ops::DeviceStream stream;
      static_cast<void>(library.device().create_stream(stream));
      DeviceRank own{rank, *group, *device_group, library, stream};
      body(own);
    });
  }
  void run_ok(const Body& body) {
    const auto errors = run(body);
    for (std::size_t rank = 0; rank < errors.size(); ++rank) {
      EXPECT_EQ(text_of(errors[rank]), "") << "on rank " << rank;
    }
    EXPECT_EQ(cluster_->first_mismatch(), "");
  }

  int size() const { return maker_.size(); }
  FakeCluster& cluster() { return *cluster_; }
  FakeLibrary& library(int rank) { return *libraries_[static_cast<std::size_t>(rank)]; }

 private:
  static ops::GroupOptions with_limit(ops::GroupOptions options) {
    if (options.timeout == ops::GroupOptions{}.timeout) options.timeout = std::chrono::seconds{60};
    return options;
  }

  const std::shared_ptr<FakeCluster> cluster_;
  GroupMaker maker_;
  const ops::DeviceGroupOptions options_;
  const std::shared_ptr<ops::LocalRendezvous> keys_ = std::make_shared<ops::LocalRendezvous>();
  const std::shared_ptr<ops::LocalRendezvous> board_ = std::make_shared<ops::LocalRendezvous>();
  std::vector<std::unique_ptr<FakeLibrary>> libraries_;
};

}  // namespace chainmail::test
