// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What all Transports have in common that carry frames: a link to every peer that something was
// posted for or has come from, and the errors of transfers whose peer is gone.
//
// Thread rule as Transport.

#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/error.h"
#include "ops/comm/call_log.h"
#include "ops/comm/frames/peer_link.h"
#include "ops/comm/transport.h"
#include "ops/core/rendezvous.h"

namespace chainmail::ops {

/// A rank among those that a Transport joins between nodes.
struct TransportMember {
  int rank = 0;
  std::vector<PeerName> names;  ///< one per rank
  std::string group;            ///< unique in the job; also the prefix of the keys
  std::uint32_t generation = 0;
};

class FramedTransport : public Transport {
 public:
  FramedTransport(const FramedTransport&) = delete;
  FramedTransport& operator=(const FramedTransport&) = delete;

  int rank() const noexcept final { return rank_; }
  int size() const noexcept final { return static_cast<int>(names_.size()); }
  const PeerName& name(int peer) const final { return names_.at(static_cast<std::size_t>(peer)); }
  void begin(std::uint64_t position, const MessageHeader& header) final;
  void post(Send& send) override;
  void post(Receive& receive) final;
  bool has_message(int peer, std::uint64_t tag) const final;
  TransportCounters counters() const noexcept final { return counters_; }

 protected:
  /// Throws InvalidArgument for a rank without a name, "rank 3 of 2" and then `of_what`.
  FramedTransport(int rank, std::vector<PeerName> names, const std::string& of_what,
                  std::shared_ptr<Rendezvous> rendezvous, std::string key_prefix);
  /// For ranks of several nodes. `carrier` ("tcp") keeps its keys apart from those of others.
  FramedTransport(const TransportMember& member, const std::string& carrier,
                  std::shared_ptr<Rendezvous> rendezvous);

  /// Something has been posted: moves it as far as it goes at once. Throws PeerError when the peer
  /// is gone.
  virtual void go_on(int peer) = 0;

  /// Made when first asked for.
  PeerLink& link(int rank);
  /// Null where there is none.
  const PeerLink* find_link(int rank) const {
    return links_.at(static_cast<std::size_t>(rank)).get();
  }
  /// Why nothing can be expected of a peer any more; empty while it can.
  std::string& closed(int rank) { return closed_[static_cast<std::size_t>(rank)]; }
  const std::string& closed(int rank) const { return closed_[static_cast<std::size_t>(rank)]; }
  /// Forgets all transfers.
  void drop_links() noexcept;

  /// Throws PeerError when `rank` is closed and a transfer needs it.
  void throw_if_needed(int rank) const;
  /// Says why `transfer`, whose peer is closed, cannot end.
  PeerError gone(const Transfer& transfer) const;
  /// Throws the reason that a rank has left at the rendezvous, if it gave up before all knew it.
  void check_reported_failure();

  /// Peers that cannot be told in this time find the reason at the rendezvous.
  static constexpr std::chrono::milliseconds kAbortTime{50};
  static constexpr std::chrono::milliseconds kGoodbyeTime{1000};

  std::string key_of(int rank) const { return key_prefix_ + std::to_string(rank); }
  std::string failure_key() const { return key_prefix_ + "failed"; }

  const int rank_;
  const std::vector<PeerName> names_;
  const std::shared_ptr<Rendezvous> rendezvous_;
  const std::string key_prefix_;
  std::vector<int> linked_;  ///< ranks that something was posted for or has come from
  TransportCounters counters_;
  bool has_failed_ = false;

 private:
  CallLog log_;
  std::vector<std::unique_ptr<PeerLink>> links_;
  std::vector<std::string> closed_;
  internal::Deadline next_failure_check_ = internal::Deadline::after(std::chrono::milliseconds{0});
};

}  // namespace chainmail::ops
