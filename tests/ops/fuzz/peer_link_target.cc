// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "tests/ops/fuzz/peer_link_target.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <stdexcept>
#include <utility>

#include "base/error.h"
#include "ops/comm/frames/peer_link.h"

namespace chainmail::ops {
namespace {

// Lengths around which messages are treated differently; the rest is near zero.
constexpr std::uint64_t kLengths[] = {
    0, 1, 8, 100, kMaxFramePayload, kEagerBytes + 1, 2 * kMaxFramePayload + 5, ~std::uint64_t{0}};
// Each run holds its transfers' memory until it ends.
constexpr std::size_t kMaxTransfers = 16;

class Input {
 public:
  explicit Input(std::string_view bytes) : bytes_(bytes) {}
  bool is_empty() const noexcept { return bytes_.empty(); }
  std::uint8_t next() {
    if (bytes_.empty()) return 0;
    const auto byte = static_cast<std::uint8_t>(bytes_.front());
    bytes_.remove_prefix(1);
    return byte;
  }
  std::uint64_t length() {
    const std::uint8_t choice = next();
    return choice < 0x80 ? choice : kLengths[choice % std::size(kLengths)] + (choice >> 3U & 3U);
  }
  // A few of each kind, so that they meet.
  std::uint64_t tag() {
    const std::uint8_t choice = next();
    return (choice & 1U) != 0 ? Tag::point_to_point(choice >> 1U & 3U)
                              : Tag::collective(choice >> 1U & 3U, choice >> 3U & 1U);
  }

 private:
  std::string_view bytes_;
};

template <typename Transfer, typename Byte>
struct Posted {
  Transfer transfer;
  std::vector<Byte> memory;
};

class Play {
 public:
  explicit Play(Input input) : input_(input) {}

  void run() {
    try {
      while (!input_.is_empty()) step();
    } catch (const StreamError&) {
    } catch (const Error&) {
    }
  }

 private:
  void step() {
    switch (input_.next() % 8) {
      case 0:
        return post(receives_);
      case 1:
        return post(sends_);
      case 2:
        return begin();
      case 3:
        return send_some();
      default:
        return receive_frame();
    }
  }

  MessageHeader header() {
    MessageHeader header;
    header.sequence = input_.next() % 2;
    return header;
  }

  template <typename Transfer, typename Byte>
  void post(std::deque<Posted<Transfer, Byte>>& list) {
    const std::uint64_t tag = input_.tag();
    const std::uint64_t bytes = input_.length();
    if (list.size() >= kMaxTransfers || bytes > 4 * kMaxFramePayload) return;
    auto& posted = list.emplace_back();
    posted.memory.resize(bytes);
    posted.transfer.peer = peer_.rank;
    posted.transfer.tag = tag;
    posted.transfer.header = header();
    posted.transfer.bytes = bytes;
    posted.transfer.data = posted.memory.data();
    link_.post(posted.transfer);
    if (input_.next() % 4 == 0) link_.inquire(posted.transfer);
  }

  void begin() {
    const MessageHeader mine = header();
    link_.begin(position_);
    log_.add(position_++, mine);
  }

  void send_some() {
    const auto frame = link_.next_frame();
    if (!frame) return;
    link_.part_sent(frame->head, frame->head.length / 2);
    if (input_.next() % 4 == 0) link_.end_with(FrameType::kAbort, "enough");
    link_.frame_sent(frame->head);
  }

  void receive_frame() {
    FrameHead head;
    head.header = header();
    head.type = static_cast<FrameType>(1 + input_.next() % 9);
    head.tag = input_.tag();
    head.message_bytes = input_.length();
    head.offset = input_.length();
    head.length = static_cast<std::uint32_t>(input_.length());
    const auto decoded = FrameHead::decode(head.encode());
    if (!decoded) return;
    const auto place = link_.on_head(*decoded);
    if (!place) return;
    if (decoded->length != 0) {
      check_place(*place, decoded->length);
      std::memset(*place, 0x41, decoded->length);
    }
    link_.on_part(*decoded, decoded->length / 2);
    link_.on_frame(*decoded);
  }

  // Without a sanitizer, too. Memory of messages that came early is the link's.
  void check_place(const std::byte* place, std::size_t length) const {
    for (const auto& [receive, memory] : receives_) {
      const std::byte* end = memory.data() + memory.size();
      const bool begins_here = place >= memory.data() && place < end;
      if (!begins_here) continue;
      if (receive.is_done) throw std::logic_error("written into a receive that has ended");
      if (length > static_cast<std::size_t>(end - place)) {
        throw std::logic_error("written behind the end of a receive");
      }
    }
  }

  Input input_;
  const PeerName self_{0, "here"};
  const PeerName peer_{1, "there"};
  CallLog log_;
  TransportCounters counters_;
  ProgressTracker tracker_;
  PeerLink link_{self_, peer_, log_, counters_, &tracker_};
  std::uint64_t position_ = 0;
  std::deque<Posted<Receive, std::byte>> receives_;
  std::deque<Posted<Send, std::byte>> sends_;
};

}  // namespace

void run_peer_link(std::string_view bytes) { Play(Input(bytes)).run(); }

std::vector<std::string> peer_link_seeds() {
  // A receive of 8 bytes, then two pieces for it; the same without a receive; a send that the peer
  // is ready for.
  const std::string receive{0, 1, 8, 0, 1};
  const std::string first{4, 0, 0, 1, 8, 0, 4};
  const std::string second{4, 0, 0, 1, 8, 4, 4};
  const std::string grown{4, 0, 0, 1, 100, 4, 96};
  const std::string send{1, 1, 8, 0, 1, 3, 1};
  const std::string ready{4, 0, 1, 1, 8, 0, 0};
  const std::string offer{4, 0, 5, 3, 100, 0, 0};
  const std::string call{2, 0, 2, 1};
  return {receive + first + second, receive + first + grown,     first + second + receive,
          first + receive + second, send + ready + offer + call, call + first + send};
}

}  // namespace chainmail::ops
