// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/comm/mpi/mpi_world.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <string>
#include <utility>

#include "base/error.h"

namespace chainmail::ops {
namespace {

constexpr std::size_t kMaxFree = 16;
// Of groups that failed, some senders never finish: the oldest inboxes are given up.
constexpr std::size_t kMaxClosed = 64;
// Looked at in one go.
constexpr int kClosedPerTidying = 4;
constexpr std::chrono::milliseconds kTidyingPause{5};

bool is_last(const MpiBuffer& buffer) {
  MpiSender sender;
  FrameHead head;
  return buffer.read(sender, head) &&
         (head.type == FrameType::kGoodbye || head.type == FrameType::kAbort);
}

}  // namespace

void MpiBuffer::write(const MpiSender& sender, const FrameHead& head,
                      const std::byte* data) noexcept {
  // Processes of one MPI job have one byte order; MPI_BYTE keeps it.
  std::memcpy(bytes.get(), &sender.rank, sizeof sender.rank);
  std::memcpy(bytes.get() + 4, &sender.inbox, sizeof sender.inbox);
  const auto encoded = head.encode();
  std::memcpy(bytes.get() + MpiSender::kBytes, encoded.data(), encoded.size());
  size = MpiSender::kBytes + FrameHead::kBytes + head.length;
  if (head.length != 0) {
    std::memcpy(bytes.get() + MpiSender::kBytes + FrameHead::kBytes, data, head.length);
  }
}

bool MpiBuffer::read(MpiSender& sender, FrameHead& head) const noexcept {
  if (size < MpiSender::kBytes + FrameHead::kBytes) return false;
  std::memcpy(&sender.rank, bytes.get(), sizeof sender.rank);
  std::memcpy(&sender.inbox, bytes.get() + 4, sizeof sender.inbox);
  const auto decoded =
      FrameHead::decode(std::span(bytes.get() + MpiSender::kBytes, FrameHead::kBytes));
  if (!decoded || size != MpiSender::kBytes + FrameHead::kBytes + decoded->length) return false;
  head = *decoded;
  return true;
}

int MpiWorld::open_inbox() {
  const std::lock_guard lock(mutex_);
  if (next_inbox_ >= api_->max_tag()) {
    throw MpiError("this MPI has tags up to " + std::to_string(api_->max_tag()) +
                   " only, and each Comm of a group takes one: all are used up; make fewer "
                   "groups");
  }
  return next_inbox_++;
}

void MpiWorld::close_inbox(int inbox, int senders) {
  if (senders <= 0) return;
  const std::lock_guard lock(mutex_);
  closed_.push_back({inbox, senders, {}});
  if (closed_.size() > kMaxClosed && closed_.front().coming.empty()) closed_.pop_front();
}

std::unique_ptr<MpiBuffer> MpiWorld::take_buffer() {
  {
    const std::lock_guard lock(mutex_);
    if (!free_.empty()) {
      auto buffer = std::move(free_.back());
      free_.pop_back();
      return buffer;
    }
  }
  return std::make_unique<MpiBuffer>();
}

void MpiWorld::give_back(std::unique_ptr<MpiBuffer> buffer) {
  const std::lock_guard lock(mutex_);
  if (free_.size() < kMaxFree) free_.push_back(std::move(buffer));
}

void MpiWorld::abandon(std::unique_ptr<MpiBuffer> buffer) {
  const std::lock_guard lock(mutex_);
  abandoned_.push_back(std::move(buffer));
}

void MpiWorld::empty(ClosedInbox& inbox) {
  bool is_done = true;
  while (!inbox.coming.empty()) {
    if (api_->test(inbox.coming.front()->request, is_done) != kMpiSuccess || !is_done) break;
    inbox.senders -= is_last(*inbox.coming.front()) ? 1 : 0;
    inbox.coming.pop_front();
  }
  MpiArrival arrival;
  bool is_found = true;
  while (inbox.coming.size() < kMaxFree) {
    if (api_->probe(kMpiAnySource, inbox.tag, is_found, arrival) != kMpiSuccess || !is_found) break;
    // No larger than the message, mostly a goodbye of some bytes: closed inboxes may be many.
    auto buffer = std::make_unique<MpiBuffer>(std::max(arrival.bytes, 0));
    if (api_->receive(buffer->bytes.get(), arrival, buffer->request) != kMpiSuccess) break;
    inbox.coming.push_back(std::move(buffer));
  }
}

void MpiWorld::tidy() noexcept {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock() || !next_tidying_.has_passed()) return;
  next_tidying_ = internal::Deadline::after(kTidyingPause);
  try {
    abandoned_.remove_if([this](const std::unique_ptr<MpiBuffer>& buffer) {
      bool is_done = false;
      return api_->test(buffer->request, is_done) == kMpiSuccess && is_done;
    });
    for (int i = 0; i < kClosedPerTidying && !closed_.empty(); ++i) {
      empty(closed_.front());
      if (closed_.front().senders <= 0 && closed_.front().coming.empty()) {
        closed_.pop_front();
      } else {
        closed_.splice(closed_.end(), closed_, closed_.begin());
      }
    }
  } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): it is tried again later
  }
}

}  // namespace chainmail::ops
