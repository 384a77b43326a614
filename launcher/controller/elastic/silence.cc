// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/controller/elastic/silence.h"

#include <utility>

namespace chainmail::launch {

Silence::Silence(asio::io_context& io, OnLasting on_lasting)
    : timer_(io), on_lasting_(std::move(on_lasting)) {}

void Silence::begin(std::chrono::milliseconds limit) {
  if (state_ != State::kUnknown) return;
  state_ = State::kWaiting;
  timer_.expires_after(limit);
  timer_.async_wait([this](const asio::error_code& error) {
    if (error || state_ != State::kWaiting) return;
    state_ = State::kLasting;
    tell();
  });
}

void Silence::end() {
  state_ = State::kOver;
  timer_.cancel();
}

void Silence::cut_short() {
  if (state_ != State::kWaiting) return;
  state_ = State::kLasting;
  timer_.cancel();
  tell();
}

void Silence::change(const std::string& what) {
  if (what_.empty()) what_ = what + ", and no rank has said anything";
  tell();
}

void Silence::fail(Failure failure) {
  if (what_.empty()) what_ = "no rank has said anything";
  if (!failure_) failure_ = std::move(failure);
  tell();
}

void Silence::tell() {
  if (state_ != State::kLasting || what_.empty()) return;
  state_ = State::kOver;
  on_lasting_(what_, failure_);
}

}  // namespace chainmail::launch
