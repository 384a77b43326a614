// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/comm/p2p/schedules/schedule.h"

namespace chainmail::ops {

template <typename T>
T& Schedule::next(std::deque<T>& transfers, std::size_t& used, int peer, std::size_t bytes) {
  if (used == transfers.size()) transfers.emplace_back();
  T& transfer = transfers[used++];
  transfer.peer = peer;
  const auto step =
      piece_ * static_cast<std::size_t>(round_count()) + static_cast<std::size_t>(step_of(round_));
  transfer.tag = Tag::collective(args_->position, step);
  transfer.header = args_->header;
  transfer.header.flags = static_cast<std::uint16_t>(transfer.header.flags | flags_);
  transfer.bytes = bytes;
  transfer.is_done.store(false, std::memory_order_relaxed);
  return transfer;
}

void Schedule::send(int peer, const std::byte* data, std::size_t bytes, bool even_empty) {
  if (bytes == 0 && !even_empty) return;
  Send& transfer = next(sends_, sends_used_, peer, bytes);
  transfer.data = data;
  transport_.post(transfer);
}

void Schedule::receive(int peer, std::byte* data, std::size_t bytes, bool even_empty) {
  if (bytes == 0 && !even_empty) return;
  Receive& transfer = next(receives_, receives_used_, peer, bytes);
  transfer.data = data;
  transfer.flags = 0;
  transport_.post(transfer);
}

void Schedule::start(const CollectiveArgs& args, std::size_t piece) {
  args_ = &args;
  piece_ = piece;
  round_ = -1;
  flags_ = 0;
  sends_used_ = receives_used_ = 0;
  first_pending_send_ = first_pending_receive_ = 0;
}

bool Schedule::is_round_done() noexcept {
  const auto are_done = [](const auto& transfers, std::size_t& first, std::size_t used) {
    while (first < used && transfers[first].is_done.load(std::memory_order_acquire)) ++first;
    return first == used;
  };
  return are_done(receives_, first_pending_receive_, receives_used_) &&
         are_done(sends_, first_pending_send_, sends_used_);
}

bool Schedule::advance() {
  while (round_ < round_count()) {
    if (round_ >= 0) {
      if (!is_round_done()) return false;
      for (std::size_t i = 0; i < receives_used_; ++i) {
        flags_ = static_cast<std::uint16_t>(flags_ | (receives_[i].flags & kFlagNonFinite));
      }
      finish_round(round_);
    }
    ++round_;
    sends_used_ = receives_used_ = 0;
    first_pending_send_ = first_pending_receive_ = 0;
    if (round_ < round_count()) post_round(round_);
  }
  return true;
}

void Schedule::visit_pending(std::vector<int>& ranks, bool inquires) {
  const auto visit = [&](const Transfer& transfer) {
    if (transfer.is_done.load(std::memory_order_acquire)) return;
    ranks.push_back(transfer.peer);
    if (inquires) transport_.inquire(transfer);
  };
  for (std::size_t i = 0; i < receives_used_; ++i) visit(receives_[i]);
  for (std::size_t i = 0; i < sends_used_; ++i) visit(sends_[i]);
}

}  // namespace chainmail::ops
