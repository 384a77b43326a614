// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Puts the output of many writers into one place so that no line is torn: while one writer's line
// is unfinished, the others' pieces are held back, unless the line stands still: for two seconds
// where it is short, such as a question; for half a minute where its writer has filled buffers.
//
// Not thread-safe.

#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>

namespace chainmail::launch {

/// Who wrote: a rank (-1: the launcher itself) by one of its streams.
struct Writer {
  std::int64_t rank = -1;
  int stream = 2;
  friend bool operator==(const Writer&, const Writer&) = default;
};

class LineMerger {
 public:
  using Clock = std::chrono::steady_clock;
  /// `continues`: goes on with a line that the same writer has begun. `breaks`: a line of
  /// somebody else is unfinished and has to be ended first.
  struct Shown {
    Writer writer;
    std::string text;
    bool continues = false;
    bool breaks = false;
  };
  using Show = std::function<void(Shown)>;
  /// So many bytes of this writer take no more room: they have been shown, or are held back for
  /// a line of the same rank, which would never end if the rank had to wait.
  using Taken = std::function<void(const Writer& writer, std::size_t bytes)>;

  /// How long an unfinished line may stand still, and how long it may become, while others wait.
  static constexpr std::chrono::milliseconds kMaxStandstill{2000};
  static constexpr std::chrono::milliseconds kMaxStandstillOfLong{30'000};
  static constexpr std::size_t kLongLineBytes = std::size_t{32} << 10;
  static constexpr std::size_t kMaxLineBytes = std::size_t{64} << 20;
  /// How much may be held back for a line of the same rank.
  static constexpr std::size_t kMaxOwnBytes = std::size_t{4} << 20;

  /// With `carriage_returns`, a piece that ends with '\r' may be followed by anybody's.
  LineMerger(bool carriage_returns, Show show, Taken taken,
             std::function<Clock::time_point()> now = Clock::now)
      : carriage_returns_(carriage_returns),
        show_(std::move(show)),
        taken_(std::move(taken)),
        now_(std::move(now)) {}

  /// Whole lines, or a part of one line.
  void add(Writer writer, std::string text);
  /// The rank whose unfinished line the others wait for.
  [[nodiscard]] std::optional<std::int64_t> open_rank() const;
  /// Takes what is held back of a rank whose line is open elsewhere, so that it need not wait here.
  /// False when it is too much by now.
  bool take_of(std::int64_t rank);
  /// Nobody waits for the open line any more.
  void give_up();
  /// The rank will write nothing more; its unfinished lines are as long as they will be.
  void end(std::int64_t rank);
  /// Shows what has waited long enough.
  void tick();
  /// Shows all that is held back.
  void finish();
  /// When tick() has something to do, if nothing else happens.
  [[nodiscard]] std::optional<Clock::time_point> next_tick() const;

 private:
  struct Held {
    Writer writer;
    std::string text;
    bool is_end = false;
    bool is_taken = false;
  };

  bool is_blocked(const Writer& writer) const;
  void show(Held held);
  void take_own();
  void close_line_of(std::int64_t rank);
  void release();
  [[nodiscard]] std::chrono::milliseconds max_standstill() const;

  bool carriage_returns_;
  Show show_;
  Taken taken_;
  std::function<Clock::time_point()> now_;
  std::optional<Writer> open_;  // whose line is unfinished
  bool may_be_broken_ = false;  // nobody has to wait for it
  std::size_t open_bytes_ = 0;
  std::size_t own_bytes_ = 0;  // held back for a line of the same rank
  Clock::time_point last_shown_;
  std::deque<Held> held_;
};

}  // namespace chainmail::launch
