// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/controller/starting/host_preparation.h"

#include <algorithm>
#include <asio/post.hpp>
#include <string_view>
#include <utility>

#include "launcher/controller/starting/rank_start_failure.h"
#include "launcher/controller/state/late_timer.h"
#include "launcher/job/exit_code.h"
#include "launcher/job/text.h"

namespace chainmail::launch {
namespace {

using internal::BodyReader;
using internal::BodyWriter;
using internal::Frame;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kDefaultLimit = std::chrono::hours(1);
// Or without one.
constexpr milliseconds kMostLimit = std::chrono::hours(24 * 365);

// What a step of the launcher's has said, such as that an input is not there: the last line, which
// has no secrets in it.
std::string own_words(const std::string& quoted) {
  constexpr std::string_view kMark = "\n  | chainmail: ";
  const std::size_t begin = quoted.rfind('\n');
  if (begin == std::string::npos || quoted.compare(begin, kMark.size(), kMark) != 0) return "";
  return quoted.substr(begin + kMark.size());
}

}  // namespace

void order_preparation(const Preparation& asked, const std::vector<std::string>& words,
                       StartOrder& order) {
  order.world_size = 1;
  order.ranks.resize(1);
  order.programs.resize(1);
  order.binding = {BindTo::kNone};
  OrderedProgram& program = order.programs.front();
  program.words = words;
  if (asked.directory.empty()) return;
  // $PWD is what it is for ranks.
  if (!program.variables.contains("PWD")) {
    program.patterns.try_emplace("PWD", program.working_directory);
  }
  program.working_directory = asked.directory;
}

HostPreparation::HostPreparation(JobState& job, Callbacks callbacks)
    : job_(job), callbacks_(std::move(callbacks)), timer_(job.io) {}

milliseconds HostPreparation::limit() const {
  const milliseconds asked = job_.options.preparation.timeout.value_or(kDefaultLimit);
  return asked.count() == 0 ? kMostLimit : std::min(asked, kMostLimit);
}

void HostPreparation::start() {
  const Preparation& asked = job_.options.preparation;
  if (!asked.output_folder.empty()) {
    std::vector<std::string> hosts;
    for (const Agents::Node& node : job_.agents) hosts.push_back(node.host);
    files_ = std::make_unique<HostFiles>(asked.output_folder, std::move(hosts), job_.generation > 0,
                                         [this] { asio::post(job_.io, [this] { make_room(); }); });
  }
  begin(asked.first_words.empty() ? Stage::kAllHosts : Stage::kFirstHost);
}

void HostPreparation::begin(Stage stage) {
  stage_ = stage;
  const Preparation& asked = job_.options.preparation;
  const bool is_first = stage == Stage::kFirstHost;
  const std::vector<std::string>& words = is_first ? asked.first_words : asked.words;
  if (words.empty()) {  // there was something for the first host alone
    stage_ = Stage::kDone;
    return callbacks_.on_done();
  }
  for (std::uint32_t node = 0; node < job_.agents.size(); ++node) {
    const bool is_meant = !is_first || node == 0;
    // Of one that runs nothing nobody will hear that it has ended.
    job_.agents[node].all_exited = !is_meant;
    if (is_meant) send_order(node, words);
  }
  wait_for_limit(steady_clock::now() + limit());
}

void HostPreparation::send_order(std::uint32_t node, const std::vector<std::string>& words) {
  StartOrder order = callbacks_.make_order(node);
  order.is_preparation = true;
  order.node_rank = node;
  order_preparation(job_.options.preparation, words, order);
  running_[node] = {};
  job_.events.record("prepare_started", {{"address", job_.agents[node].host}});
  job_.agents[node].link->send_order(order);
}

void HostPreparation::wait_for_limit(steady_clock::time_point end) {
  timer_.expires_at(end);
  timer_.async_wait([this, end](const asio::error_code& error) {
    if (error || is_stopped_ || running_.empty()) return;
    if (is_late(end)) return wait_for_limit(steady_clock::now() + milliseconds(500));
    on_limit();
  });
}

void HostPreparation::on_limit() {
  std::vector<std::string> hosts;
  std::string lines;
  for (const auto& [node, last_lines] : running_) {
    const std::string& host = job_.agents[node].host;
    hosts.push_back(host);
    if (lines.empty() && !last_lines.is_empty()) {
      lines = "; the last lines of host " + host + ":" + last_lines.quoted();
    }
    job_.events.record("prepare_failed", {{"address", host}, {"cause", "not ended in time"}});
  }
  callbacks_.fail({std::nullopt, exit_code::kTimeLimit,
                   "the preparation has not ended within " + seconds_text(limit()) +
                       (hosts.size() == 1 ? " on host " : " on hosts ") + listed(hosts) +
                       (job_.options.job.is_on() ? " (prepare.timeout in the job file)"
                                                 : " (--prepare-timeout)"),
                   EndKind::kNotPrepared, lines});
}

void HostPreparation::stop() {
  is_stopped_ = true;
  timer_.cancel();
}

bool HostPreparation::on_frame(std::uint32_t node, const Frame& frame) {
  if (!running_.contains(node)) return false;
  switch (type_of(frame)) {
    case AgentMessage::kOutput:
      on_output(node, frame);
      return true;
    case AgentMessage::kRankExited:
      on_exited(node, decode_exit(frame.body));
      return true;
    case AgentMessage::kStartFailed:
      on_start_failed(node, frame);
      return true;
    case AgentMessage::kRankStarted:
    case AgentMessage::kRankStopped:
    case AgentMessage::kRankBytes:
    case AgentMessage::kInputTaken:
      return true;  // it is no rank
    default:        // a number from outside, any value
      return false;
  }
}

void HostPreparation::on_output(std::uint32_t node, const Frame& frame) {
  BodyReader body(frame.body);
  (void)body.u32();
  const std::uint8_t stream = body.u8();
  std::string text = body.text();
  running_.at(node).append(text);
  if (!files_) return take(node, stream, text.size());
  files_->write(node, stream, std::move(text));
}

// What has been written makes room for more.
void HostPreparation::make_room() {
  for (const HostFiles::Written& written : files_->take_written()) {
    take(written.node, written.stream, written.bytes);
  }
}

void HostPreparation::take(std::uint32_t node, std::uint8_t stream, std::size_t bytes) {
  job_.agents.send(node, AgentMessage::kOutputTaken,
                   BodyWriter().u32(0).u8(stream).u32(static_cast<std::uint32_t>(bytes)).take());
}

void HostPreparation::on_exited(std::uint32_t node, const RankExit& exit) {
  if (code_of(exit) != 0) return fail(node, code_of(exit), describe(exit));
  job_.events.record("prepare_done", {{"address", job_.agents[node].host}});
}

void HostPreparation::on_start_failed(std::uint32_t node, const Frame& frame) {
  const RankStartFailure failure =
      start_failure_of(frame.body, job_.agents[node].host, job_.options.container.image);
  const Failure explained =
      explain(failure, job_.options.start_timeout.value_or(std::chrono::minutes(5)));
  fail(node, explained.exit_code, "could not be begun: " + explained.cause);
}

// What was ended because of another one, or by somebody, has not failed.
void HostPreparation::fail(std::uint32_t node, int code, const std::string& cause) {
  if (is_stopped_) return;
  const std::string& host = job_.agents[node].host;
  const LastLines& lines = running_.at(node);
  job_.events.record("prepare_failed", {{"address", host}, {"cause", cause}});
  const std::string quoted = lines.is_empty() ? "" : "; its last lines:" + lines.quoted();
  const std::string own = own_words(quoted);
  if (code == exit_code::kLauncherError && !own.empty()) {
    return callbacks_.fail(
        {std::nullopt, code, "host " + host + ": " + own, EndKind::kNotPrepared, ""});
  }
  callbacks_.fail({std::nullopt, code, "the preparation of host " + host + " " + cause,
                   EndKind::kNotPrepared, quoted});
}

void HostPreparation::on_all_exited(std::uint32_t node) {
  if (running_.erase(node) == 0 || !running_.empty() || is_stopped_) return;
  timer_.cancel();
  if (stage_ == Stage::kFirstHost) return begin(Stage::kAllHosts);
  stage_ = Stage::kDone;
  if (files_) files_->end();
  callbacks_.on_done();
}

std::string HostPreparation::finish() { return files_ ? files_->finish() : ""; }

}  // namespace chainmail::launch
