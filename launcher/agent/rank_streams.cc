// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/agent/rank_streams.h"

#include <algorithm>
#include <limits>
#include <span>
#include <utility>

namespace chainmail::launch {
namespace {

// A rank that never reads its socket must not make the agent grow without end.
constexpr std::size_t kMaxQueuedForRank = std::size_t{64} << 20;

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

RankStreams::RankStreams(asio::io_context& io, RankHandles handles, Settings settings,
                         Callbacks callbacks)
    : io_(io), callbacks_(std::move(callbacks)), window_(settings.output_window) {
  terminal_ = handles.output.get();
  connect_output(0, std::move(handles.output), settings.carriage_returns);
  connect_output(1, std::move(handles.error), settings.carriage_returns);
  job_ = ByteStream::make(io_, std::move(handles.job), std::move(handles.job_writer),
                          {.on_bytes = [this](std::span<const std::byte> bytes) {
                            callbacks_.on_job_bytes(text_of(bytes));
                          }});
  // The pipe is only written to. A rank that has closed its end is found at the next write, which
  // ends the stream.
  if (handles.input.is_open()) {
    input_ = ByteStream::make(io_, {}, std::move(handles.input),
                              {.on_end = [this](const std::string&) { input_taken(); },
                               .on_drained = [this] { input_taken(); }});
  }
  // Not before all of them are there: one that is waited for outlives a constructor that throws.
  for (const Output& output : outputs_) output.stream->start();
  job_->start();
}

RankStreams::~RankStreams() {
  for (Output& output : outputs_) output.stream->close();
  job_->close();
  if (input_) input_->close();
}

void RankStreams::connect_output(std::size_t index, internal::UniqueFd source,
                                 bool carriage_returns) {
  Output& output = outputs_[index];
  output.lines =
      std::make_unique<LineSplitter>(carriage_returns, [this, index](std::string_view piece) {
        outputs_[index].on_its_way += piece.size();
        callbacks_.on_output(static_cast<std::uint8_t>(index + 1), piece);
        update_output(outputs_[index]);
      });
  output.stream = ByteStream::make(io_, std::move(source), {},
                                   {.on_bytes = [lines = output.lines.get()](const auto& bytes) {
                                     lines->append(text_of(bytes));
                                   }});
}

void RankStreams::input_taken() {
  if (input_ends_) input_->close();
  const bool more = input_ && input_->is_open();
  if (std::exchange(input_pending_, false)) callbacks_.on_input_taken(more);
}

void RankStreams::write_input(std::string bytes) {
  input_pending_ = true;
  if (!input_ || finished_ || !input_->is_open()) return input_taken();
  input_ends_ = bytes.empty();
  if (bytes.empty()) return input_taken();
  input_->write(std::move(bytes));
}

void RankStreams::output_taken(std::uint8_t stream, std::size_t bytes) {
  if (stream != 1 && stream != 2) return;
  Output& output = outputs_[stream - 1];
  output.on_its_way -= std::min(bytes, output.on_its_way);
  update_output(output);
}

void RankStreams::set_window(const WindowSize& size) {
  if (outputs_[0].stream->is_open()) launch::set_window(terminal_, size);
}

void RankStreams::set_reading(bool reading) {
  if (reading == reading_) return;
  reading_ = reading;
  for (Output& output : outputs_) update_output(output);
  job_->set_reading(reading);
}

void RankStreams::update_output(Output& output) {
  if (!finished_) output.stream->set_reading(reading_ && output.on_its_way < window_);
}

void RankStreams::drop_output() {
  window_ = std::numeric_limits<std::size_t>::max();
  for (Output& output : outputs_) update_output(output);
}

void RankStreams::write_job(std::string bytes) {
  job_->write(std::move(bytes));
  if (job_->queued_bytes() > kMaxQueuedForRank) job_->close();
}

void RankStreams::finish() {
  if (std::exchange(finished_, true)) return;
  for (Output& output : outputs_) {
    output.stream->drain();
    output.stream->close();
    output.lines->finish();
  }
  job_->drain();
  job_->close();
  if (input_) {
    input_->close();
    input_taken();
  }
}

}  // namespace chainmail::launch
