// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/agent/last_will.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/membership/member/last_will.h"

namespace chainmail::launch {
namespace {

using internal::JobMessage;
using internal::WillBody;

std::string frame_of(const LocalRanks& ranks, JobMessage type, std::string body = "") {
  return internal::encode_frame({type, ranks.order().generation, std::move(body)});
}

}  // namespace

LastWill::LastWill(asio::io_context& io, LocalRanks& ranks, std::chrono::milliseconds grace,
                   const std::string& reason, std::set<std::uint32_t> welcomed, OnDone on_done)
    : ranks_(ranks),
      welcomed_(std::move(welcomed)),
      patience_(io),
      end_(io),
      on_done_(std::move(on_done)) {
  patience_.expires_after(grace / 2);
  patience_.async_wait([this](const asio::error_code& error) {
    if (error) return;
    is_late_ = true;
    look();
  });
  end_.expires_after(grace);
  end_.async_wait([this](const asio::error_code& error) {
    if (error) return;
    const std::vector<std::uint32_t> running = ranks_.running();
    const bool is_any_lost =
        std::ranges::any_of(running, [this](std::uint32_t rank) { return may_have_state(rank); });
    finish(is_any_lost ? WillEnd::kLate : has_failed_ ? WillEnd::kFailed : WillEnd::kNothing);
  });
  ranks_.write_all(
      frame_of(ranks_, JobMessage::kLauncherGone, internal::BodyWriter().text(reason).take()),
      kNobody);
}

// The agent passes bytes on as they come, and the launcher has had the begin of a frame perhaps: a
// will is found by its head, which has always the same bytes.
void LastWill::on_bytes(std::uint32_t rank, std::string_view bytes) {
  const std::string whole = frame_of(ranks_, JobMessage::kWill, internal::encode_will({}));
  const std::string head = whole.substr(0, whole.size() - internal::encode_will({}).size());
  std::string& heard = heard_[rank];
  heard += bytes;
  for (std::size_t at = heard.find(head); at != std::string::npos; at = heard.find(head)) {
    if (heard.size() - at < whole.size()) break;
    const WillBody will = internal::decode_will(
        std::string_view(heard).substr(at + head.size(), whole.size() - head.size()));
    heard.erase(0, at + whole.size());
    take(rank, will);
    if (!on_done_) return;
  }
  // What comes next may complete a head.
  if (heard.find(head) == std::string::npos && heard.size() >= head.size()) {
    heard.erase(0, heard.size() - head.size() + 1);
  }
}

void LastWill::take(std::uint32_t rank, const WillBody& will) {
  if (will.is_saved) return finish(WillEnd::kSaved, will.step);
  wills_[rank] = will;
  look();
}

void LastWill::look() {
  if (!on_done_) return;
  const std::vector<std::uint32_t> running = ranks_.running();
  const auto is_running = [&](std::uint32_t rank) {
    return std::find(running.begin(), running.end(), rank) != running.end();
  };
  std::erase_if(wills_, [&](const auto& entry) { return !is_running(entry.first); });
  if (writer_ && is_running(*writer_)) return;
  has_failed_ |= std::exchange(writer_, std::nullopt).has_value();
  const bool is_complete = std::all_of(running.begin(), running.end(),
                                       [&](std::uint32_t rank) { return wills_.count(rank) != 0; });
  if (is_complete || is_late_) choose_writer();
}

void LastWill::choose_writer() {
  std::vector<membership::Will> wills;
  for (const auto& [rank, will] : wills_) {
    wills.push_back({rank, will.has_state ? std::optional(will.step) : std::nullopt});
  }
  writer_ = membership::choose_writer(wills);
  if (!writer_) {
    // One that is late may have it yet.
    if (wills_.size() == ranks_.running().size()) {
      finish(has_failed_ ? WillEnd::kFailed : WillEnd::kNothing);
    }
    return;
  }
  tell(*writer_, JobMessage::kWriteWill);
}

bool LastWill::may_have_state(std::uint32_t rank) const {
  const auto will = wills_.find(rank);
  return will == wills_.end() ? welcomed_.contains(rank) : will->second.has_state;
}

void LastWill::tell(std::uint32_t rank, JobMessage message) {
  if (RankStreams* streams = ranks_.streams_of(rank)) streams->write_job(frame_of(ranks_, message));
}

void LastWill::finish(WillEnd how, std::uint64_t step) {
  patience_.cancel();
  end_.cancel();
  if (const auto on_done = std::exchange(on_done_, {})) on_done(how, step);
}

}  // namespace chainmail::launch
