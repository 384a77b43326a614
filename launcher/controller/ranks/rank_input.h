// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Passes the launcher's standard input on to the ranks that shall have it. The next piece is read
// when every one of them has taken the last, so that nothing piles up anywhere.
//
// One thread, the io_context's.

#pragma once

#include <asio/io_context.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace chainmail::launch {

/// Reads the launcher's standard input, a piece at a time and only when asked to. A thread of its
/// own does it: the descriptor is shared with whoever started the launcher, so it cannot be made
/// non-blocking, and files cannot be waited for at all. A terminal is read in the foreground only,
/// so that a launcher in the background is never stopped by SIGTTIN.
/// Made, used and destroyed by the io_context's thread, which the callback runs on.
class InputReader {
 public:
  /// `on_bytes`: one piece of at most 64 KiB; empty at the end of the input.
  InputReader(asio::io_context& io, std::function<void(std::string)> on_bytes);
  ~InputReader();
  InputReader(const InputReader&) = delete;
  InputReader& operator=(const InputReader&) = delete;

  /// Asks for the next piece.
  void read_on();

  /// False where standard input is /dev/null or cannot be read at all.
  [[nodiscard]] static bool is_worthwhile();

 private:
  struct State;
  std::shared_ptr<State> state_;
};

class RankInput {
 public:
  /// An empty text is the end of the input.
  using Send = std::function<void(std::uint32_t rank, std::string bytes)>;

  RankInput(asio::io_context& io, std::vector<std::uint32_t> targets, Send send);
  /// The rank has taken what was sent, or will never.
  void on_taken(std::uint32_t rank);
  void on_gone(std::uint32_t rank);

 private:
  void deliver(const std::string& bytes);
  void go_on();

  std::set<std::uint32_t> targets_;
  std::set<std::uint32_t> waiting_for_;
  Send send_;
  bool is_reading_ = true;
  bool is_over_ = false;
  InputReader reader_;
};

}  // namespace chainmail::launch
