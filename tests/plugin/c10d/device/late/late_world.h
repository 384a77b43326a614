// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Backends of ranks that are threads, with a late device each.

#pragma once

#include <gtest/gtest.h>

#include <barrier>
#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "plugin/c10d/backend/chainmail_backend.h"
#include "tests/ops/support/groups.h"
#include "tests/plugin/c10d/device/late/late_device.h"

namespace chainmail::testing {

struct LateRank {
  int rank = 0;
  c10::Device device;
  internal::ChainmailBackend& backend;
  /// Until all ranks are here.
  std::function<void()> meet;
};

class LateWorld {
 public:
  explicit LateWorld(int size, unsigned seed = 1,
                     std::chrono::milliseconds limit = std::chrono::seconds{20})
      : size_(size),
        cluster_(std::make_shared<test::FakeCluster>(
            std::vector<int>(static_cast<std::size_t>(size)), seed)),
        maker_({size}, test::TransportKind::kReference, with(limit)) {
    std::vector<test::FakeLibrary*> libraries;
    for (int rank = 0; rank < size; ++rank) {
      libraries_.push_back(std::make_unique<test::FakeLibrary>(cluster_, rank));
      libraries.push_back(libraries_.back().get());
    }
    devices_ = std::make_unique<LateDevices>(std::move(libraries));
  }

  test::FakeMachine& machine() { return *cluster_->machine; }
  test::FakeCluster& cluster() { return *cluster_; }

  void run(const std::function<void(LateRank&)>& body) {
    std::barrier<> meeting(size_);
    const auto errors = test::run_ranks(size_, [&](int rank) {
      const auto group = maker_.join(rank);
      auto backend = c10::make_intrusive<internal::ChainmailBackend>(
          group, rendezvous_, BackendOptions{}, ranks(), [&](c10::Device device, int /*number*/) {
            ops::DeviceGroupOptions options;
            options.device = device.index();
            return ops::create_device_group(*libraries_[static_cast<std::size_t>(rank)], group,
                                            keys_, options);
          });
      LateRank own{rank, {kLateDevice, static_cast<c10::DeviceIndex>(rank)}, *backend, [&] {
                     meeting.arrive_and_wait();
                   }};
      try {
        body(own);
      } catch (...) {
        meeting.arrive_and_drop();
        throw;
      }
      meeting.arrive_and_drop();
      backend->shutdown();
    });
    for (std::size_t rank = 0; rank < errors.size(); ++rank) {
      EXPECT_EQ(test::text_of(errors[rank]), "") << "on rank " << rank;
    }
    EXPECT_EQ(cluster_->first_mismatch(), "");
  }

 private:
  static ops::GroupOptions with(std::chrono::milliseconds limit) {
    ops::GroupOptions options;
    options.timeout = limit;
    return options;
  }
  std::vector<std::uint64_t> ranks() const {
    std::vector<std::uint64_t> all;
    for (int rank = 0; rank < size_; ++rank) all.push_back(static_cast<std::uint64_t>(rank));
    return all;
  }

  const int size_;
  const std::shared_ptr<test::FakeCluster> cluster_;
  test::GroupMaker maker_;
  const std::shared_ptr<ops::LocalRendezvous> keys_ = std::make_shared<ops::LocalRendezvous>();
  const std::shared_ptr<ops::LocalRendezvous> rendezvous_ =
      std::make_shared<ops::LocalRendezvous>();
  std::vector<std::unique_ptr<test::FakeLibrary>> libraries_;
  std::unique_ptr<LateDevices> devices_;
};

}  // namespace chainmail::testing
