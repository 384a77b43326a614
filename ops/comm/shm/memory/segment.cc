// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/comm/shm/memory/segment.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <ctime>
#include <utility>

#include "base/bytes.h"
#include "base/error.h"
#include "ops/comm/shm/memory/memory_file.h"
#include "ops/core/error_text.h"

namespace chainmail::ops::shm {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kTokenDigits = 32;
static_assert(kTokenDigits <= std::tuple_size_v<decltype(Head::token)>);

constexpr std::uint32_t kBeingWritten = 1;
constexpr std::uint32_t kWritten = 2;

SystemError no_memory(const Layout& layout, const SystemError& error) {
  return {"cannot reserve " + std::to_string(layout.total_bytes() >> 10) +
              " KiB of shared memory for " + std::to_string(layout.ranks) +
              " ranks: " + error.what() +
              "; free memory or raise the job's memory limit, or set CHAINMAIL_LOCAL=tcp to do "
              "without shared memory",
          error.native_code()};
}

SystemError not_attached(const std::string& path, const std::string& why, int code) {
  // Whoever has ended, or begun another program, has left its offer behind.
  const std::string once =
      code == ENOENT
          ? "; the process that offered it has ended: either the rank failed, or a second "
            "program joins the job in the place of one that has ended (a script that "
            "runs two), but a rank joins once: use one program, or two jobs. Otherwise"
          : ";";
  return {"cannot open the shared memory of a rank of this node at " + path + ": " + why + once +
              " the ranks of a node must run as one user and see each other in /proc (one "
              "container or --pid=host), or set CHAINMAIL_LOCAL=tcp to do without shared memory",
          code};
}

}  // namespace

std::size_t Layout::staging_offset() const noexcept {
  return internal::round_up(sizeof(Head) + ranks * sizeof(RankArea), kPage);
}

std::size_t Layout::ring_offset() const noexcept {
  return staging_offset() + 2 * ranks * chunk_bytes;
}

std::size_t Layout::total_bytes() const noexcept {
  const std::size_t rings = ring_bytes == 0 ? 0 : ranks * (sizeof(RingHead) + ring_bytes);
  return internal::round_up(ring_offset() + rings, kPage);
}

Segment::Segment(const Layout& layout, internal::UniqueFd file)
    : layout_(layout), file_(std::move(file)) {
  void* memory = ::mmap(nullptr, layout.total_bytes(), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_POPULATE, file_.get(), 0);
  if (memory == MAP_FAILED) throw no_memory(layout, system_error("mmap"));
  memory_ = static_cast<std::byte*>(memory);
  // Each process says once that it may be interrupted; see wake_sleepers().
  ::syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0);
}

Segment::Segment(Segment&& other) noexcept
    : layout_(other.layout_),
      file_(std::move(other.file_)),
      memory_(std::exchange(other.memory_, nullptr)) {}

Segment::~Segment() {
  if (memory_ != nullptr) ::munmap(memory_, layout_.total_bytes());
}

Segment Segment::create(const Layout& layout) {
  Segment segment(layout, [&] {
    try {
      return make_memory_file("chainmail", layout.total_bytes(), true);
    } catch (const SystemError& error) {
      throw no_memory(layout, error);
    }
  }());
  const std::string token = internal::to_hex(internal::random_bytes(kTokenDigits / 2));
  std::copy(token.begin(), token.end(), segment.head().token.begin());
  return segment;
}

Segment Segment::attach(const Layout& layout, const std::string& offer) {
  const std::string path = offer.substr(0, offer.find('\n'));
  const std::string token = offer.substr(std::min(path.size() + 1, offer.size()));
  if (token.size() != kTokenDigits) {
    throw not_attached(path, "the rendezvous gives no token for it", EPROTO);
  }
  Segment segment(layout, [&] {
    try {
      return open_memory_file(path, layout.total_bytes());
    } catch (const SystemError& error) {
      throw not_attached(path, error.what(), error.native_code());
    }
  }());
  const auto& own = segment.head().token;
  if (std::string_view(own.data(), ::strnlen(own.data(), own.size())) != token) {
    throw not_attached(path, "it does not carry this group's token, so it is another file", EPROTO);
  }
  segment.close_file();
  return segment;
}

std::string Segment::offer() const {
  return "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(file_.get()) + '\n' +
         head().token.data();
}

std::byte* Segment::staging(int rank, std::uint64_t step) const noexcept {
  const std::size_t index = 2 * static_cast<std::size_t>(rank) + (step & 1);
  return memory_ + layout_.staging_offset() + index * layout_.chunk_bytes;
}

RingHead& Segment::ring_head(int from) const noexcept {
  const std::size_t offset =
      static_cast<std::size_t>(from) * (sizeof(RingHead) + layout_.ring_bytes);
  return *reinterpret_cast<RingHead*>(memory_ + layout_.ring_offset() + offset);
}

std::byte* Segment::ring_data(int from) const noexcept {
  return reinterpret_cast<std::byte*>(&ring_head(from) + 1);
}

void Segment::ring_bell() const noexcept {
  head().bell.fetch_add(1);
  ::syscall(SYS_futex, &head().bell, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void Segment::wait_for_bell(std::uint32_t bell, std::chrono::nanoseconds limit) const noexcept {
  timespec time{};
  time.tv_sec = static_cast<time_t>(limit.count() / 1'000'000'000);
  time.tv_nsec = static_cast<long>(limit.count() % 1'000'000'000);
  // Every result (rung, timed out, interrupted) leads back to the caller's condition.
  ::syscall(SYS_futex, &head().bell, FUTEX_WAIT, bell, &time, nullptr, 0);
}

bool Segment::order_after_stores_of_all_ranks() noexcept {
  return ::syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0) == 0;
}

void Segment::fail(const std::exception_ptr& error) noexcept {
  Head& shared = head();
  std::uint32_t none = 0;
  if (shared.failure_state.compare_exchange_strong(none, kBeingWritten)) {
    const std::string text = encode_error(error, shared.text.size() - 1);
    std::copy_n(text.data(), text.size(), shared.text.data());
    shared.failure_state.store(kWritten);
  }
  ring_bell();
}

std::exception_ptr Segment::failure() const {
  const Head& shared = head();
  // The writer needs microseconds, unless it was killed meanwhile.
  for (int i = 0; i < 200 && shared.failure_state.load() == kBeingWritten; ++i) {
    timespec millisecond{0, 1'000'000};
    ::nanosleep(&millisecond, nullptr);
  }
  if (shared.failure_state.load() != kWritten) {
    return std::make_exception_ptr(
        PeerError("a rank of this node failed and died before it could say why"));
  }
  const std::string_view text(shared.text.data(),
                              ::strnlen(shared.text.data(), shared.text.size()));
  return decode_error(text, FailedWhere::kThisNode);
}

}  // namespace chainmail::ops::shm
