// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What flows between the agent and one rank: its output in whole lines, its input, its job socket.
// Of each output stream at most a window of bytes is on its way to whoever shows it; the rank waits
// when that is used up.
//
// One thread, the io_context's.

#pragma once

#include <asio/io_context.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "launcher/agent/rank_process.h"
#include "launcher/channel/byte_stream.h"
#include "launcher/channel/wire.h"
#include "launcher/output/line_splitter.h"

namespace chainmail::launch {

class RankStreams {
 public:
  struct Callbacks {
    /// `stream` is 1 or 2.
    std::function<void(std::uint8_t stream, std::string_view piece)> on_output;
    std::function<void(std::string_view bytes)> on_job_bytes;
    /// The last write_input() has been taken, or nobody will ever take it nor anything more.
    std::function<void(bool more)> on_input_taken;
  };
  struct Settings {
    bool carriage_returns = false;
    std::size_t output_window = 0;
  };

  /// Throws SystemError.
  RankStreams(asio::io_context& io, RankHandles handles, Settings settings, Callbacks callbacks);
  ~RankStreams();
  RankStreams(const RankStreams&) = delete;
  RankStreams& operator=(const RankStreams&) = delete;

  /// So much of a stream has been shown. `stream` is 1 or 2.
  void output_taken(std::uint8_t stream, std::size_t bytes);
  /// Of the terminal that the rank writes to; nothing changes where its output is a pipe.
  void set_window(const WindowSize& size);
  /// Whether there is room for what the rank says.
  void set_reading(bool reading);
  /// Nobody will show what the rank writes: it is taken, so that the rank does not wait.
  void drop_output();
  void write_job(std::string bytes);
  /// For the rank's stdin; nothing: the end. One at a time.
  void write_input(std::string bytes);
  /// The rank is gone: hands out all that it said, and closes everything.
  void finish();

 private:
  struct Output {
    std::shared_ptr<ByteStream> stream;
    std::unique_ptr<LineSplitter> lines;
    std::size_t on_its_way = 0;
  };

  void connect_output(std::size_t index, internal::UniqueFd source, bool carriage_returns);
  void update_output(Output& output);
  void input_taken();

  asio::io_context& io_;
  Callbacks callbacks_;
  std::size_t window_;
  Output outputs_[2];
  std::shared_ptr<ByteStream> job_;
  std::shared_ptr<ByteStream> input_;
  bool input_pending_ = false;
  bool input_ends_ = false;
  bool reading_ = true;
  bool finished_ = false;
  int terminal_ = -1;  // of outputs_[0], while that is open
};

}  // namespace chainmail::launch
