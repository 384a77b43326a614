// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/controller/ranks/rank_input.h"

#include <utility>

namespace chainmail::launch {

RankInput::RankInput(asio::io_context& io, std::vector<std::uint32_t> targets, Send send)
    : targets_(targets.begin(), targets.end()),
      send_(std::move(send)),
      reader_(io, [this](const std::string& bytes) { deliver(bytes); }) {
  reader_.read_on();
}

void RankInput::deliver(const std::string& bytes) {
  is_reading_ = false;
  is_over_ = bytes.empty();
  waiting_for_ = targets_;
  // send_ may answer at once.
  for (const std::uint32_t rank : std::set<std::uint32_t>(targets_)) send_(rank, bytes);
  go_on();
}

void RankInput::on_taken(std::uint32_t rank) {
  waiting_for_.erase(rank);
  go_on();
}

void RankInput::on_gone(std::uint32_t rank) {
  targets_.erase(rank);
  on_taken(rank);
}

void RankInput::go_on() {
  if (is_reading_ || is_over_ || targets_.empty() || !waiting_for_.empty()) return;
  is_reading_ = true;
  reader_.read_on();
}

}  // namespace chainmail::launch
