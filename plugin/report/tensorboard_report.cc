// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Event files: TFRecord frames (length, its checksum, data, its checksum; little-endian; CRC-32C
// "masked" as tensorflow/core/lib/hash/crc32c.h has it) around protocol buffers of the type Event
// (tensorflow/core/util/event.proto), of which three members are written here by hand.

#include <atomic>
#include <bit>
#include <chrono>
#include <cstdint>
#include <fstream>

#include <unistd.h>

#include <chainmail/report.h>

#include "base/error.h"
#include "plugin/report/files.h"

namespace chainmail {

namespace {

static_assert(std::endian::native == std::endian::little, "frames and numbers are little-endian");

// Wire types of protocol buffers.
enum class Wire : std::uint8_t { kVarint = 0, kFixed64 = 1, kLength = 2, kFixed32 = 5 };

void put_varint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}

void put_key(std::string& out, unsigned field, Wire wire) {
  put_varint(out, field << 3U | static_cast<unsigned>(wire));
}

template <typename T>
void put_fixed(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void put_text(std::string& out, unsigned field, const std::string& text) {
  put_key(out, field, Wire::kLength);
  put_varint(out, text.size());
  out += text;
}

double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// Event: wall_time = 1, step = 2, file_version = 3, summary = 5.
std::string begin_event() {
  std::string event;
  put_key(event, 1, Wire::kFixed64);
  put_fixed(event, seconds_since_1970());
  return event;
}

// Summary: value = 1 (repeated); its Value: tag = 1, simple_value = 2.
std::string event_of(const ReportEntry& entry) {
  std::string summary;
  for (const auto& [name, number] : entry.values) {
    std::string value;
    put_text(value, 1, name);
    put_key(value, 2, Wire::kFixed32);
    put_fixed(value, static_cast<float>(number));
    put_text(summary, 1, value);
  }
  std::string event = begin_event();
  put_key(event, 2, Wire::kVarint);
  put_varint(event, static_cast<std::uint64_t>(entry.iteration));
  put_text(event, 5, summary);
  return event;
}

// CRC-32C, bit by bit: an event has a few hundred bytes.
std::uint32_t masked_checksum(const std::string& bytes) {
  std::uint32_t crc = 0xffffffffU;
  for (const char byte : bytes) {
    crc ^= static_cast<unsigned char>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78U : 0);
  }
  crc = ~crc;
  return (crc >> 15 | crc << 17) + 0xa282ead8U;
}

std::string frame_of(const std::string& event) {
  std::string length;
  put_fixed(length, static_cast<std::uint64_t>(event.size()));
  std::string frame = length;
  put_fixed(frame, masked_checksum(length));
  frame += event;
  put_fixed(frame, masked_checksum(event));
  return frame;
}

std::string host_name() {
  char name[256] = {};
  return gethostname(name, sizeof name - 1) == 0 ? name : "localhost";
}

// TensorBoard sorts the files of a folder by name, so the time comes first; the rest keeps two
// writers apart.
std::string event_file_name() {
  static std::atomic<int> written{0};
  return "events.out.tfevents." + std::to_string(static_cast<std::int64_t>(seconds_since_1970())) +
         "." + host_name() + "." + std::to_string(getpid()) + "." + std::to_string(written++);
}

}  // namespace

struct TensorBoardReport::Impl {
  std::string path;
  std::ofstream file;

  void write(const std::string& event) {
    file << frame_of(event) << std::flush;
    if (!file) throw system_error("cannot write " + path);
  }
};

TensorBoardReport::TensorBoardReport(const std::string& folder) : impl_(std::make_unique<Impl>()) {
  impl_->path = folder + "/" + event_file_name();
  internal::make_folder_of(impl_->path);
  impl_->file.open(impl_->path, std::ios::binary | std::ios::trunc);
  std::string event = begin_event();
  put_text(event, 3, "brain.Event:2");
  impl_->write(event);
}

TensorBoardReport::~TensorBoardReport() = default;

const std::string& TensorBoardReport::path() const noexcept { return impl_->path; }

void TensorBoardReport::report(const ReportEntry& entry) { impl_->write(event_of(entry)); }

}  // namespace chainmail
