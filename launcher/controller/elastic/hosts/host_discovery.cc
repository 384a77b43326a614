// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/controller/elastic/hosts/host_discovery.h"

#include <utility>

#include "base/error.h"
#include "launcher/files/text_file.h"
#include "launcher/hosts/host_text.h"

namespace chainmail::launch {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLimit = std::chrono::seconds(30);
constexpr milliseconds kGlance{50};

// The last that it said about itself.
std::string last_line(const std::string& text) {
  const std::size_t end = text.find_last_not_of("\n\r ");
  if (end == std::string::npos) return {};
  const std::size_t before = text.rfind('\n', end);
  const std::size_t begin = before == std::string::npos ? 0 : before + 1;
  return printable(text.substr(begin, end + 1 - begin));
}

}  // namespace

HostDiscovery::HostDiscovery(asio::io_context& io, std::vector<std::string> command,
                             milliseconds interval, std::string text, Callbacks callbacks)
    : timer_(io),
      command_(std::move(command)),
      interval_(interval),
      callbacks_(std::move(callbacks)),
      text_(std::move(text)) {}

void HostDiscovery::start() { wait(interval_); }

void HostDiscovery::stop() {
  timer_.cancel();
  running_.reset();
  is_over_ = true;
}

void HostDiscovery::wait(milliseconds time) {
  timer_.expires_after(time);
  timer_.async_wait([this](const asio::error_code& error) {
    if (!error && !is_over_) look();
  });
}

void HostDiscovery::look() {
  if (!running_) {
    try {
      running_ = std::make_unique<RunningCommand>(command_, "");
    } catch (const SystemError& error) {
      fail(error.what());
      return wait(interval_);
    }
    give_up_at_ = Clock::now() + kLimit;
    return wait(kGlance);
  }
  const bool is_over = running_->advance(kMaxHostTextBytes);
  if (!is_over && Clock::now() < give_up_at_) return wait(kGlance);
  if (!is_over) running_->give_up();
  const std::unique_ptr<RunningCommand> ended = std::exchange(running_, nullptr);
  take(ended->output());
  if (!is_over_) wait(interval_);
}

void HostDiscovery::take(const CommandOutput& output) {
  if (!output.failure.empty()) {
    const std::string error = last_line(output.err);
    const std::string printed = last_line(output.out);
    return fail("--host-discovery " + command_.front() + " " + output.failure +
                (!error.empty()     ? ": " + error
                 : !printed.empty() ? ", after it had printed " + printed
                                    : ""));
  }
  has_failed_ = false;
  std::string text = output.out;
  // It has ended: whoever prints the last line without an end means it so.
  if (!text.empty() && text.back() != '\n') text += '\n';
  if (std::exchange(text_, text) != text) callbacks_.on_text(text);
}

void HostDiscovery::fail(const std::string& why) {
  if (!std::exchange(has_failed_, true)) callbacks_.on_failure(why);
}

}  // namespace chainmail::launch
