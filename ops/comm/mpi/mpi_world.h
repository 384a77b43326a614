// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// This process's part in MPI, shared by all its MpiTransports: buffers, inboxes, and what closed
// transports have left under way.
//
// Any thread.

#pragma once

#include <cstddef>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/deadline.h"
#include "ops/comm/frames/frame.h"
#include "ops/comm/mpi/mpi_api.h"

namespace chainmail::ops {

/// What one MPI message carries: who sent it and where it is reached, then a frame.
struct MpiSender {
  static constexpr std::size_t kBytes = 8;
  int rank = 0;  ///< in the group
  int inbox = 0;
};

/// A message of our own memory, so that MPI never sees a user's: a request that cannot be ended may
/// be forgotten, its memory with it.
struct MpiBuffer {
  static constexpr std::size_t kMaxBytes = MpiSender::kBytes + FrameHead::kBytes + kMaxFramePayload;
  std::unique_ptr<std::byte[]> bytes;
  std::size_t size = 0;
  MpiRequest request;

  explicit MpiBuffer(std::size_t capacity = kMaxBytes)
      : bytes(std::make_unique_for_overwrite<std::byte[]>(capacity)) {}
  void write(const MpiSender& sender, const FrameHead& head, const std::byte* payload) noexcept;
  /// False when the bytes cannot be a frame.
  bool read(MpiSender& sender, FrameHead& head) const noexcept;
  const std::byte* payload() const noexcept {
    return bytes.get() + MpiSender::kBytes + FrameHead::kBytes;
  }
};

class MpiWorld {
 public:
  explicit MpiWorld(std::shared_ptr<MpiApi> api) : api_(std::move(api)) {}
  MpiWorld(const MpiWorld&) = delete;
  MpiWorld& operator=(const MpiWorld&) = delete;

  MpiApi& api() noexcept { return *api_; }

  /// A tag that no other inbox of this process has had: what comes late for one is never taken for
  /// another's. Throws MpiError when there is none left.
  int open_inbox();
  /// What still comes is thrown away, until so many senders have said that they have finished.
  void close_inbox(int inbox, int senders);

  std::unique_ptr<MpiBuffer> take_buffer();
  void give_back(std::unique_ptr<MpiBuffer> buffer);
  /// A buffer under way that nobody waits for any more.
  void abandon(std::unique_ptr<MpiBuffer> buffer);

  /// Ends what was abandoned and empties closed inboxes; cheap when called often.
  void tidy() noexcept;

 private:
  struct ClosedInbox {
    int tag = 0;
    int senders = 0;
    std::deque<std::unique_ptr<MpiBuffer>> coming;
  };

  void empty(ClosedInbox& inbox);

  const std::shared_ptr<MpiApi> api_;
  std::mutex mutex_;
  int next_inbox_ = 1;
  std::vector<std::unique_ptr<MpiBuffer>> free_;
  std::list<std::unique_ptr<MpiBuffer>> abandoned_;
  std::list<ClosedInbox> closed_;
  internal::Deadline next_tidying_ = internal::Deadline::after(std::chrono::milliseconds{0});
};

}  // namespace chainmail::ops
