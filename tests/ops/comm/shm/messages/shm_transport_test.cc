// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// A peer that writes what is no message.

#include "ops/comm/shm/messages/shm_transport.h"

#include <algorithm>
#include <string>

#include <gtest/gtest.h>

#include "tests/ops/comm/rank_threads.h"

namespace chainmail::ops {
namespace {

using testing::CommWorld;
using testing::Wire;

TEST(ShmTransport, ADamagedRingIsReadOnce) {
  CommWorld world(Wire::kShm, 2);
  const auto transport = world.make_transport(0);
  const auto peer = world.make_transport(1);
  // The inbox of rank 0 as its peers find it.
  const auto deadline = internal::Deadline::after(std::chrono::seconds{10});
  const std::string offer = world.rendezvous->get("shm/0", deadline);
  shm::Layout layout;
  layout.ranks = 2;
  layout.ring_bytes = ShmTransportOptions{}.ring_bytes;
  const shm::Segment inbox = shm::Segment::attach(layout, offer);
  std::fill_n(inbox.ring_data(1), layout.ring_bytes, std::byte{0x5a});
  inbox.ring_head(1).written.store(layout.ring_bytes);

  EXPECT_TRUE(transport->progress());
  EXPECT_EQ(transport->state(1), PeerState::kLost);
  EXPECT_FALSE(transport->progress()) << "whoever waits would not sleep any more";
}

}  // namespace
}  // namespace chainmail::ops
