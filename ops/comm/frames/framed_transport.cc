// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/comm/frames/framed_transport.h"

#include <utility>

#include "ops/core/error_text.h"

namespace chainmail::ops {
namespace {

// Shorter than the time between two inquiries about one transfer.
constexpr std::chrono::milliseconds kFailureCheckPause{50};

}  // namespace

FramedTransport::FramedTransport(int rank, std::vector<PeerName> names, const std::string& of_what,
                                 std::shared_ptr<Rendezvous> rendezvous, std::string key_prefix)
    : rank_(rank),
      names_(std::move(names)),
      rendezvous_(std::move(rendezvous)),
      key_prefix_(std::move(key_prefix)),
      links_(names_.size()),
      closed_(names_.size()) {
  if (rank < 0 || rank >= size()) {
    throw InvalidArgument("rank " + std::to_string(rank) + " of " + std::to_string(size()) +
                          of_what);
  }
}

// Groups of another generation have other keys, in case the store outlives them.
FramedTransport::FramedTransport(const TransportMember& member, const std::string& carrier,
                                 std::shared_ptr<Rendezvous> rendezvous)
    : FramedTransport(
          member.rank, member.names, " names in group " + member.group, std::move(rendezvous),
          member.group + "/" + carrier + "/" + std::to_string(member.generation) + "/") {}

PeerLink& FramedTransport::link(int rank) {
  auto& link = links_.at(static_cast<std::size_t>(rank));
  if (link == nullptr) {
    link = std::make_unique<PeerLink>(name(rank_), name(rank), log_, counters_, tracker());
    linked_.push_back(rank);
  }
  return *link;
}

void FramedTransport::begin(std::uint64_t position, const MessageHeader& header) {
  log_.add(position, header);
  for (const int rank : linked_) link(rank).begin(position);
}

void FramedTransport::post(Send& send) {
  link(send.peer).post(send);
  go_on(send.peer);
}

void FramedTransport::post(Receive& receive) {
  link(receive.peer).post(receive);
  go_on(receive.peer);
}

bool FramedTransport::has_message(int peer, std::uint64_t tag) const {
  const PeerLink* link = find_link(peer);
  return link != nullptr && link->has_message(tag);
}

void FramedTransport::drop_links() noexcept {
  for (const int rank : linked_) links_[static_cast<std::size_t>(rank)].reset();
  linked_.clear();
}

void FramedTransport::throw_if_needed(int rank) const {
  const PeerLink* link = closed(rank).empty() ? nullptr : find_link(rank);
  const Transfer* pending = link == nullptr ? nullptr : link->pending();
  if (pending != nullptr) throw gone(*pending);
}

PeerError FramedTransport::gone(const Transfer& transfer) const {
  const PeerName& who = name(transfer.peer);
  return PeerError(
      who.describe() + " " + closed(transfer.peer) + " during " + transfer.header.describe(),
      who.rank);
}

// One look serves all transfers of a round: each is a round trip to the store.
void FramedTransport::check_reported_failure() {
  if (!next_failure_check_.has_passed()) return;
  const auto text = rendezvous_->try_get(failure_key());
  if (text) std::rethrow_exception(decode_error(*text));
  next_failure_check_ = internal::Deadline::after(kFailureCheckPause);
}

}  // namespace chainmail::ops
