// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/controller/starting/host_patience.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "launcher/job/text.h"

namespace chainmail::launch {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kFirstPause{1000};
constexpr milliseconds kLongestPause{10000};
// From here, a login costs some milliseconds.
constexpr milliseconds kOfEachHost{30};
// A host that was lost, or there before, may be booting.
constexpr milliseconds kAtRestart = std::chrono::minutes(10);
constexpr milliseconds kMostPatience = std::chrono::hours(24 * 365);
constexpr std::chrono::seconds kLongestTellPause{60};

milliseconds limit_of(const JobState& job) {
  // Its hosts come and go.
  if (job.options.elastic.is_on()) return milliseconds(0);
  const milliseconds otherwise = job.generation > 0 ? kAtRestart : milliseconds(0);
  return std::min(job.options.wait_hosts.value_or(otherwise), kMostPatience);
}

// Hosts that fail together need not come again at the same time.
milliseconds scattered(milliseconds pause) {
  const auto share = static_cast<unsigned char>(internal::random_bytes(1).front());
  return pause * 3 / 4 + pause * share / 512;
}

}  // namespace

HostPatience::HostPatience(JobState& job, Callbacks callbacks)
    : job_(job),
      callbacks_(std::move(callbacks)),
      limit_(limit_of(job)),
      end_timer_(job.io),
      tell_timer_(job.io) {}

void HostPatience::begin() {
  is_over_ = limit_.count() == 0;
  end_ = steady_clock::now() + limit_;
}

bool HostPatience::keep_trying(std::uint32_t node, std::string why) {
  if (is_over_ || steady_clock::now() >= end_) return false;
  if (waiting_.empty()) wait_for_end();
  waiting_[node].why = std::move(why);
  start_later(node);
  tell_soon();
  return true;
}

void HostPatience::start_later(std::uint32_t node) {
  const int tries = waiting_[node].tries++;
  const milliseconds pause =
      std::max(std::min(kFirstPause * (1 << std::min(tries, 8)), kLongestPause),
               kOfEachHost * static_cast<std::int64_t>(waiting_.size()));
  auto timer = std::make_shared<asio::steady_timer>(job_.io, scattered(pause));
  timer->async_wait([this, timer, node](const asio::error_code& error) {
    if (!error && !is_over_ && waiting_.contains(node)) callbacks_.start(node);
  });
}

void HostPatience::on_up(std::uint32_t node) {
  if (waiting_.erase(node) == 0 || is_over_) return;
  if (waiting_.empty()) end_timer_.cancel();
  tell_soon();
}

void HostPatience::stop() {
  is_over_ = true;
  end_timer_.cancel();
  tell_timer_.cancel();
}

void HostPatience::wait_for_end() {
  end_timer_.expires_at(end_);
  end_timer_.async_wait([this](const asio::error_code& error) {
    if (error || is_over_ || waiting_.empty()) return;
    std::map<std::uint32_t, std::string> why;
    for (auto& [node, waiting] : waiting_) why[node] = std::move(waiting.why);
    stop();
    callbacks_.on_over(why);
  });
}

// Hosts mostly fail together, and come back together.
void HostPatience::tell_soon() {
  if (std::exchange(is_about_to_tell_, true)) return;
  tell_timer_.expires_after(tell_pause_);
  tell_timer_.async_wait([this](const asio::error_code& error) {
    if (error || is_over_) return;
    is_about_to_tell_ = false;
    tell();
  });
}

void HostPatience::tell() {
  std::set<std::uint32_t> nodes;
  for (const auto& [node, waiting] : waiting_) nodes.insert(node);
  if (std::exchange(told_, nodes) == nodes) return;
  tell_pause_ = std::min(2 * tell_pause_, kLongestTellPause);
  const std::string text = words();
  job_.say("launcher: " + (text.empty() ? "all hosts can be reached now" : text));
  callbacks_.on_change(text);
}

std::string HostPatience::words() const {
  if (waiting_.empty()) return "";
  std::vector<std::string> hosts;
  for (const auto& [node, waiting] : waiting_) hosts.push_back(job_.agents[node].host);
  const bool is_one = hosts.size() == 1;
  const auto left = std::chrono::ceil<std::chrono::seconds>(end_ - steady_clock::now());
  const std::string& why = waiting_.begin()->second.why;
  return (is_one ? "host " : "hosts ") + listed(hosts) +
         (is_one ? " cannot be reached yet; it is" : " cannot be reached yet; they are") +
         " tried again for at most " + std::to_string(std::max<std::int64_t>(left.count(), 0)) +
         " s (--wait-hosts): " + why.substr(0, why.find('\n'));
}

}  // namespace chainmail::launch
