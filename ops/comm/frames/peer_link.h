// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The messages between this rank and one peer: which receive a message belongs to, what waits for
// the peer to be ready, what came early. Knows frames, not sockets.
//
// Not thread-safe.

#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ops/comm/call_log.h"
#include "ops/comm/frames/frame_handler.h"
#include "ops/comm/transport.h"

namespace chainmail::ops {

class PeerLink final : public FrameHandler {
 public:
  /// The arguments outlive the link.
  PeerLink(const PeerName& self, const PeerName& peer, const CallLog& log,
           TransportCounters& counters, ProgressTracker* tracker);

  void post(Send& send);
  void post(Receive& receive);
  void inquire(const Transfer& transfer);
  /// Compares what the peer has said about this position already. Throws MismatchError.
  void begin(std::uint64_t position);

  /// From now on only what is needed to end the frame under way, then this last frame.
  void end_with(FrameType type, std::string body);

  bool has_left() const noexcept { return has_left_; }
  /// True when the peer has sent, or waits to send, a message with this tag that no receive has
  /// been posted for.
  bool has_message(std::uint64_t tag) const noexcept;
  /// True when something can be sent now.
  bool has_output() const noexcept;
  /// A transfer that needs the peer; null when there is none.
  const Transfer* pending() const noexcept;

  std::optional<std::byte*> on_head(const FrameHead& head) override;
  void on_part(const FrameHead& head, std::size_t bytes) override;
  void on_frame(const FrameHead& head) override;
  std::optional<OutgoingFrame> next_frame() override;
  void part_sent(const FrameHead& head, std::size_t bytes) override;
  void frame_sent(const FrameHead& head) override;

 private:
  struct Early {
    std::uint64_t tag = 0;
    MessageHeader header;
    std::unique_ptr<std::byte[]> data;
    std::size_t bytes = 0;
    bool is_complete = false;
    Receive* receive = nullptr;  ///< posted while it was still coming in
  };
  struct Outgoing {
    Send* send = nullptr;
    bool is_ready = false;
    std::size_t sent = 0;
    std::uint64_t told_moves = 0;  ///< of the send, when the peer asked for it last
  };
  struct Control {
    FrameHead head;
    std::string body;
  };
  struct Notice {
    std::uint64_t tag = 0;
    MessageHeader header;
  };

  void check(std::uint64_t tag, const MessageHeader& theirs);
  void check(const Receive& receive, const MessageHeader& theirs, std::size_t their_bytes) const;
  void check(const Send& send, const FrameHead& ready) const;
  void on_inquiry(const FrameHead& head);
  void answer(const FrameHead& inquiry);
  void on_progress(const FrameHead& head);
  std::deque<Outgoing>::iterator find_outgoing(const FrameHead& head);
  void on_ready(const FrameHead& head);
  void on_offer(const FrameHead& head);
  bool take_offer(const Receive& receive);
  std::optional<std::byte*> begin_message(const FrameHead& head);
  void finish(Early& early);
  void push_control(FrameType type, const Transfer& transfer);
  void hold_back();
  Outgoing* next_outgoing() noexcept;

  const PeerName& self_;
  const PeerName& peer_;
  const CallLog& log_;
  TransportCounters& counters_;
  ProgressTracker* const tracker_;

  std::deque<Outgoing> sends_;
  std::deque<Control> controls_;
  std::vector<Receive*> receives_;
  std::list<Early> early_;
  std::size_t early_bytes_ = 0;
  std::vector<FrameHead> ready_;   ///< for sends that are not posted yet
  std::vector<FrameHead> offers_;  ///< long messages that wait for a receive
  std::vector<Notice> notices_;    ///< about positions ahead of this rank's

  // The message that is coming in; a peer sends one after the other.
  Receive* receiving_ = nullptr;
  Early* receiving_early_ = nullptr;
  std::uint64_t incoming_tag_ = 0;
  std::uint64_t incoming_bytes_ = 0;  ///< of the whole message
  std::uint64_t incoming_got_ = 0;
  std::size_t incoming_moved_ = 0;  ///< incoming_got_ and what has come of the frame under way
  bool is_incoming_ = false;

  std::string abort_body_;
  bool has_left_ = false;
  bool is_ending_ = false;
  bool is_held_back_ = false;  ///< the peer wants no message that it has not asked for
  bool holds_back_ = false;    ///< this rank has said so
};

}  // namespace chainmail::ops
