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
#include <set>
#include <string>
#include <vector>

#include "launcher/controller/ranks/input_reader.h"

namespace chainmail::launch {

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
