// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/comm/frames/peer_link.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace chainmail::ops {
namespace {

// What one peer may have sent ahead: P2pComm lets no rank run more than a few calls ahead, each
// with a few messages of up to kEagerBytes; this is twice that.
constexpr std::size_t kMaxEarlyBytes = 128 * kEagerBytes;
constexpr std::size_t kMaxEarlyMessages = 16384;
constexpr std::size_t kMaxNotices = 4096;

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
                   TransportCounters& counters)
    : self_(self), peer_(peer), log_(log), counters_(counters) {}

void PeerLink::post(Send& send) {
  const bool is_transfer = Tag::is_point_to_point(send.tag);
  Outgoing outgoing{&send, send.bytes <= kEagerBytes && !(is_transfer && is_held_back_), 0};
  if (!outgoing.is_ready) {
    const auto ready = std::find_if(ready_.begin(), ready_.end(),
                                    [&](const FrameHead& head) { return head.tag == send.tag; });
    if (ready != ready_.end()) {
      if (!headers_agree(send.tag, send.header, ready->header)) {
        throw mismatch_error(self_, send.header, peer_, ready->header);
      }
      if (ready->message_bytes != send.bytes) {
        throw length_error(peer_, ready->message_bytes, self_, send.bytes, send.header);
      }
      ready_.erase(ready);
      outgoing.is_ready = true;
    }
  }
  sends_.push_back(outgoing);
  // The peer may be looking for a message from anybody.
  if (is_transfer && !outgoing.is_ready) push_control(FrameType::kOffer, send);
}

void PeerLink::post(Receive& receive) {
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
  const auto offer = std::find_if(offers_.begin(), offers_.end(), [&](const FrameHead& candidate) {
    return candidate.tag == receive.tag;
  });
  if (offer == offers_.end()) return false;
  check(receive, offer->header, offer->message_bytes);
  offers_.erase(offer);
  return true;
}

bool PeerLink::has_message(std::uint64_t tag) const noexcept {
  const auto is_early = [tag](const Early& early) {
    return early.tag == tag && early.receive == nullptr;
  };
  const auto is_offer = [tag](const FrameHead& offer) { return offer.tag == tag; };
  return std::any_of(early_.begin(), early_.end(), is_early) ||
         std::any_of(offers_.begin(), offers_.end(), is_offer);
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
  return std::any_of(sends_.begin(), sends_.end(),
                     [](const Outgoing& outgoing) { return outgoing.is_ready; });
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
    throw mismatch_error(self_, receive.header, peer_, theirs);
  }
  if (receive.bytes != their_bytes) {
    throw length_error(self_, receive.bytes, peer_, their_bytes, theirs);
  }
}

std::optional<std::byte*> PeerLink::on_head(const FrameHead& head) {
  if (head.type == FrameType::kAbort) {
    abort_body_.resize(head.length);
    return reinterpret_cast<std::byte*>(abort_body_.data());
  }
  if (head.type != FrameType::kData) return nullptr;
  if (!is_incoming_) {
    if (head.offset != 0) throw StreamError("sent the middle of a message first");
    return begin_message(head);
  }
  if (head.tag != incoming_tag_ || head.offset != incoming_got_) {
    throw StreamError("sent the pieces of a message out of order");
  }
  std::byte* start = receiving_ != nullptr ? receiving_->data : receiving_early_->data.get();
  return start + head.offset;
}

std::optional<std::byte*> PeerLink::begin_message(const FrameHead& head) {
  const auto match = std::find_if(receives_.begin(), receives_.end(),
                                  [&](const Receive* receive) { return receive->tag == head.tag; });
  std::byte* start = nullptr;
  if (match != receives_.end()) {
    check(**match, head.header, head.message_bytes);
    receiving_ = *match;
    receives_.erase(match);
    start = receiving_->data;
  } else {
    check(head.tag, head.header);
    if (head.message_bytes > kEagerBytes) throw StreamError("sent a long message unasked");
    const bool is_full =
        early_bytes_ + head.message_bytes > kMaxEarlyBytes || early_.size() >= kMaxEarlyMessages;
    // A collective's messages wait in the connection: the peer cannot be further ahead. Behind
    // those between two ranks may be the one that is waited for.
    if (is_full && !Tag::is_point_to_point(head.tag)) return std::nullopt;
    if (is_full) hold_back();
    Early& early = early_.emplace_back();
    early.tag = head.tag;
    early.header = head.header;
    early.bytes = head.message_bytes;
    early.data = std::make_unique_for_overwrite<std::byte[]>(early.bytes);
    early_bytes_ += early.bytes;
    receiving_early_ = &early;
    start = early.data.get();
  }
  is_incoming_ = true;
  incoming_tag_ = head.tag;
  incoming_got_ = 0;
  return start;
}

void PeerLink::on_frame(const FrameHead& head) {
  switch (head.type) {
    case FrameType::kAbort:
      has_left_ = true;
      std::rethrow_exception(decode_abort(std::as_bytes(std::span(abort_body_))));
    case FrameType::kGoodbye:
      has_left_ = true;
      return;
    case FrameType::kInquiry:
      on_inquiry(head);
      return;
    case FrameType::kReady:
      on_ready(head);
      return;
    case FrameType::kOffer:
      on_offer(head);
      return;
    case FrameType::kHold:
      is_held_back_ = true;
      return;
    case FrameType::kData:
      break;
  }
  incoming_got_ += head.length;
  if (incoming_got_ < head.message_bytes) return;
  is_incoming_ = false;
  if (receiving_ != nullptr) {
    ++counters_.messages_received;
    counters_.payload_bytes_received += receiving_->bytes;
    receiving_->flags = head.header.flags;
    std::exchange(receiving_, nullptr)->is_done.store(true, std::memory_order_relaxed);
    return;
  }
  Early& early = *std::exchange(receiving_early_, nullptr);
  early.is_complete = true;
  if (early.receive != nullptr) finish(early);
}

void PeerLink::on_inquiry(const FrameHead& head) {
  if (Tag::is_point_to_point(head.tag)) return;
  check(head.tag, head.header);
  const bool is_ahead = log_.find(Tag::position(head.tag)) == nullptr;
  if (is_ahead && notices_.size() < kMaxNotices) notices_.push_back({head.tag, head.header});
}

void PeerLink::on_ready(const FrameHead& head) {
  check(head.tag, head.header);
  for (Outgoing& outgoing : sends_) {
    if (outgoing.send->tag != head.tag || outgoing.is_ready) continue;
    if (!headers_agree(head.tag, outgoing.send->header, head.header)) {
      throw mismatch_error(self_, outgoing.send->header, peer_, head.header);
    }
    if (outgoing.send->bytes != head.message_bytes) {
      throw length_error(peer_, head.message_bytes, self_, outgoing.send->bytes, head.header);
    }
    outgoing.is_ready = true;
    return;
  }
  if (ready_.size() >= kMaxNotices) throw StreamError("waits for too many messages at once");
  ready_.push_back(head);
}

void PeerLink::on_offer(const FrameHead& head) {
  const auto match = std::find_if(receives_.begin(), receives_.end(),
                                  [&](const Receive* receive) { return receive->tag == head.tag; });
  if (match == receives_.end()) {
    offers_.push_back(head);
    return;
  }
  check(**match, head.header, head.message_bytes);
  // Longer ones have been asked for when the receive was posted.
  if (head.message_bytes <= kEagerBytes) push_control(FrameType::kReady, **match);
}

// What is on its way already still comes, and is taken.
void PeerLink::hold_back() {
  if (std::exchange(holds_back_, true)) return;
  FrameHead head;
  head.type = FrameType::kHold;
  controls_.push_back({head, {}});
}

void PeerLink::finish(Early& early) {
  Receive& receive = *early.receive;
  if (early.bytes != 0) std::memcpy(receive.data, early.data.get(), early.bytes);
  receive.flags = early.header.flags;
  ++counters_.messages_received;
  counters_.payload_bytes_received += early.bytes;
  early_bytes_ -= early.bytes;
  early_.remove_if([&](const Early& other) { return &other == &early; });
  receive.is_done.store(true, std::memory_order_relaxed);
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

void PeerLink::frame_sent(const FrameHead& head) {
  if (head.type != FrameType::kData) {
    // end_with() may have replaced the frame that was under way.
    if (!controls_.empty() && controls_.front().head.type == head.type) controls_.pop_front();
    return;
  }
  const auto sent = std::find_if(sends_.begin(), sends_.end(), [&](const Outgoing& outgoing) {
    return outgoing.send->tag == head.tag && outgoing.sent == head.offset && outgoing.is_ready;
  });
  if (sent == sends_.end()) return;
  sent->sent += head.length;
  if (sent->sent < sent->send->bytes) return;
  ++counters_.messages_sent;
  counters_.payload_bytes_sent += sent->send->bytes;
  sent->send->is_done.store(true, std::memory_order_relaxed);
  sends_.erase(sent);
}

}  // namespace chainmail::ops
