// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Messages between ranks that are threads of one process: mailboxes in a shared hub.
//
// The hub is thread-safe; each ThreadTransport belongs to one thread at a time. A message whose
// receive is posted is copied once, from the sender's buffer to the receiver's.

#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "ops/comm/transport.h"

namespace chainmail::ops {

/// What the ranks of one thread Comm share.
class ThreadHub {
 public:
  /// `names` of the ranks; empty: ranks 0.. on host "thread".
  explicit ThreadHub(int size, std::vector<PeerName> names = {});

 private:
  friend class ThreadTransport;

  struct Early {
    int sender = 0;
    std::uint64_t tag = 0;
    MessageHeader header;
    std::unique_ptr<std::byte[]> copy;  ///< null when `send` still holds the bytes
    std::size_t bytes = 0;
    Send* send = nullptr;
  };
  struct Mailbox {
    std::mutex mutex;
    std::condition_variable changed;
    std::list<Receive*> receives;
    std::list<Early> early;
    std::uint64_t events = 0;  ///< counts what may end a wait
    std::size_t early_bytes = 0;
  };
  struct Call {
    int rank = 0;  ///< the first to come
    MessageHeader header;
    int ranks_come = 0;
  };

  void notify(int rank) noexcept;
  void notify_all() noexcept;

  std::vector<PeerName> names_;
  std::vector<std::unique_ptr<Mailbox>> mailboxes_;
  std::mutex mutex_;  ///< of what follows; never taken together with a mailbox's
  std::map<std::uint64_t, Call> calls_;
  std::vector<bool> has_left_;
  std::exception_ptr error_;
  std::atomic<bool> has_news_{false};  ///< error_ is set or somebody has left
};

class ThreadTransport final : public Transport {
 public:
  ThreadTransport(std::shared_ptr<ThreadHub> hub, int rank);
  ~ThreadTransport() override;
  ThreadTransport(const ThreadTransport&) = delete;
  ThreadTransport& operator=(const ThreadTransport&) = delete;

  int rank() const noexcept override { return rank_; }
  int size() const noexcept override { return static_cast<int>(hub_->names_.size()); }
  const PeerName& name(int peer) const override;
  void begin(std::uint64_t position, const MessageHeader& header) override;
  void post(Send& send) override;
  void post(Receive& receive) override;
  void inquire(const Transfer& transfer) override;
  bool has_message(int peer, std::uint64_t tag) const override;
  void expect_all() override {}
  PeerState state(int peer) const override;
  bool progress() override;
  void wait(std::chrono::microseconds timeout) override;
  void fail(const std::exception_ptr& error) noexcept override;
  void interrupt() noexcept override { hub_->notify(rank_); }
  TransportCounters counters() const noexcept override { return counters_; }

 private:
  ThreadHub::Mailbox& mailbox(int rank) const;
  void deliver(Receive& receive, int receiver, const MessageHeader& header, const std::byte* data,
               std::size_t bytes) const;
  void forget_transfers() noexcept;
  void check_peers();

  std::shared_ptr<ThreadHub> hub_;
  int rank_;
  std::uint64_t seen_events_ = 0;
  TransportCounters counters_;
};

}  // namespace chainmail::ops
