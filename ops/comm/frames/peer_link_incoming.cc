// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What comes from the peer.

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "ops/comm/frames/peer_link.h"
#include "ops/core/error_text.h"

namespace chainmail::ops {
namespace {

// What one peer may have sent ahead: P2pComm lets no rank run more than a few calls ahead, each
// with a few messages of up to kEagerBytes; this is twice that.
constexpr std::size_t kMaxEarlyBytes = 128 * kEagerBytes;
constexpr std::size_t kMaxEarlyMessages = 16384;
constexpr std::size_t kMaxNotices = 4096;
// A program may begin any number of sends before their receives; this many heads take 8 MiB.
constexpr std::size_t kMaxOffers = 65536;
// What waits for room in the connection before inquiries go unanswered: a peer that asks and does
// not read gets nothing, and asks again when it does.
constexpr std::size_t kMaxControls = 4096;

}  // namespace

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
  // The buffer has room for what the first piece said.
  if (head.message_bytes != incoming_bytes_) {
    throw StreamError("changed the length of a message on the way");
  }
  std::byte* start = receiving_ != nullptr ? receiving_->data : receiving_early_->data.get();
  return start + head.offset;
}

std::optional<std::byte*> PeerLink::begin_message(const FrameHead& head) {
  const auto match = std::ranges::find(receives_, head.tag, &Receive::tag);
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
  incoming_bytes_ = head.message_bytes;
  incoming_got_ = incoming_moved_ = 0;
  return start;
}

void PeerLink::on_part(const FrameHead& head, std::size_t bytes) {
  if (head.type != FrameType::kData) return;
  const std::size_t moved = incoming_got_ + bytes;
  ++counters_.moves;
  counters_.moved_bytes += moved - std::exchange(incoming_moved_, moved);
  for (Receive* waiting : receives_) {
    if (waiting->is_asked) ++waiting->moves_ahead;
  }
  Receive* receive = receiving_ != nullptr ? receiving_ : receiving_early_->receive;
  if (receive == nullptr) return;
  receive->moved_bytes = moved;
  ++receive->moves;
}

void PeerLink::on_frame(const FrameHead& head) {
  switch (head.type) {
    case FrameType::kAbort:
      has_left_ = true;
      std::rethrow_exception(decode_error(abort_body_));
    case FrameType::kGoodbye:
      has_left_ = true;
      return;
    case FrameType::kInquiry:
      return on_inquiry(head);
    case FrameType::kReady:
      return on_ready(head);
    case FrameType::kOffer:
      return on_offer(head);
    case FrameType::kHold:
      is_held_back_ = true;
      return;
    case FrameType::kProgress:
      return on_progress(head);
    case FrameType::kData:
      break;
  }
  on_part(head, head.length);
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
  if (!Tag::is_point_to_point(head.tag)) {
    check(head.tag, head.header);
    const bool is_ahead = log_.find(Tag::position(head.tag)) == nullptr;
    if (is_ahead && notices_.size() < kMaxNotices) notices_.push_back({head.tag, head.header});
  }
  if (is_ending_ || controls_.size() >= kMaxControls) return;
  const bool is_answered =
      std::any_of(controls_.begin(), controls_.end(), [&](const Control& control) {
        return control.head.type == FrameType::kProgress && control.head.tag == head.tag;
      });
  if (!is_answered) answer(head);
}

void PeerLink::answer(const FrameHead& inquiry) {
  FrameHead head;
  head.header = inquiry.header;
  head.type = FrameType::kProgress;
  head.tag = inquiry.tag;
  if (Tag::is_point_to_point(inquiry.tag)) {
    const auto asked = std::find_if(sends_.begin(), sends_.end(), [&](const Outgoing& outgoing) {
      return outgoing.send->tag == inquiry.tag;
    });
    const bool is_moving =
        asked != sends_.end() &&
        std::exchange(asked->told_moves, asked->send->moves) != asked->send->moves;
    head.offset = is_moving ? 1 : 0;
  } else {
    if (tracker_ == nullptr) return;
    const auto report = tracker_->report(ProgressTracker::Clock::now());
    if (!report) return;
    head.message_bytes = static_cast<std::uint64_t>(report->age.count());
    head.offset = report->hops;
  }
  controls_.push_back({head, {}});
}

void PeerLink::on_progress(const FrameHead& head) {
  if (Tag::is_point_to_point(head.tag)) {
    for (Receive* receive : receives_) {
      if (receive->tag != head.tag) continue;
      receive->is_asked = false;
      if (head.offset != 0) ++receive->moves;
    }
  } else if (tracker_ != nullptr) {
    constexpr std::uint64_t kMostAge = std::uint64_t{1} << 40;
    tracker_->learn({std::chrono::milliseconds{std::min(head.message_bytes, kMostAge)},
                     static_cast<unsigned>(std::min<std::uint64_t>(head.offset, ~0U))},
                    ProgressTracker::Clock::now());
  }
}

void PeerLink::on_ready(const FrameHead& head) {
  check(head.tag, head.header);
  for (Outgoing& outgoing : sends_) {
    if (outgoing.send->tag != head.tag || outgoing.is_ready) continue;
    check(*outgoing.send, head);
    outgoing.is_ready = true;
    return;
  }
  if (ready_.size() >= kMaxNotices) throw StreamError("waits for too many messages at once");
  ready_.push_back(head);
}

void PeerLink::on_offer(const FrameHead& head) {
  const auto match = std::ranges::find(receives_, head.tag, &Receive::tag);
  if (match == receives_.end()) {
    if (offers_.size() >= kMaxOffers) {
      throw StreamError("offers more than " + std::to_string(kMaxOffers) +
                        " messages that no receive was posted for");
    }
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

}  // namespace chainmail::ops
