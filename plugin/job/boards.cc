// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/job/boards.h"

#include <chrono>
#include <utility>

#include "base/job_protocol.h"
#include "base/log.h"

namespace chainmail::internal {
namespace {

constexpr std::chrono::milliseconds kLookInterval{200};

std::string failure_key(const std::string& group) { return "failed/" + group; }

}  // namespace

LauncherRendezvous::LauncherRendezvous(std::shared_ptr<LauncherClient> client)
    : client_(std::move(client)) {}

void LauncherRendezvous::set(const std::string& key, const std::string& value) {
  client_->set(key, value);
}

std::string LauncherRendezvous::get(const std::string& key, Deadline deadline) {
  return client_->get(key, deadline);
}

std::optional<std::string> LauncherRendezvous::try_get(const std::string& key) {
  return client_->try_get(key);
}

PrefixRendezvous::PrefixRendezvous(std::string prefix, std::shared_ptr<ops::Rendezvous> board)
    : prefix_(std::move(prefix)), board_(std::move(board)) {}

void PrefixRendezvous::set(const std::string& key, const std::string& value) {
  board_->set(prefix_ + key, value);
}

std::string PrefixRendezvous::get(const std::string& key, Deadline deadline) {
  return board_->get(prefix_ + key, deadline);
}

std::optional<std::string> PrefixRendezvous::try_get(const std::string& key) {
  return board_->try_get(prefix_ + key);
}

RendezvousNews::RendezvousNews(std::shared_ptr<ops::Rendezvous> board) : board_(std::move(board)) {}

RendezvousNews::~RendezvousNews() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void RendezvousNews::subscribe(const std::string& group, const std::vector<int>& /*global_ranks*/,
                               std::shared_ptr<ops::FailureState> state) {
  const std::lock_guard lock(mutex_);
  states_[group] = std::move(state);
  if (!thread_.joinable()) thread_ = std::thread([this] { watch(); });
}

void RendezvousNews::unsubscribe(const std::string& group) {
  const std::lock_guard lock(mutex_);
  states_.erase(group);
}

void RendezvousNews::announce(const std::string& group, const std::exception_ptr& error) noexcept {
  try {
    const ErrorText text = describe_error(error);
    board_->set(failure_key(group),
                BodyWriter().u32(text.code).i64(text.peer_rank).text(text.message).take());
  } catch (const std::exception& failure) {
    log_line(LogLevel::kInfo, std::string("could not announce a failure: ") + failure.what());
  }
}

void RendezvousNews::watch() noexcept {
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, kLookInterval, [this] { return is_stopping_; })) {
    lock.unlock();
    try {
      look_once();
    } catch (const std::exception&) {
      // The store ends with the first rank that ends; the transports see what matters.
      return;
    }
    lock.lock();
  }
}

void RendezvousNews::look_once() {
  std::map<std::string, std::shared_ptr<ops::FailureState>> states;
  {
    const std::lock_guard lock(mutex_);
    states = states_;
  }
  for (const auto& [group, state] : states) {
    if (state->has_failed()) continue;
    const auto news = board_->try_get(failure_key(group));
    if (!news) continue;
    BodyReader body(*news);
    const std::uint32_t code = body.u32();
    const std::int64_t peer_rank = body.i64();
    state->fail(rebuild_error(code, body.text(), peer_rank));
  }
}

}  // namespace chainmail::internal
