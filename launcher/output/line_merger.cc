// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/output/line_merger.h"

#include <algorithm>
#include <utility>

namespace chainmail::launch {

bool LineMerger::is_blocked(const Writer& writer) const {
  return open_ && !may_be_broken_ && *open_ != writer;
}

void LineMerger::add(Writer writer, std::string text) {
  if (text.empty()) return;
  if (!held_.empty() || is_blocked(writer)) {
    held_.push_back({writer, std::move(text)});
    take_own();
    return release();
  }
  show({writer, std::move(text)});
}

void LineMerger::end(std::int64_t rank) {
  held_.push_back({{rank, 0}, {}, true, true});
  release();
}

void LineMerger::tick() {
  if (open_ && now_() - last_shown_ >= max_standstill()) may_be_broken_ = true;
  release();
}

void LineMerger::finish() {
  while (!held_.empty()) {
    may_be_broken_ = true;
    release();
  }
}

std::optional<LineMerger::Clock::time_point> LineMerger::next_tick() const {
  if (held_.empty()) return std::nullopt;
  return last_shown_ + max_standstill();
}

// On a busy machine a rank may get no time for seconds in the middle of a line.
std::chrono::milliseconds LineMerger::max_standstill() const {
  return open_bytes_ >= kLongLineBytes ? kMaxStandstillOfLong : kMaxStandstill;
}

std::optional<std::int64_t> LineMerger::open_rank() const {
  if (!open_ || may_be_broken_) return std::nullopt;
  return open_->rank;
}

bool LineMerger::take_of(std::int64_t rank) {
  for (Held& held : held_) {
    if (held.writer.rank != rank || held.writer == open_ || held.is_taken || held.is_end) continue;
    held.is_taken = true;
    own_bytes_ += held.text.size();
    taken_(held.writer, held.text.size());
  }
  return own_bytes_ <= kMaxOwnBytes;
}

void LineMerger::give_up() {
  may_be_broken_ = true;
  release();
}

// A rank whose line is open must be able to finish it, whatever else it writes before.
void LineMerger::take_own() {
  if (const auto rank = open_rank(); rank && !take_of(*rank)) may_be_broken_ = true;
}

void LineMerger::show(Held held) {
  const Writer writer = held.writer;
  const std::size_t bytes = held.text.size();
  const bool continues = open_ == writer;
  const bool breaks = open_ && !continues;
  const char last = held.text.back();
  open_bytes_ = (continues ? open_bytes_ : 0) + bytes;
  if (last == '\n') {
    open_.reset();
  } else {
    open_ = writer;
  }
  may_be_broken_ = (carriage_returns_ && last == '\r') || open_bytes_ > kMaxLineBytes;
  show_({writer, std::move(held.text), continues, breaks});
  if (held.is_taken) {
    own_bytes_ -= bytes;
  } else {
    taken_(writer, bytes);
  }
  // Not before: a slow reader is no standstill of the writer.
  last_shown_ = now_();
  if (!held_.empty()) take_own();
}

void LineMerger::close_line_of(std::int64_t rank) {
  if (open_ && open_->rank == rank) may_be_broken_ = true;
}

// The first that nobody keeps waiting, again and again; so pieces of one writer stay in order, and
// the writer of the open line overtakes the others.
void LineMerger::release() {
  while (true) {
    const auto next = std::find_if(held_.begin(), held_.end(), [this](const Held& held) {
      return !is_blocked(held.writer) || (held.is_end && held.writer.rank == open_->rank);
    });
    if (next == held_.end()) return;
    Held held = std::move(*next);
    held_.erase(next);
    if (held.is_end) {
      close_line_of(held.writer.rank);
    } else {
      show(std::move(held));
    }
  }
}

}  // namespace chainmail::launch
