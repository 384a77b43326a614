// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/controller/state/event_log.h"

#include <time.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "base/membership/trace.h"

namespace chainmail::launch {
namespace {

using Json = nlohmann::ordered_json;

// "2026-01-31T23:59:59.123456Z".
std::string utc_now() {
  const auto now = std::chrono::duration_cast<std::chrono::microseconds>(
                       std::chrono::system_clock::now().time_since_epoch())
                       .count();
  const time_t seconds = static_cast<time_t>(now / 1000000);
  tm parts{};
  gmtime_r(&seconds, &parts);
  std::array<char, 32> day{};
  strftime(day.data(), day.size(), "%Y-%m-%dT%H:%M:%S", &parts);
  std::array<char, 16> fraction{};
  snprintf(fraction.data(), fraction.size(), ".%06dZ", static_cast<int>(now % 1000000));
  return std::string(day.data()) + fraction.data();
}

Json head(std::int64_t sequence, std::uint32_t generation, std::string_view event) {
  Json line;
  line["time"] = utc_now();
  line["sequence"] = sequence;
  line["generation"] = generation;
  line["event"] = event;
  return line;
}

// Names and messages may hold any bytes; what is no UTF-8 becomes U+FFFD.
std::string text_of(const Json& line) {
  return line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

constexpr const char* kName = "/events.jsonl";

}  // namespace

void EventLog::record(std::string_view event, const Members& members) {
  if (!write_) return;
  Json line = head(sequence_++, generation_, event);
  for (const auto& [name, value] : members) {
    std::visit([&, &key = name](const auto& content) { line[key] = content; }, value);
  }
  write_(text_of(line));
}

void EventLog::record(const membership::EventRecord& change) {
  if (!write_) return;
  Json line = head(sequence_++, generation_, to_string(change.kind));
  const Json all = Json::parse(membership::JsonObject::of(change));
  const bool is_world = change.kind == membership::EventKind::kWorldChanged;
  for (const char* name : {"generation", "step", "address", "member", "cause"}) {
    const Json& value = all.at(name);
    if (!value.is_null() && value != "") line[name] = value;
  }
  if (is_world) {
    for (const char* name : {"size", "cut", "donors", "pause_ms", "bytes", "redone"}) {
      line[name] = all.at(name);
    }
  }
  write_(text_of(line));
}

void EventLog::trace(const std::string& line) {
  if (!write_) return;
  membership::JsonObject head;
  head("time", utc_now());
  head("sequence", sequence_++);
  std::string text = head.take();
  text.back() = ',';
  write_(text + line.substr(1) + "\n");
}

void EventLog::record_start(const Options& options, const Placement& placement) {
  if (!write_) return;
  Json line = head(sequence_++, generation_, "job_started");
  line["job"] = job_;
  line["launcher_pid"] = getpid();
  line["programs"] = Json::array();
  for (const Application& application : applications_of(options)) {
    line["programs"].push_back(application.program);
  }
  line["hosts"] = Json::array();
  for (const Host& host : placement.nodes) line["hosts"].push_back(host.name);
  // Host index of every rank: ranks are in order.
  line["node_of_rank"] = Json::array();
  for (const PlacedRank& rank : placement.ranks) line["node_of_rank"].push_back(rank.node);
  write_(text_of(line));
}

EventFile::EventFile(const std::string& output_dir, JobDirectory& directory, bool goes_on)
    : directory_(directory), is_kept_(!output_dir.empty()), goes_on_(goes_on) {
  if (is_kept_) writer_ = std::make_unique<LineWriter>(output_dir + kName, goes_on);
}

void EventFile::write(std::string line) {
  if (writer_) return writer_->write(std::move(line));
  if (!is_given_up_) waiting_ += line;
}

void EventFile::beat() {
  // The first one comes with the start.
  if (!std::exchange(has_beaten_, true) || writer_ || is_given_up_) return;
  try {
    const std::string& folder = directory_.make();
    if (!folder.empty()) writer_ = std::make_unique<LineWriter>(folder + kName, goes_on_);
  } catch (const SystemError&) {
    // Nobody has asked for it.
  }
  is_given_up_ = !writer_;
  if (writer_ && !waiting_.empty()) writer_->write(std::exchange(waiting_, {}));
  waiting_.clear();
}

std::string EventFile::finish() {
  const std::string loss = writer_ ? writer_->finish() : "";
  return is_kept_ ? loss : "";
}

}  // namespace chainmail::launch
