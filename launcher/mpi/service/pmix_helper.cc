// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/mpi/service/pmix_helper.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <iterator>

#include "base/error.h"
#include "launcher/channel/wire.h"
#include "launcher/job/environment.h"
#include "launcher/process/child_process.h"
#include "launcher/process/fork_exec.h"

namespace chainmail::launch {
namespace {

using internal::UniqueFd;

constexpr std::size_t kMaxWords = 4096;
constexpr std::chrono::milliseconds kSendPause{20};
constexpr int kTimeToEnd = 200;  // milliseconds

// The launcher's own, without what another process manager has put there.
std::vector<std::string> helper_environment() {
  Environment variables = current_environment();
  std::erase_if(variables, [](const auto& variable) {
    return variable.first.starts_with("PMIX_") || variable.first.starts_with("OMPI_");
  });
  return entries_of(variables);
}

std::string text_of(const siginfo_t& info) {
  if (info.si_code == CLD_EXITED) return "ended with code " + std::to_string(info.si_status);
  const std::string text = "been killed by signal " + std::to_string(info.si_status);
  if (info.si_status != SIGKILL) return text;
  return text + " (by the kernel, where memory ran out: see dmesg)";
}

}  // namespace

TrustedPath find_pmix_helper() {
  constexpr const char* kOwn = "/proc/self/exe";
  std::error_code error;
  const auto own = std::filesystem::read_symlink(kOwn, error);
  struct stat running {};
  struct stat named {};
  const bool is_there = !error && stat(kOwn, &running) == 0 && lstat(own.c_str(), &named) == 0 &&
                        running.st_dev == named.st_dev && running.st_ino == named.st_ino;
  if (!is_there) return {};
  const auto helper = own.parent_path() / kPmixHelperName;
  return access(helper.c_str(), X_OK) == 0 ? trusted_program(helper) : TrustedPath{};
}

PmixHelper::PmixHelper(asio::io_context& io, const std::string& program, Callbacks callbacks)
    : callbacks_(std::move(callbacks)), handoff_(io), pause_(io) {
  SocketPair control(SOCK_STREAM);
  SocketPair handoff(SOCK_SEQPACKET);
  Pipe error;
  const UniqueFd null(open("/dev/null", O_RDWR | O_CLOEXEC));
  const std::vector<std::string> environment = helper_environment();
  // Descriptors 3 and 4 as pmix/main.cc finds them.
  pid_ = spawn({.arguments = {program},
                .environment = &environment,
                .descriptors = {null.get(), null.get(), error.write_end.get(), control.theirs.get(),
                                handoff.theirs.get()},
                .ignored_signals = {std::begin(kPassedSignals), std::end(kPassedSignals)}});
  process_.reset(static_cast<int>(syscall(SYS_pidfd_open, pid_, 0)));
  asio::error_code refusal;
  handoff_.assign(handoff.ours.get(), refusal);
  if (refusal) throw SystemError("cannot watch a socket: " + refusal.message(), refusal.value());
  (void)handoff.ours.release();
  UniqueFd writer(fcntl(control.ours.get(), F_DUPFD_CLOEXEC, 3));
  if (!writer.is_open()) throw system_error("cannot make a socket for the MPI helper");
  control_ = ByteStream::make(io, std::move(control.ours), std::move(writer),
                              {.on_bytes = [this](const auto& bytes) { receive(bytes); },
                               .on_end = [this](const std::string&) { lose(""); }});
  const auto on_error = [this](std::span<const std::byte> bytes) {
    words_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    if (words_.size() > kMaxWords) words_.erase(0, words_.size() - kMaxWords);
  };
  errors_ = ByteStream::make(io, std::move(error.read_end), {}, {.on_bytes = on_error});
  control_->start();
  errors_->start();
}

PmixHelper::~PmixHelper() {
  *alive_ = false;
  control_->close();
  errors_->close();
  // It is never asked to finish: libpmix may not come back from that. The agent reaps it.
  if (process_.is_open()) syscall(SYS_pidfd_send_signal, process_.get(), SIGKILL, nullptr, 0);
}

void PmixHelper::send(const MpiMessage& message) {
  send_in_pieces(message, [this](std::string body) {
    control_->write(internal::encode_frame(make_frame(AgentMessage::kMpi, std::move(body))));
  });
}

void PmixHelper::pass(UniqueFd connection) {
  waiting_.push_back(std::move(connection));
  if (waiting_.size() == 1) pass_waiting();
}

void PmixHelper::pass_waiting() {
  while (!waiting_.empty() && !is_lost_) {
    char byte = 1;
    iovec piece{&byte, 1};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
    msghdr message{};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof(int));
    const int fd = waiting_.front().get();
    std::memcpy(CMSG_DATA(head), &fd, sizeof fd);
    if (sendmsg(handoff_.native_handle(), &message, MSG_DONTWAIT | MSG_NOSIGNAL) == 1) {
      waiting_.pop_front();
      continue;
    }
    const auto go_on = [this, alive = alive_](const asio::error_code& error) {
      if (*alive && !error) pass_waiting();
    };
    if (errno == EAGAIN) {
      handoff_.async_wait(asio::posix::stream_descriptor::wait_write, go_on);
    } else if (errno == ETOOMANYREFS || errno == ENOBUFS) {
      pause_.expires_after(kSendPause);  // no lack of room in the socket, which is writable
      pause_.async_wait(go_on);
    }
    return;  // any other error: on_lost comes
  }
}

void PmixHelper::drain() {
  errors_->drain();
  control_->drain();
}

void PmixHelper::receive(std::span<const std::byte> bytes) {
  try {
    frames_.append(bytes);
    while (const auto frame = frames_.next()) {
      if (auto message = pieces_.add(frame->body)) callbacks_.on_message(std::move(*message));
    }
  } catch (const Error& error) {
    lose(error.what());
  }
}

bool PmixHelper::on_child_end(const siginfo_t& info) {
  if (info.si_pid != pid_) return false;
  if (end_.empty()) end_ = text_of(info);
  return true;
}

// Its socket closes a moment before it can be waited for.
void PmixHelper::look_at_end() {
  if (!end_.empty() || !process_.is_open()) return;
  pollfd ended{process_.get(), POLLIN, 0};
  poll(&ended, 1, kTimeToEnd);
  siginfo_t info{};
  if (waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0) {
    (void)on_child_end(info);
  }
}

void PmixHelper::lose(const std::string& cause) {
  if (std::exchange(is_lost_, true)) return;
  errors_->drain();
  std::string reason = cause;
  if (reason.empty()) {
    look_at_end();
    reason = end_.empty() ? "ended" : end_;
  }
  callbacks_.on_lost(words_.empty() ? reason : reason + "; its last words: " + words_);
}

}  // namespace chainmail::launch
