// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Reads the launcher's standard input, a piece at a time and only when asked to. A thread of its
// own does it: the descriptor is shared with whoever started the launcher, so it cannot be made
// non-blocking, and files cannot be waited for at all. A terminal is read in the foreground only,
// so that a launcher in the background is never stopped by SIGTTIN.
//
// Made, used and destroyed by the io_context's thread, which the callback runs on.

#pragma once

#include <asio/io_context.hpp>
#include <functional>
#include <memory>
#include <string>

namespace chainmail::launch {

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

}  // namespace chainmail::launch
