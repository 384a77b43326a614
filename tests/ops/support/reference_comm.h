// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// A Comm without any cleverness: all ranks meet at a board, look at each other's buffers, and part.
// What algorithms and groups are checked with independently of the transports, and where tests
// make a Comm fail on purpose.

#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "ops/comm/comm.h"
#include "ops/engine/comms/comm_factory.h"
#include "tests/ops/support/thread_transport.h"

namespace chainmail::test {

/// Where the ranks of one ReferenceComm meet.
class ReferenceExchange {
 public:
  explicit ReferenceExchange(int size) : steps_(static_cast<std::size_t>(size)) {}

  struct Step {
    const std::byte* data = nullptr;
    std::vector<std::span<const std::byte>> parts;
    ops::MessageHeader header;
  };

  /// Waits for all ranks, hands `use` everybody's step, waits until all have used them.
  void meet(int rank, Step mine, const ops::OpContext& context,
            const std::function<void(const std::vector<Step>&)>& use);
  void abort();

 private:
  void gather(std::unique_lock<std::mutex>& lock, const ops::OpContext& context);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Step> steps_;
  std::size_t arrived_ = 0;
  std::uint64_t round_ = 0;
  bool is_aborted_ = false;
};

class ReferenceComm final : public ops::Comm {
 public:
  ReferenceComm(std::shared_ptr<ReferenceExchange> board, int rank, int size)
      : board_(std::move(board)), rank_(rank), size_(size) {}
  /// Who still needs this rank gets a PeerError.
  ~ReferenceComm() override { board_->abort(); }
  ReferenceComm(const ReferenceComm&) = delete;
  ReferenceComm& operator=(const ReferenceComm&) = delete;

  int rank() const noexcept override { return rank_; }
  int size() const noexcept override { return size_; }
  void all_reduce(std::byte* data, std::size_t count, const ops::Reduction& reduction,
                  const ops::OpContext& context) override;
  void reduce(std::byte* data, std::size_t count, const ops::Reduction& reduction, int root,
              const ops::OpContext& context) override;
  void reduce_scatter(ops::ConstParts input, std::byte* output, const ops::Reduction& reduction,
                      const ops::OpContext& context) override;
  void all_gather(ops::Parts parts, const ops::OpContext& context) override;
  void broadcast(std::byte* data, std::size_t bytes, int root,
                 const ops::OpContext& context) override;
  void all_to_all(ops::ConstParts send, ops::Parts receive, const ops::OpContext& context) override;
  void barrier(const ops::OpContext& context) override;
  void abort() noexcept override { board_->abort(); }

 private:
  std::shared_ptr<ReferenceExchange> board_;
  int rank_;
  int size_;
};

/// Boards by name: what the threads of one test share so that their groups find each other.
class ReferenceWorld : public std::enable_shared_from_this<ReferenceWorld> {
 public:
  [[nodiscard]] std::shared_ptr<ReferenceExchange> board(const std::string& name, int size);
  /// For sends and receives.
  [[nodiscard]] std::shared_ptr<ops::ThreadHub> hub(const ops::CommRequest& request);
  [[nodiscard]] ops::CommFactory factory();

 private:
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<ReferenceExchange>> boards_;
  std::map<std::string, std::shared_ptr<ops::ThreadHub>> hubs_;
};

}  // namespace chainmail::test
