// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "tools/bench/checkpoint/part_writers.h"

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <span>
#include <stdexcept>
#include <utility>

#include "plugin/checkpoint/store/parts.h"

namespace chainmail::bench {
namespace {

using internal::FileEntry;
using internal::FileImage;

struct Order {
  std::int64_t iteration = 0;
};

struct Answer {
  std::int64_t iteration = 0;  ///< of the order: a save that failed has left other answers unread
  bool is_written = false;
  std::uint64_t bytes = 0;
  internal::EntryDigest digest = {};
  std::size_t grown_bytes = 0;
};

// False where the other process has ended, which is what ends a wait that nothing else does.
template <typename Message>
bool receive(int channel, Message& message) {
  auto rest = std::as_writable_bytes(std::span(&message, 1));
  while (!rest.empty()) {
    const ssize_t count = ::recv(channel, rest.data(), rest.size(), 0);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    rest = rest.subspan(static_cast<std::size_t>(count));
  }
  return true;
}

template <typename Message>
bool send(int channel, const Message& message) {
  return ::send(channel, &message, sizeof message, MSG_NOSIGNAL) ==
         static_cast<ssize_t>(sizeof message);
}

std::size_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::size_t all = 0;
  std::size_t resident = 0;
  file >> all >> resident;
  return resident * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

// Ranges of a row of bytes of which this is the part from `begin` on.
std::vector<FileEntry> entries_of(std::size_t begin, std::size_t bytes) {
  std::vector<FileEntry> entries;
  for (std::size_t from = begin; from < begin + bytes;) {
    const std::size_t to = std::min(begin + bytes, from + internal::kMaxRangeBytes);
    entries.push_back({.name = internal::range_name({"state", from, to}),
                       .type = internal::EntryType::kUInt8,
                       .shape = {to - from}});
    from = to;
  }
  return entries;
}

// What a process does: one part for each order.
void serve(int channel, const std::string& folder, std::size_t bytes, int part) {
  std::vector<std::byte> state(bytes);
  for (std::size_t i = 0; i < bytes; ++i) state[i] = static_cast<std::byte>(i * 2654435761U >> 13);
  const auto files = internal::posix_file_system();
  const std::size_t before = resident_bytes();
  FileImage image;
  for (Order order; receive(channel, order);) {
    Answer answer{.iteration = order.iteration};
    try {
      image.begin(entries_of(static_cast<std::size_t>(part) * bytes, bytes));
      std::size_t copied = 0;
      for (std::size_t e = 0; copied < bytes; ++e) {
        const auto place = image.data(e);
        std::memcpy(place.data(), state.data() + copied, place.size());
        copied += place.size();
      }
      const internal::ManifestFile file = internal::write_generation_file(
          *files, folder, order.iteration, internal::part_file_name(0, part), image);
      const std::size_t now = resident_bytes();
      answer = {order.iteration, true, file.bytes, file.digest, now > before ? now - before : 0};
    } catch (const std::exception& error) {
      std::fprintf(stderr, "part %d: %s\n", part, error.what());
    }
    if (!send(channel, answer)) break;
  }
}

// The whole life of a process. Nothing it throws may reach its copy of the program.
[[noreturn]] void live(int channel, const std::string& folder, std::size_t bytes, int part) {
  try {
    serve(channel, folder, bytes, part);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "part %d: %s\n", part, error.what());
    ::_exit(1);
  }
  ::_exit(0);
}

// What it says of that order; throws where it has not written its part.
Answer answer_of(int channel, int part, std::int64_t iteration) {
  const std::string failure = "part " + std::to_string(part) + " was not written";
  Answer answer;
  do {
    if (!receive(channel, answer)) throw std::runtime_error(failure + ": its process has ended");
  } while (answer.iteration != iteration);
  if (!answer.is_written) throw std::runtime_error(failure);
  return answer;
}

}  // namespace

PartWriters::PartWriters(const std::string& folder, std::size_t bytes, int count)
    : folder_(folder), part_bytes_(bytes / static_cast<std::size_t>(count)) {
  writers_.reserve(static_cast<std::size_t>(count));
  try {
    for (int part = 0; part < count; ++part) add(part);
  } catch (...) {
    end();
    throw;
  }
}

void PartWriters::add(int part) {
  int ends[2] = {};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    throw std::runtime_error("no channel to a process");
  }
  internal::UniqueFd ours(ends[0]);
  internal::UniqueFd theirs(ends[1]);
  const pid_t pid = ::fork();
  if (pid < 0) throw std::runtime_error("no process to be had");
  if (pid == 0) {
    writers_.clear();  // whose channels would otherwise stay open here
    ours.reset();
    live(theirs.get(), folder_, part_bytes_, part);
  }
  writers_.push_back({pid, std::move(ours)});
}

PartWriters::~PartWriters() { end(); }

void PartWriters::end() noexcept {
  for (Writer& writer : writers_) {
    writer.channel.reset();
    while (::waitpid(writer.pid, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
}

double PartWriters::save(std::int64_t iteration) {
  const auto files = internal::posix_file_system();
  const auto begin = std::chrono::steady_clock::now();
  internal::Manifest manifest{
      .iteration = iteration, .id = 1, .world_size = count(), .set_count = 1};
  internal::prepare_generation(*files, folder_, iteration);
  // One that has ended is missed when it should answer.
  for (const Writer& writer : writers_) (void)send(writer.channel.get(), Order{iteration});
  FileImage common;
  common.begin({});
  manifest.files = {internal::write_generation_file(*files, folder_, iteration,
                                                    internal::set_file_name(0), common)};
  for (int part = 0; part < count(); ++part) {
    const Answer answer =
        answer_of(writers_[static_cast<std::size_t>(part)].channel.get(), part, iteration);
    manifest.files.push_back(
        {internal::part_file_name(0, part), answer.bytes, answer.digest, true});
    grown_bytes_ = std::max(grown_bytes_, answer.grown_bytes);
  }
  manifest.tensors = {{0, part_bytes_ * writers_.size(), "state"}};
  internal::publish_generation(*files, folder_, manifest);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace chainmail::bench
