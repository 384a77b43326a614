// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What a peer may say about a message, piece by piece.

#include "ops/comm/frames/peer_link.h"

#include <cstddef>
#include <vector>

#include <gtest/gtest.h>

namespace chainmail::ops {
namespace {

class PeerLinkTest : public testing::Test {
 protected:
  static FrameHead piece(std::uint64_t message_bytes, std::uint64_t offset, std::uint32_t length) {
    FrameHead head;
    head.tag = Tag::point_to_point(1);
    head.message_bytes = message_bytes;
    head.offset = offset;
    head.length = length;
    return head;
  }

  const PeerName self_{0, "here"};
  const PeerName peer_{1, "there"};
  CallLog log_;
  TransportCounters counters_;
  PeerLink link_{self_, peer_, log_, counters_, nullptr};
};

TEST_F(PeerLinkTest, PiecesOfAMessageLandBehindEachOther) {
  std::vector<std::byte> place(100);
  Receive receive;
  receive.tag = Tag::point_to_point(1);
  receive.bytes = place.size();
  receive.data = place.data();
  link_.post(receive);
  EXPECT_EQ(link_.on_head(piece(100, 0, 60)), place.data());
  link_.on_part(piece(100, 0, 60), 10);
  EXPECT_EQ(receive.moved_bytes, 10U);
  link_.on_frame(piece(100, 0, 60));
  EXPECT_EQ(receive.moved_bytes, 60U);
  EXPECT_EQ(link_.on_head(piece(100, 60, 40)), place.data() + 60);
  EXPECT_FALSE(receive.is_done);
  link_.on_frame(piece(100, 60, 40));
  EXPECT_TRUE(receive.is_done);
  EXPECT_EQ(counters_.moved_bytes, 100U);
}

// Else a later piece could be written behind the end of the buffer.
TEST_F(PeerLinkTest, AMessageCannotGrowOnTheWay) {
  std::vector<std::byte> place(100);
  Receive receive;
  receive.tag = Tag::point_to_point(1);
  receive.bytes = place.size();
  receive.data = place.data();
  link_.post(receive);
  EXPECT_EQ(link_.on_head(piece(100, 0, 60)), place.data());
  link_.on_frame(piece(100, 0, 60));
  EXPECT_THROW(static_cast<void>(link_.on_head(piece(1000, 60, 900))), StreamError);
}

// The same for a message that came before its receive.
TEST_F(PeerLinkTest, AnEarlyMessageCannotGrowOnTheWay) {
  ASSERT_TRUE(link_.on_head(piece(100, 0, 60)).has_value());
  link_.on_frame(piece(100, 0, 60));
  EXPECT_THROW(static_cast<void>(link_.on_head(piece(1000, 60, 900))), StreamError);
}

// Else a peer could fill this rank's memory with heads alone.
TEST_F(PeerLinkTest, OffersAreBounded) {
  FrameHead offer;
  offer.type = FrameType::kOffer;
  offer.message_bytes = 1000000;
  constexpr std::uint32_t kMost = 65536;
  for (std::uint32_t tag = 0; tag < kMost; ++tag) {
    offer.tag = Tag::point_to_point(tag);
    link_.on_frame(offer);
  }
  EXPECT_TRUE(link_.has_message(Tag::point_to_point(kMost - 1)));
  offer.tag = Tag::point_to_point(kMost);
  EXPECT_THROW(link_.on_frame(offer), StreamError);
}

TEST_F(PeerLinkTest, AnswersThatThePeerDoesNotReadAreBounded) {
  ProgressTracker tracker;
  PeerLink link(self_, peer_, log_, counters_, &tracker);
  FrameHead inquiry;
  inquiry.type = FrameType::kInquiry;
  constexpr std::uint64_t kMost = 4096;
  std::size_t answers = 0;
  for (std::uint64_t tag = 0; tag < kMost + 10; ++tag) {
    inquiry.tag = Tag::collective(tag, 0);
    link.on_frame(inquiry);
  }
  while (const auto frame = link.next_frame()) {
    link.frame_sent(frame->head);
    ++answers;
  }
  EXPECT_EQ(answers, kMost);
}

TEST_F(PeerLinkTest, WhoAsksForATransferHearsWhetherItIsBehindOthers) {
  std::vector<std::byte> bytes(1000);
  Send first;
  Send second;
  for (Send* send : {&first, &second}) {
    send->bytes = bytes.size();
    send->data = bytes.data();
  }
  first.tag = Tag::point_to_point(1);
  second.tag = Tag::point_to_point(2);
  link_.post(first);
  link_.post(second);
  FrameHead inquiry;
  inquiry.type = FrameType::kInquiry;
  inquiry.tag = second.tag;
  const auto answer = [&] {
    link_.on_frame(inquiry);
    const auto frame = link_.next_frame();
    if (!frame || frame->head.type != FrameType::kProgress) return ~std::uint64_t{0};
    link_.frame_sent(frame->head);
    return frame->head.offset;
  };
  EXPECT_EQ(answer(), 0U) << "nothing has moved";
  const auto data = link_.next_frame();
  ASSERT_TRUE(data.has_value());
  EXPECT_EQ(data->head.tag, first.tag);
  link_.part_sent(data->head, 500);
  EXPECT_EQ(answer(), 1U);
  EXPECT_EQ(answer(), 0U) << "nothing has moved since";
  link_.frame_sent(data->head);
  EXPECT_TRUE(first.is_done);
  EXPECT_EQ(answer(), 1U);
}

}  // namespace
}  // namespace chainmail::ops
