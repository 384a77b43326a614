// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/controller/elastic/machine/world_log.h"

#include <fcntl.h>
#include <sys/file.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <limits>
#include <optional>
#include <system_error>

#include "base/error.h"
#include "launcher/files/text_file.h"
#include "launcher/job/options.h"
#include "launcher/job/text.h"

namespace chainmail::launch {
namespace {

using membership::Change;
using membership::LogRecord;
using std::chrono::system_clock;

// "2026-11-22 16:46:47,496 INFO ", local time, as Python's logging writes it.
std::string head_of_line() {
  const auto now = system_clock::now();
  const std::time_t seconds = system_clock::to_time_t(now);
  const auto since = std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch());
  std::tm parts{};
  localtime_r(&seconds, &parts);
  std::array<char, 40> text{};
  const std::size_t length = std::strftime(text.data(), text.size(), "%F %T", &parts);
  std::array<char, 16> rest{};
  std::snprintf(rest.data(), rest.size(), ",%03d INFO ", static_cast<int>(since.count() % 1000));
  return std::string(text.data(), length) + rest.data();
}

std::uint64_t nanoseconds_now() {
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(system_clock::now().time_since_epoch())
          .count());
}

void replay_line(std::string_view line, PastLog& past) {
  const std::vector<std::string> words = split(line, ' ');
  constexpr std::size_t kLeastWords = 4;
  if (words.size() < kLeastWords) return;
  const auto sequence = whole_number<std::uint64_t>(words[0]);
  if (!sequence) return;
  past.next_sequence = *sequence + 1;
  if (words.size() > 4) {
    past.generation = whole_number<std::uint32_t>(words[4]).value_or(past.generation);
  }
  const std::string& address = words[2];
  if (words[1] == "ADDED") past.members.push_back(address);
  if (words[1] != "REMOVED" && words[1] != "LOST") return;
  // Members of one host are alike here: the youngest goes.
  const auto found = std::find(past.members.rbegin(), past.members.rend(), address);
  if (found != past.members.rend()) past.members.erase(std::next(found).base());
}

void check_resume(const PastLog& past, const std::string& hosts_file, const std::string& failure) {
  if (past.next_sequence > 0) return;
  if (hosts_file.empty()) {
    throw UsageError("--resume needs the hosts file of the job that has ended");
  }
  throw UsageError(failure.empty() ? why_not_resumed(hosts_file) : "--resume: " + failure);
}

}  // namespace

PastLog replay_log(std::string_view text) {
  PastLog past;
  const std::size_t end = text.rfind('\n');
  past.whole_bytes = end == std::string_view::npos ? 0 : end + 1;
  for (std::size_t at = 0; at < past.whole_bytes;) {
    const std::size_t line_end = text.find('\n', at);
    replay_line(text.substr(at, line_end - at), past);
    at = line_end + 1;
  }
  return past;
}

std::string words_of(const LogRecord& record) {
  switch (record.change) {
    case Change::kAdded:
      return "Added host:" + record.address + " to new worker host";
    case Change::kRemoved:
      return "Removed host:" + record.address + " at step " + std::to_string(record.step) +
             (record.cause == "drained" ? "" : ": " + record.cause);
    case Change::kLost:
      return "Lost host:" + record.address + " at step " + std::to_string(record.step) + ": " +
             record.cause;
    case Change::kRefused:
      return (record.address == "-" ? "Refused the hosts file" : "Refused host:" + record.address) +
             ": " + record.cause;
  }
  return "";
}

std::string why_not_resumed(const std::string& hosts_file) {
  return "--resume: no elastic job has written into " + hosts_file +
         "_log, so there is none to go on with; leave the option out";
}

WorldLog::WorldLog(const std::string& hosts_file, Start start, Say say) : say_(std::move(say)) {
  const std::string path = hosts_file.empty() ? "" : hosts_file + "_log";
  std::string failure;
  try {
    if (!path.empty()) read(path);
  } catch (const std::runtime_error& error) {
    failure = error.what();
  }
  if (start == Start::kResume) check_resume(past_, hosts_file, failure);
  if (path.empty()) return;
  try {
    // Who follows the sequence needs the whole file.
    constexpr std::size_t kAnyLength = std::numeric_limits<std::size_t>::max();
    if (failure.empty()) for_programs_ = std::make_unique<LineWriter>(path, true, kAnyLength);
    if (failure.empty()) for_people_ = std::make_unique<LineWriter>(hosts_file + ".log", true);
  } catch (const std::runtime_error& error) {
    for_programs_.reset();
    failure = error.what();
  }
  if (!failure.empty()) say_("launcher: " + failure + "; the job goes on without this log");
  if (start == Start::kGoesOn) return;
  note("Created worker host file " + hosts_file);
  if (for_programs_) note("Created worker host log file " + path);
}

void WorldLog::read(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return;
  constexpr std::size_t kMostBytes = std::size_t{1} << 30;  // some ten million changes
  past_ = replay_log(read_host_text(path, "log", Pipes::kRefuse, kMostBytes));
  const bool is_torn = fs::file_size(path, error) > past_.whole_bytes;
  if (is_torn) fs::resize_file(path, past_.whole_bytes, error);
}

void WorldLog::record(const LogRecord& record) {
  if (for_programs_) for_programs_->write(line_of(record, nanoseconds_now()) + "\n");
  note(words_of(record));
}

void WorldLog::note(const std::string& words) {
  if (words.empty()) return;
  const std::string line = head_of_line() + words;
  if (for_people_) for_people_->write(line + "\n");
  say_(line);
}

std::string WorldLog::finish() {
  std::string loss;
  for (const auto* writer : {&for_programs_, &for_people_}) {
    if (*writer && loss.empty()) loss = (*writer)->finish();
  }
  return loss;
}

}  // namespace chainmail::launch
