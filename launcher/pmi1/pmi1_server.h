// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// PMI-1 for the ranks of one node, over a socket that each inherits. Keys travel between nodes with
// the barrier that follows them.
//
// One thread, the io_context's.

#pragma once

#include <asio/io_context.hpp>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "launcher/channel/byte_stream.h"
#include "launcher/mpi/mpi_wire.h"

namespace chainmail::launch {

/// The number under which a rank finds its socket; the job socket's is 60.
inline constexpr int kPmi1Fd = 61;

class Pmi1Server {
 public:
  using Send = std::function<void(const MpiMessage&)>;

  Pmi1Server(asio::io_context& io, const MpiOrder& order, Send send);
  ~Pmi1Server();
  Pmi1Server(const Pmi1Server&) = delete;
  Pmi1Server& operator=(const Pmi1Server&) = delete;

  /// The rank's end; ours is listened to from now on.
  [[nodiscard]] internal::UniqueFd socket_for(std::uint32_t rank);
  /// True when `message` was for PMI-1.
  bool handle(const MpiMessage& message);
  void on_rank_exit(std::uint32_t rank);
  /// Between MPI_Init and MPI_Finalize.
  bool is_inside(std::uint32_t rank) const;

 private:
  using Words = std::map<std::string, std::string>;
  struct Rank {
    std::shared_ptr<ByteStream> stream;
    std::string unread;
    bool is_inside = false;
    bool is_in_spawn = false;
  };

  void receive(std::uint32_t rank, std::span<const std::byte> bytes);
  void obey(std::uint32_t rank, const std::string& line);
  void obey_names(std::uint32_t rank, const std::string& command, Words& words);
  void put(std::uint32_t rank, Words& words);
  void get(std::uint32_t rank, Words& words);
  void enter_barrier();
  void leave_barrier(const MpiMessage& message);
  void answer_name(const MpiMessage& message);
  void say(std::uint32_t rank, const std::string& line);
  void abort(std::uint32_t rank, int code, const std::string& words);

  asio::io_context& io_;
  std::string job_;
  std::size_t size_;
  Send send_;
  std::map<std::uint32_t, Rank> ranks_;
  std::map<std::string, std::string> values_;
  std::vector<MpiEntry> fresh_;  // put since the last barrier
  std::size_t waiting_ = 0;      // ranks of this node in the barrier
  struct Asked {
    std::uint32_t rank;
    std::string command;
  };
  std::map<std::uint64_t, Asked> asked_;
  std::uint64_t last_id_ = 0;
};

}  // namespace chainmail::launch
