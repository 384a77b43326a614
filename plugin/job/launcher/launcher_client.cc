// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/job/launcher/launcher_client.h"

#include <fcntl.h>
#include <linux/sockios.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "base/bytes.h"
#include "base/error.h"
#include "base/log.h"
#include "ops/engine/callbacks/user_code.h"

namespace chainmail::internal {
namespace {

// For requests that the launcher answers immediately: only a stopped launcher takes longer.
constexpr std::chrono::seconds kReplyTimeout{60};

// How long a call that needs no reply waits for a launcher that does not read, and how many bytes
// may then be queued.
constexpr std::chrono::milliseconds kMoment{200};
constexpr std::size_t kMostUnsent = std::size_t{4} << 20;

// How often this rank reports its progress.
constexpr std::chrono::milliseconds kProgressPeriod{500};

// Status of a reply whose value says what was wrong with the request.
constexpr std::uint8_t kRefused = 2;

std::exception_ptr launcher_gone(const std::string& cause) {
  return std::make_exception_ptr(
      PeerError("the launcher is gone: " + cause + "; the job cannot go on without it"));
}

std::int64_t to_number(const std::string& text) {
  const auto value = whole_number<std::int64_t>(text);
  if (!value) {
    throw SystemError("the launcher answered \"" + text + "\" where a number was expected", EPROTO);
  }
  return *value;
}

// Checked before anything else is opened, which could get the number of a closed descriptor.
int adopt(int fd) {
  int domain = 0;
  socklen_t length = sizeof domain;
  if (::getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &length) != 0 || domain != AF_UNIX ||
      ::fcntl(fd, F_SETFD, FD_CLOEXEC) != 0) {
    throw SystemError("CHAINMAIL_JOB_FD=" + std::to_string(fd) +
                          " is not the launcher's socket; did a wrapper script or program close "
                          "its descriptors?",
                      EBADF);
  }
  return fd;
}

}  // namespace

LauncherClient::LauncherClient(int fd, std::uint32_t generation, std::chrono::milliseconds timeout)
    : fd_(adopt(fd)),
      wake_fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      generation_(generation),
      pid_(::getpid()) {
  if (!wake_fd_.is_open()) throw system_error("eventfd");
  reader_ = std::thread([this] { read_loop(); });
  try {
    send_frame(JobMessage::kHello,
               BodyWriter()
                   .u32(kJobProtocolVersion)
                   .u32(static_cast<std::uint32_t>(pid_))
                   .text(CHAINMAIL_VERSION)
                   .take(),
               Deadline::after(timeout));
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, timeout, [this] { return is_welcome_ || gone_; })) {
      throw TimeoutError("the launcher did not answer within " +
                         std::to_string(timeout.count() / 1000) + " s");
    }
    if (gone_) std::rethrow_exception(gone_);
  } catch (...) {
    join_reader();
    throw;
  }
}

LauncherClient::~LauncherClient() { join_reader(); }

void LauncherClient::join_reader() {
  [[maybe_unused]] const int woken = ::eventfd_write(wake_fd_.get(), 1);
  reader_.join();
}

void LauncherClient::check_process() const {
  if (::getpid() != pid_) {
    throw InvalidArgument(
        "this process was forked from a rank; only the rank itself (pid " + std::to_string(pid_) +
        ") may use the job's connection. Start helpers with exec, or before joining the job");
  }
}

Deadline LauncherClient::usual() { return Deadline::after(kReplyTimeout); }

void LauncherClient::send_frame(JobMessage type, std::string body, Deadline deadline) {
  if (!wait_until_sent(enqueue_frame(type, std::move(body)).end, deadline)) {
    throw TimeoutError("the launcher takes no messages; is it stopped?");
  }
}

/// Like send_frame(), but what the launcher does not read within 200 ms is sent later by the
/// reading thread. Does not wait behind frames that are already queued.
void LauncherClient::post_frame(JobMessage type, std::string body) {
  const FramePosition place = enqueue_frame(type, std::move(body));
  constexpr std::chrono::milliseconds kNone{0};
  static_cast<void>(
      wait_until_sent(place.end, Deadline::after(place.is_behind_others ? kNone : kMoment)));
}

LauncherClient::FramePosition LauncherClient::enqueue_frame(JobMessage type, std::string body) {
  check_process();
  const std::string frame = encode_frame(Frame{type, generation_, std::move(body)});
  const std::lock_guard lock(write_mutex_);
  if (unsent_.size() > kMostUnsent) {
    throw TimeoutError("the launcher takes no messages; is it stopped?");
  }
  const bool is_behind_others = !unsent_.empty();
  unsent_ += frame;
  return {sent_ + unsent_.size(), is_behind_others};
}

bool LauncherClient::wait_until_sent(std::uint64_t end, Deadline deadline) {
  while (!send_up_to(end)) {
    if (deadline.has_passed()) return false;
    pollfd ready{fd_.get(), POLLOUT, 0};
    ::poll(&ready, 1, static_cast<int>(std::min<std::int64_t>(deadline.left().count(), 100)));
  }
  return true;
}

/// Sends what there is room for; whether everything before `end` has been sent.
bool LauncherClient::send_up_to(std::uint64_t end) {
  const std::lock_guard lock(write_mutex_);
  while (!unsent_.empty()) {
    const ssize_t sent =
        ::send(fd_.get(), unsent_.data(), unsent_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && errno == EAGAIN) break;
    if (sent < 0) std::rethrow_exception(launcher_gone(system_error("send").what()));
    unsent_.erase(0, static_cast<std::size_t>(sent));
    sent_ += static_cast<std::uint64_t>(sent);
  }
  return sent_ >= end;
}

/// Sends frames that were queued by post_frame().
void LauncherClient::flush_unsent() noexcept {
  try {
    static_cast<void>(send_up_to(0));
  } catch (const std::exception&) {
    // The launcher is gone; its earlier messages are still to be read.
  }
}

LauncherClient::Reply LauncherClient::request(JobMessage type, const std::string& arguments,
                                              const std::string& what, Deadline deadline) {
  std::uint32_t id = 0;
  {
    const std::lock_guard lock(mutex_);
    if (gone_) std::rethrow_exception(gone_);
    id = next_id_++;
    pending_[id] = std::nullopt;
  }
  try {
    send_frame(type, BodyWriter().u32(id).take() + arguments, deadline);
  } catch (...) {
    const std::lock_guard lock(mutex_);
    pending_.erase(id);
    throw;
  }
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, deadline.left(), [&] { return pending_[id].has_value() || gone_; });
  const std::optional<Reply> reply = std::exchange(pending_[id], std::nullopt);
  pending_.erase(id);
  if (reply && reply->status == kRefused) {
    throw InvalidArgument("the launcher's store refused " + what + ": " + reply->value);
  }
  if (reply) return *reply;
  if (gone_) std::rethrow_exception(gone_);
  throw TimeoutError("the launcher's store: " + what + " was not answered in time");
}

void LauncherClient::post_set(const std::string& key, const std::string& value) {
  post_frame(JobMessage::kStoreSet, BodyWriter().text(key).text(value).take());
}

void LauncherClient::set(const std::string& key, const std::string& value, Deadline deadline) {
  send_frame(JobMessage::kStoreSet, BodyWriter().text(key).text(value).take(), deadline);
}

std::string LauncherClient::get(const std::string& key, Deadline deadline) {
  return request(JobMessage::kStoreGet, BodyWriter().text(key).take(),
                 "key \"" + key + "\", which a rank should have set,", deadline)
      .value;
}

std::optional<std::string> LauncherClient::try_get(const std::string& key, Deadline deadline) {
  Reply reply =
      request(JobMessage::kStoreTryGet, BodyWriter().text(key).take(), "reading " + key, deadline);
  if (reply.status == 0) return std::nullopt;
  return std::move(reply.value);
}

std::int64_t LauncherClient::add(const std::string& key, std::int64_t amount, Deadline deadline) {
  return to_number(request(JobMessage::kStoreAdd, BodyWriter().text(key).i64(amount).take(),
                           "adding to " + key, deadline)
                       .value);
}

std::string LauncherClient::compare_set(const std::string& key, const std::string& expected,
                                        const std::string& desired, Deadline deadline) {
  return request(JobMessage::kStoreCompareSet,
                 BodyWriter().text(key).text(expected).text(desired).take(),
                 "compare-and-set of " + key, deadline)
      .value;
}

void LauncherClient::append(const std::string& key, const std::string& value, Deadline deadline) {
  send_frame(JobMessage::kStoreAppend, BodyWriter().text(key).text(value).take(), deadline);
}

bool LauncherClient::remove(const std::string& key, Deadline deadline) {
  return request(JobMessage::kStoreDelete, BodyWriter().text(key).take(), "removing " + key,
                 deadline)
             .status != 0;
}

std::int64_t LauncherClient::count(Deadline deadline) {
  return to_number(request(JobMessage::kStoreCount, "", "counting the keys", deadline).value);
}

void LauncherClient::listen(MemberListener listener) {
  const std::lock_guard lock(listener_mutex_);
  if (listener && listener_) {
    throw InvalidArgument("a process is one member of an elastic job: make one ElasticJob in it");
  }
  listener_ = std::move(listener);
  if (!listener_) return;
  for (auto& word : std::exchange(untold_, {})) listener_(std::move(word));
}

void LauncherClient::tell_listener(std::optional<MemberWord> word) {
  const std::lock_guard lock(listener_mutex_);
  if (!listener_) {
    untold_.push_back(std::move(word));
  } else {
    listener_(std::move(word));
  }
}

void LauncherClient::send_to_launcher(const membership::MemberMessage& message) {
  send_frame(JobMessage::kFromMember, membership::encode(message), usual());
}

void LauncherClient::ask_for_fixed_size() { send_frame(JobMessage::kFixedSize, {}, usual()); }

void LauncherClient::send_will(const WillBody& will) {
  send_frame(JobMessage::kWill, encode_will(will), usual());
}

void LauncherClient::begin_step(membership::Generation world, std::uint64_t step) noexcept {
  operations_before_.store(operations_.load(std::memory_order_relaxed), std::memory_order_relaxed);
  steps_.store(step, std::memory_order_relaxed);
  world_.store(world, std::memory_order_relaxed);
}

// Numbers of which some are of the last step are corrected half a second later.
void LauncherClient::report_progress() {
  const std::uint64_t before = operations_before_.load(std::memory_order_relaxed);
  const std::uint64_t operations = operations_.load(std::memory_order_relaxed) - before;
  const std::uint64_t steps = steps_.load(std::memory_order_relaxed);
  const membership::Generation world = world_.load(std::memory_order_relaxed);
  const auto now = std::chrono::steady_clock::now();
  const bool is_known =
      steps == reported_steps_ && operations == reported_operations_ && world == reported_world_;
  if (is_known || now - reported_at_ < kProgressPeriod) return;
  const std::lock_guard lock(write_mutex_);
  if (!unsent_.empty()) return;
  const std::uint64_t shard_us = shard_us_.load(std::memory_order_relaxed);
  const std::string frame =
      encode_frame(Frame{JobMessage::kStep, generation_,
                         BodyWriter().u32(world).u64(steps).u64(operations).u64(shard_us).take()});
  int queued = 0;
  if (::ioctl(fd_.get(), SIOCOUTQ, &queued) != 0 || queued != 0)
    return;  // else only a part may fit
  if (::send(fd_.get(), frame.data(), frame.size(), MSG_NOSIGNAL | MSG_DONTWAIT) < 0) return;
  reported_steps_ = steps;
  reported_operations_ = operations;
  reported_world_ = world;
  reported_at_ = now;
}

bool LauncherClient::read_some(FrameReader& reader) {
  std::array<pollfd, 2> ready{pollfd{fd_.get(), POLLIN, 0}, pollfd{wake_fd_.get(), POLLIN, 0}};
  constexpr int kPeriodMs = static_cast<int>(kProgressPeriod.count());
  if (::poll(ready.data(), ready.size(), kPeriodMs) < 0 && errno != EINTR) {
    throw system_error("poll");
  }
  if (ready[1].revents != 0) return false;
  flush_unsent();
  report_progress();
  if (ready[0].revents == 0) return true;
  std::array<std::byte, 65536> buffer;
  const ssize_t size = ::recv(fd_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
  if (size == 0) std::rethrow_exception(launcher_gone("it closed the rank's socket"));
  if (size < 0) {
    if (errno == EAGAIN || errno == EINTR) return true;
    std::rethrow_exception(launcher_gone(system_error("recv").what()));
  }
  reader.append(std::span(buffer.data(), static_cast<std::size_t>(size)));
  while (const auto frame = reader.next()) handle(*frame);
  return true;
}

void LauncherClient::read_loop() noexcept {
  const ops::DefersRelease guard;
  FrameReader reader;
  try {
    while (read_some(reader)) {
    }
  } catch (...) {
    fail_everything(std::current_exception());
  }
}

void LauncherClient::on_launcher_gone(const std::string& why) {
  bool is_member = false;
  {
    const std::lock_guard lock(listener_mutex_);
    is_member = static_cast<bool>(listener_);
    if (is_member) listener_(membership::LauncherGone{});
  }
  // What has not become a member has no state, and nobody should wait for it.
  if (!is_member) send_will({});
  fail_groups(why.empty() ? launcher_gone("its connection to this host has ended")
                          : std::make_exception_ptr(PeerError("the job is being ended: " + why)));
}

void LauncherClient::handle(const Frame& frame) {
  if (frame.generation != generation_) return;  // late, for an earlier world
  BodyReader body(frame.body);
  if (frame.type == JobMessage::kWelcome) {
    const std::lock_guard lock(mutex_);
    welcome_ = decode_welcome(frame.body);
    is_welcome_ = true;
    changed_.notify_all();
  } else if (frame.type == JobMessage::kReply) {
    const std::uint32_t id = body.u32();
    Reply reply{body.u8(), body.text()};
    const std::lock_guard lock(mutex_);
    const auto found = pending_.find(id);
    if (found != pending_.end()) found->second = std::move(reply);  // else it came too late
    changed_.notify_all();
  } else if (frame.type == JobMessage::kNewsRankLost) {
    const int rank = static_cast<int>(body.u32());
    const std::string host = body.text();
    const std::string cause = body.text();
    rank_lost(rank, std::make_exception_ptr(PeerError(
                        "rank " + std::to_string(rank) + " on host " + host + " is lost: " + cause,
                        rank)));
  } else if (frame.type == JobMessage::kNewsGroupFailed) {
    const std::uint32_t announcer = body.u32();
    const std::string group = body.text();
    ops::ErrorParts parts;
    parts.code = static_cast<ErrorCode>(body.u32());
    parts.message = body.text();
    // Of a PeerError; any other failure is the announcer's own.
    const std::int64_t peer = body.i64();
    const std::int64_t culprit = parts.code == ErrorCode::kPeer ? peer : announcer;
    while (!body.at_end()) parts.numbers.push_back(static_cast<int>(body.u32()));
    group_failed(group, rebuild_error(parts, static_cast<int>(culprit)));
  } else if (frame.type == JobMessage::kToMember) {
    membership::LauncherWord word = membership::decode_launcher_word(frame.body);
    if (const auto* announced = std::get_if<membership::NewWorld>(&word.message)) {
      forget_before(*announced->world);
    }
    tell_listener(std::move(word));
  } else if (frame.type == JobMessage::kLauncherGone) {
    on_launcher_gone(body.text());
  } else if (frame.type == JobMessage::kWriteWill) {
    tell_listener(membership::WriteWill{});
  } else if (frame.type == JobMessage::kNewsEnding) {
    fail_everything(std::make_exception_ptr(PeerError("the job is being ended: " + body.text())));
  }
}

}  // namespace chainmail::internal
