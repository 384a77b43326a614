// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// How a rank leaves its peers: in order, or with the reason why it gives up.

#include <thread>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "ops/comm/mpi/mpi_transport.h"
#include "ops/core/error_text.h"

namespace chainmail::ops {

using internal::Deadline;
using std::chrono::microseconds;
using std::chrono::milliseconds;

MpiTransport::~MpiTransport() {
  if (has_failed_) return;
  try {
    for (const int rank : linked_) look_up(rank);
    end(FrameType::kGoodbye, {}, kGoodbyeTime);
  } catch (const std::exception& error) {
    internal::log_line(internal::LogLevel::kWarning,
                       "closing group " + group_ + ": " + error.what());
  }
  drop_all();
}

// One round of a transport that ends; false when nothing is left to be sent.
bool MpiTransport::pump() noexcept {
  try {
    inbox_->progress([this](const MpiBuffer& buffer) { return take(buffer); });
  } catch (...) {  // NOLINT(bugprone-empty-catch): this rank has ended, whatever peers say
  }
  bool is_busy = false;
  for (const int rank : linked_) {
    Peer& last = peer(rank);
    if (!last.address) continue;
    try {
      send_to(rank);
    } catch (...) {
      last.address.reset();  // nobody is left to be told
      continue;
    }
    is_busy = is_busy || !last.sending.empty() || link(rank).has_output();
  }
  return is_busy;
}

void MpiTransport::end(FrameType last, const std::string& body, milliseconds time) {
  for (const int rank : linked_) {
    if (link(rank).has_left()) {
      peer(rank).address.reset();
    } else {
      link(rank).end_with(last, body);
    }
  }
  const auto deadline = Deadline::after(time);
  while (pump() && !deadline.has_passed()) std::this_thread::sleep_for(microseconds{100});
}

void MpiTransport::drop_all() noexcept {
  int senders = 0;
  for (const int rank : linked_) {
    Peer& dropped = peer(rank);
    for (SentBuffer& each : dropped.sending) world_->abandon(std::move(each.buffer));
    if (dropped.address && !link(rank).has_left()) ++senders;
    dropped = Peer{};
  }
  drop_links();
  if (!inbox_) return;
  const int tag = inbox_->tag();
  inbox_.reset();
  world_->close_inbox(tag, senders);
}

void MpiTransport::fail(const std::exception_ptr& error) noexcept {
  if (std::exchange(has_failed_, true)) return;
  try {
    const std::string body = encode_error(error);
    if (size() > 1) rendezvous_->set(failure_key(), body);
    end(FrameType::kAbort, body, kAbortTime);
  } catch (const std::exception& problem) {
    internal::log_line(internal::LogLevel::kWarning, "group " + group_ +
                                                         " has failed, and its peers cannot be "
                                                         "told: " +
                                                         problem.what());
  }
  try {
    std::rethrow_exception(error);
  } catch (const MismatchError&) {  // NOLINT(bugprone-empty-catch): everybody is alive
  } catch (...) {
    world_->api().distrust_peers();
  }
  drop_all();
}

}  // namespace chainmail::ops
