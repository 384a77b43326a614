// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// A launcher of three lines: the other end of a rank's socket.
//
// One thread at a time.

#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/job/job_protocol.h"

namespace chainmail::internal {

class FakeLauncher {
 public:
  FakeLauncher() {
    std::array<int, 2> ends{};
    if (::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()) != 0) throw system_error("socketpair");
    fd_ = ends[0];
    rank_fd_ = ends[1];
  }
  ~FakeLauncher() { hang_up(); }

  int rank_fd() const { return rank_fd_; }

  void hang_up() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }

  void send(JobMessage type, std::string body, std::uint32_t generation = 0) {
    const std::string bytes = encode_frame(Frame{type, generation, std::move(body)});
    ASSERT_EQ(::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }

  // The next frame of the rank; fails the test after ten seconds.
  Frame receive() {
    for (;;) {
      if (auto frame = reader_.next()) return *frame;
      pollfd ready{fd_, POLLIN, 0};
      if (::poll(&ready, 1, 10'000) != 1) throw TimeoutError("the client said nothing");
      std::array<std::byte, 4096> buffer;
      const ssize_t size = ::recv(fd_, buffer.data(), buffer.size(), 0);
      if (size <= 0) throw system_error("recv");
      reader_.append(std::span(buffer.data(), static_cast<std::size_t>(size)));
    }
  }

  // The client is rank 1.
  void welcome(bool is_elastic = false) {
    const Frame hello = receive();
    ASSERT_EQ(hello.type, JobMessage::kHello);
    BodyReader body(hello.body);
    EXPECT_EQ(body.u32(), kJobProtocolVersion);
    EXPECT_EQ(body.u32(), static_cast<std::uint32_t>(::getpid()));
    Welcome welcome;
    welcome.rank = 1;
    welcome.job_id = "job";
    welcome.secret = std::string(32, 's');
    welcome.node_of_rank = {0, 0, 1};
    welcome.addresses = {"", ""};
    welcome.is_elastic = is_elastic;
    welcome.grace_ms = 5000;
    send(JobMessage::kWelcome, encode_welcome(welcome));
  }

 private:
  int fd_ = -1;
  int rank_fd_ = -1;
  FrameReader reader_;
};

}  // namespace chainmail::internal
