// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "tests/plugin/elastic/faults/fault_points.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <mutex>
#include <span>
#include <thread>
#include <variant>

#include "base/job/job_protocol.h"
#include "base/membership/wire.h"

namespace chainmail::faults {
namespace {

using internal::Frame;
using internal::JobMessage;

constexpr std::array kNames = {
    "none",        "forward",   "backward", "first_byte",  "between_buckets",
    "complete",    "committed", "returned", "holding",     "held",
    "state",       "stated",    "group",    "fetch_begin", "fetch_middle",
    "fetch_end",   "fetched",   "world",    "save",        "save_sync",
    "save_rename", "wrong",     "flip",     "flip_once"};
// Less than any rank sends or receives of a state that is to be copied.
constexpr std::size_t kPartOfState = 600'000;
// What is at least sent at once of a long message, and where in that is what is sent later.
constexpr std::size_t kLongPart = 200'000;
constexpr std::size_t kLater = 700'000;

auto& folder = *new std::string;  // NOLINT: set before threads exist
int own_member = -1;              // NOLINT
int ledger = -1;                  // NOLINT
int job_socket = -1;              // NOLINT
std::atomic<Point> order{Point::kNone};
std::atomic<bool> is_to_wait{false};
std::atomic<bool> is_in_exchange{false};
std::atomic<std::size_t> sent_in_exchange{0};
std::atomic<bool> is_in_change{true};  // the first world is to come
std::atomic<std::size_t> moved_in_change{0};
std::atomic<std::size_t> sent_in_change{0};
std::atomic<long> messages{0};
std::atomic<long> words{0};
std::atomic<std::byte*> flipped{nullptr};
std::mutex frames_mutex;
// What is said to the launcher; never destroyed, since the library says its last words after
// main().
auto& frames = *new internal::FrameReader;  // NOLINT

template <typename Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));  // NOLINT
}

void wait_at(Point point) {
  if (order.exchange(Point::kNone) != point) return;
  const std::string go = folder + "/go." + std::to_string(own_member);
  write(std::string("waits ") + kNames.at(static_cast<std::size_t>(point)));
  std::error_code error;
  while (!std::filesystem::remove(go, error))
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
}

void begin_change() {
  if (!is_in_change.exchange(true)) moved_in_change = sent_in_change = 0;
}

bool is_of_group(const Frame& frame) {
  if (frame.type != JobMessage::kStoreSet || !is_in_change) return false;
  return internal::BodyReader(frame.body).text().rfind("chainmail/", 0) == 0;
}

void before(const Frame& frame) {
  if (is_of_group(frame)) pass(Point::kGroup);
  if (frame.type != JobMessage::kFromMember) return;
  const auto said = membership::decode_member_message(frame.body);
  if (std::holds_alternative<membership::Held>(said)) {
    begin_change();
    pass(Point::kHolding);
  }
  if (std::holds_alternative<membership::MyState>(said)) {
    begin_change();
    pass(Point::kState);
  }
}

void after(const Frame& frame) {
  if (frame.type != JobMessage::kFromMember) return;
  const auto said = membership::decode_member_message(frame.body);
  if (std::holds_alternative<membership::Held>(said)) pass(Point::kHeld);
  if (std::holds_alternative<membership::MyState>(said)) pass(Point::kStated);
  if (std::holds_alternative<membership::Fetched>(said)) pass(Point::kFetched);
}

void count_moved(ssize_t bytes) {
  if (bytes <= 0) return;
  if (is_in_exchange) sent_in_exchange += static_cast<std::size_t>(bytes);
  if (is_in_change && (moved_in_change += static_cast<std::size_t>(bytes)) > kPartOfState) {
    pass(Point::kFetchMiddle);
  }
}

// A checksum is made of each part as it is sent: what flips before, nobody on the way sees.
void flip_later_byte(const iovec& part) {
  if (!is_ordered(Point::kFlip) && !is_ordered(Point::kFlipOnce)) return;
  if (!is_in_change || part.iov_len < kLongPart || flipped != nullptr) return;
  flipped = static_cast<std::byte*>(part.iov_base) + kLater;
  *flipped.load() ^= std::byte{1};
}

void note_sent(const iovec& part) {
  std::byte* const byte = flipped;
  const auto* const begin = static_cast<const std::byte*>(part.iov_base);
  if (byte == nullptr || byte < begin || byte >= begin + part.iov_len) return;
  if (is_ordered(Point::kFlipOnce)) *byte ^= std::byte{1};
  note_damage();
}

}  // namespace

void begin(const std::string& in, int member) {
  folder = in;
  own_member = member;
  ledger = ::open((folder + "/ledger").c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
  const char* const socket = std::getenv("CHAINMAIL_JOB_FD");
  if (socket != nullptr) job_socket = std::atoi(socket);
  look_for_order(0);
}

void look_for_order(std::int64_t step) {
  const std::string path = folder + "/fault." + std::to_string(own_member);
  std::ifstream file(path);
  std::string name;
  if (!(file >> name)) return;
  if (name == "from") {
    std::int64_t first = 0;
    file >> first >> name;
    if (step < first) return;
  }
  is_to_wait = name == "wait";
  if (is_to_wait) file >> name;
  std::error_code error;
  std::filesystem::remove(path, error);
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (name == kNames[i]) order = static_cast<Point>(i);
  }
  write("ordered " + name);
}

void write(const std::string& line) {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  const auto time = std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
  const std::string text =
      std::to_string(time) + " " + std::to_string(own_member) + " " + line + "\n";
  if (::write(ledger, text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    std::cerr << "cannot write the ledger\n";
    std::_Exit(9);
  }
}

void pass(Point point) {
  if (point == Point::kNone || order != point) return;
  if (is_to_wait) return wait_at(point);
  write(std::string("killed ") + kNames.at(static_cast<std::size_t>(point)));
  ::kill(::getpid(), SIGKILL);
  for (;;) ::pause();
}

bool is_ordered(Point point) { return order == point; }

void note_damage() {
  const Point point = order.exchange(Point::kNone);
  write(std::string("damaged ") + kNames.at(static_cast<std::size_t>(point)));
  flipped = nullptr;
}

void set_exchanging(bool is_exchanging) {
  if (is_exchanging) sent_in_exchange = 0;
  is_in_exchange = is_exchanging;
}

Sent sent() { return {messages, words}; }
bool has_sent_in_exchange() { return sent_in_exchange != 0; }
bool is_changing() { return is_in_change; }
void end_change() {
  if (is_in_change.exchange(false)) write("sent " + std::to_string(sent_in_change));
}

}  // namespace chainmail::faults

// The library's calls come here, and go on to the C library's.

using chainmail::faults::Point;
namespace faults = chainmail::faults;

extern "C" {

// What the launcher is told, a frame at a time.
[[gnu::visibility("default")]] ssize_t send(int fd, const void* data, size_t size, int flags) {
  static auto* const real = faults::next<ssize_t(int, const void*, size_t, int)>("send");
  if (fd != faults::job_socket) return real(fd, data, size, flags);
  const std::lock_guard lock(faults::frames_mutex);
  // What the socket does not take is given again, so only what it took counts as said.
  chainmail::internal::FrameReader coming = faults::frames;
  coming.append(std::span(static_cast<const std::byte*>(data), size));
  while (const auto frame = coming.next()) faults::before(*frame);
  const ssize_t sent = real(fd, data, size, flags);
  if (sent <= 0) return sent;
  faults::frames.append(
      std::span(static_cast<const std::byte*>(data), static_cast<std::size_t>(sent)));
  while (const auto frame = faults::frames.next()) {
    ++faults::words;
    faults::after(*frame);
  }
  return sent;
}

[[gnu::visibility("default")]] ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  static auto* const real = faults::next<ssize_t(int, const msghdr*, int)>("sendmsg");
  if (faults::is_in_exchange && faults::is_ordered(Point::kFirstByte) && message->msg_iovlen > 0) {
    static auto* const real_send = faults::next<ssize_t(int, const void*, size_t, int)>("send");
    static_cast<void>(real_send(fd, message->msg_iov[0].iov_base, 1, flags));
    faults::pass(Point::kFirstByte);
  }
  const std::span parts(message->msg_iov, message->msg_iovlen);
  for (const iovec& part : parts) faults::flip_later_byte(part);
  const ssize_t sent = real(fd, message, flags);
  faults::count_moved(sent);
  if (sent <= 0) return sent;
  ++faults::messages;
  if (faults::is_in_change) faults::sent_in_change += static_cast<std::size_t>(sent);
  auto left = static_cast<std::size_t>(sent);
  for (iovec part : parts) {
    part.iov_len = std::min(part.iov_len, left);
    left -= part.iov_len;
    faults::note_sent(part);
  }
  return sent;
}

[[gnu::visibility("default")]] ssize_t recvmsg(int fd, msghdr* message, int flags) {
  static auto* const real = faults::next<ssize_t(int, msghdr*, int)>("recvmsg");
  const ssize_t got = real(fd, message, flags);
  if (faults::is_in_change) faults::count_moved(got);
  return got;
}

[[gnu::visibility("default")]] int fsync(int fd) {
  static auto* const real = faults::next<int(int)>("fsync");
  faults::pass(Point::kSaveSync);
  return real(fd);
}

[[gnu::visibility("default")]] int rename(const char* from, const char* to) noexcept {
  static auto* const real = faults::next<int(const char*, const char*)>("rename");
  faults::pass(Point::kSaveRename);
  return real(from, to);
}

}  // extern "C"
