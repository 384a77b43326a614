// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/comm/frames/peer_link.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace chainmail::ops {
namespace {

FrameHead data_head(const Send& send, std::size_t offset) {
  FrameHead head;
  head.header = send.header;
  head.type = FrameType::kData;
  head.length = static_cast<std::uint32_t>(std::min(send.bytes - offset, kMaxFramePayload));
  head.tag = send.tag;
  head.message_bytes = send.bytes;
  head.offset = offset;
  return head;
}

}  // namespace

PeerLink::PeerLink(const PeerName& self, const PeerName& peer, const CallLog& log,
                   TransportCounters& counters, ProgressTracker* tracker)
    : self_(self), peer_(peer), log_(log), counters_(counters), tracker_(tracker) {}

void PeerLink::post(Send& send) {
  const bool is_transfer = Tag::is_point_to_point(send.tag);
  send.moved_bytes = 0;
  Outgoing outgoing;
  outgoing.send = &send;
  outgoing.is_ready = send.bytes <= kEagerBytes && !(is_transfer && is_held_back_);
  if (!outgoing.is_ready) {
    const auto ready = std::ranges::find(ready_, send.tag, &FrameHead::tag);
    if (ready != ready_.end()) {
      check(send, *ready);
      ready_.erase(ready);
      outgoing.is_ready = true;
    }
  }
  sends_.push_back(outgoing);
  // The peer may be looking for a message from anybody.
  if (is_transfer && !outgoing.is_ready) push_control(FrameType::kOffer, send);
}

void PeerLink::post(Receive& receive) {
  receive.moved_bytes = 0;
  const auto early = std::find_if(early_.begin(), early_.end(), [&](const Early& candidate) {
    return candidate.tag == receive.tag && candidate.receive == nullptr;
  });
  if (early != early_.end()) {
    check(receive, early->header, early->bytes);
    early->receive = &receive;
    if (early->is_complete) finish(*early);
    return;
  }
  const bool is_offered = take_offer(receive);
  receives_.push_back(&receive);
  if (is_offered || receive.bytes > kEagerBytes) push_control(FrameType::kReady, receive);
}

bool PeerLink::take_offer(const Receive& receive) {
  const auto offer = std::ranges::find(offers_, receive.tag, &FrameHead::tag);
  if (offer == offers_.end()) return false;
  check(receive, offer->header, offer->message_bytes);
  offers_.erase(offer);
  return true;
}

bool PeerLink::has_message(std::uint64_t tag) const noexcept {
  const auto is_early = [tag](const Early& early) {
    return early.tag == tag && early.receive == nullptr;
  };
  return std::ranges::any_of(early_, is_early) ||
         std::ranges::find(offers_, tag, &FrameHead::tag) != offers_.end();
}

void PeerLink::inquire(const Transfer& transfer) { push_control(FrameType::kInquiry, transfer); }

void PeerLink::push_control(FrameType type, const Transfer& transfer) {
  FrameHead head;
  head.header = transfer.header;
  head.type = type;
  head.tag = transfer.tag;
  head.message_bytes = transfer.bytes;
  controls_.push_back({head, {}});
}

void PeerLink::begin(std::uint64_t position) {
  const auto is_here = [&](std::uint64_t tag) {
    return !Tag::is_point_to_point(tag) && Tag::position(tag) == position;
  };
  for (const Early& early : early_) {
    if (is_here(early.tag)) check(early.tag, early.header);
  }
  for (const FrameHead& head : ready_) {
    if (is_here(head.tag)) check(head.tag, head.header);
  }
  std::erase_if(notices_, [&](const Notice& notice) {
    if (!is_here(notice.tag)) return false;
    check(notice.tag, notice.header);
    return true;
  });
}

void PeerLink::end_with(FrameType type, std::string body) {
  if (is_ending_) return;
  is_ending_ = true;
  controls_.clear();
  FrameHead head;
  head.type = type;
  head.length = static_cast<std::uint32_t>(body.size());
  controls_.push_back({head, std::move(body)});
}

bool PeerLink::has_output() const noexcept {
  if (!controls_.empty()) return true;
  if (is_ending_) return false;
  return std::ranges::any_of(sends_, &Outgoing::is_ready);
}

const Transfer* PeerLink::pending() const noexcept {
  if (!receives_.empty()) return receives_.front();
  if (receiving_ != nullptr) return receiving_;
  for (const Early& early : early_) {
    if (early.receive != nullptr) return early.receive;
  }
  return sends_.empty() ? nullptr : sends_.front().send;
}

// What a peer says about a call is held against this rank's own, now or when it gets there.
void PeerLink::check(std::uint64_t tag, const MessageHeader& theirs) {
  if (Tag::is_point_to_point(tag)) return;
  const MessageHeader* mine = log_.find(Tag::position(tag));
  if (mine != nullptr && !headers_agree(tag, *mine, theirs)) {
    throw mismatch_error(self_, *mine, peer_, theirs);
  }
}

void PeerLink::check(const Receive& receive, const MessageHeader& theirs,
                     std::size_t their_bytes) const {
  if (!headers_agree(receive.tag, receive.header, theirs)) {
    throw message_error(receive.tag, self_, receive.header, peer_, theirs);
  }
  if (receive.bytes != their_bytes) {
    throw length_error(self_, receive.bytes, peer_, their_bytes, theirs);
  }
}

void PeerLink::check(const Send& send, const FrameHead& ready) const {
  if (!headers_agree(send.tag, send.header, ready.header)) {
    throw message_error(send.tag, peer_, ready.header, self_, send.header);
  }
  if (ready.message_bytes != send.bytes) {
    throw length_error(peer_, ready.message_bytes, self_, send.bytes, send.header);
  }
}

PeerLink::Outgoing* PeerLink::next_outgoing() noexcept {
  // A message under way goes on: its peer expects the pieces in one go.
  for (Outgoing& outgoing : sends_) {
    if (outgoing.sent != 0) return &outgoing;
  }
  for (Outgoing& outgoing : sends_) {
    if (outgoing.is_ready) return &outgoing;
  }
  return nullptr;
}

std::optional<OutgoingFrame> PeerLink::next_frame() {
  if (!controls_.empty()) {
    const Control& control = controls_.front();
    return OutgoingFrame{control.head, reinterpret_cast<const std::byte*>(control.body.data())};
  }
  if (is_ending_) return std::nullopt;
  const Outgoing* outgoing = next_outgoing();
  if (outgoing == nullptr) return std::nullopt;
  return OutgoingFrame{data_head(*outgoing->send, outgoing->sent),
                       outgoing->send->data + outgoing->sent};
}

std::deque<PeerLink::Outgoing>::iterator PeerLink::find_outgoing(const FrameHead& head) {
  return std::find_if(sends_.begin(), sends_.end(), [&](const Outgoing& outgoing) {
    return outgoing.send->tag == head.tag && outgoing.sent == head.offset && outgoing.is_ready;
  });
}

void PeerLink::part_sent(const FrameHead& head, std::size_t bytes) {
  if (head.type != FrameType::kData) return;
  const auto sent = find_outgoing(head);
  if (sent == sends_.end()) return;
  const std::size_t moved = sent->sent + bytes;
  ++counters_.moves;
  counters_.moved_bytes += moved - std::exchange(sent->send->moved_bytes, moved);
  // Those that are ready, too, have only to wait for this one.
  for (Outgoing& outgoing : sends_) {
    if (outgoing.is_ready) ++outgoing.send->moves;
  }
}

void PeerLink::frame_sent(const FrameHead& head) {
  if (head.type != FrameType::kData) {
    // end_with() may have replaced the frame that was under way.
    if (!controls_.empty() && controls_.front().head.type == head.type) controls_.pop_front();
    return;
  }
  part_sent(head, head.length);
  const auto sent = find_outgoing(head);
  if (sent == sends_.end()) return;
  sent->sent += head.length;
  if (sent->sent < sent->send->bytes) return;
  ++counters_.messages_sent;
  counters_.payload_bytes_sent += sent->send->bytes;
  sent->send->is_done.store(true, std::memory_order_relaxed);
  sends_.erase(sent);
}

}  // namespace chainmail::ops
