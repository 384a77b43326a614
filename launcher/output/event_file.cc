// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/output/event_file.h"

#include <utility>

#include "base/error.h"

namespace chainmail::launch {
namespace {

constexpr const char* kName = "/events.jsonl";

}  // namespace

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
