// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Strangers on a rank's port: silent, impatient, talkative. The group's work must not notice.

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <random>

#include "base/net/socket.h"
#include "tests/ops/comm/rank_threads.h"

namespace chainmail::ops {
namespace {

using internal::UniqueFd;
using testing::CommWorld;
using testing::Ops;
using testing::Wire;

UniqueFd connect_to(const std::string& address) {
  UniqueFd fd = internal::start_connect(internal::parse_address(address).value());
  for (int i = 0; i < 1000; ++i) {
    sockaddr_storage name{};
    socklen_t length = sizeof name;
    if (::getpeername(fd.get(), reinterpret_cast<sockaddr*>(&name), &length) == 0) return fd;
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
  }
  throw TimeoutError("no connection to " + address);
}

// What the n-th stranger says.
std::vector<std::byte> speech(int n) {
  std::mt19937 random(static_cast<unsigned>(n));
  switch (n % 5) {
    case 0:
      return {};
    case 1:
      return {std::byte{'c'}};
    case 2:  // a huge length, whatever field it is taken for
      return std::vector<std::byte>(64, std::byte{0x7f});
    case 3: {
      std::vector<std::byte> noise(4096);
      std::generate(noise.begin(), noise.end(), [&] { return static_cast<std::byte>(random()); });
      return noise;
    }
    default: {  // begins like a hello
      std::vector<std::byte> hello(200, std::byte{0});
      const std::string magic = "chainma1";
      std::transform(magic.begin(), magic.end(), hello.begin(),
                     [](char c) { return static_cast<std::byte>(c); });
      return hello;
    }
  }
}

TEST(HostileTest, TwoHundredStrangersDoNotDisturbAnAllReduce) {
  constexpr std::size_t kCount = 20'000;
  CommWorld world(Wire::kTcp, 2);
  std::vector<std::unique_ptr<P2pComm>> comms;
  for (int rank = 0; rank < 2; ++rank) comms.push_back(world.make(rank));
  std::atomic<bool> is_over{false};
  std::atomic<int> calls{0};
  std::atomic<int> is_last{1 << 30};
  const auto work = [&](int rank) {
    Ops ops;
    std::vector<float> data(kCount);
    for (int call = 0; call <= is_last.load(); ++call) {
      std::fill(data.begin(), data.end(), static_cast<float>(rank + call));
      comms[static_cast<std::size_t>(rank)]->all_reduce(
          reinterpret_cast<std::byte*>(data.data()), kCount, {},
          ops.next(OpKind::kAllReduce, kCount, DataType::kFloat32));
      const auto sum = static_cast<float>(2 * call + 1);
      ASSERT_EQ(std::count(data.begin(), data.end(), sum), static_cast<std::ptrdiff_t>(kCount));
      // Both ranks stop after the same call: rank 0 fixes it well ahead.
      if (rank == 0) calls = call;
      if (rank == 0 && is_over && is_last == 1 << 30) is_last = call + 5;
    }
  };
  // Strangers are there before the ranks have met, too.
  std::vector<UniqueFd> strangers;
  const auto crowd = [&](int begin, int end) {
    for (int n = begin; n < end; ++n) {
      const std::string key = "test/tcp/0/" + std::to_string(n % 2);
      strangers.push_back(connect_to(world.rendezvous->try_get(key).value()));
      const auto words = speech(n);
      if (!words.empty()) ::send(strangers.back().get(), words.data(), words.size(), MSG_NOSIGNAL);
      if (n % 7 == 0) strangers.back().reset();
    }
  };
  crowd(0, 70);
  std::thread first([&] { work(0); });
  std::thread second([&] { work(1); });
  crowd(70, 200);
  const int seen = calls;
  while (calls < seen + 50) std::this_thread::sleep_for(std::chrono::milliseconds{1});
  is_over = true;
  first.join();
  second.join();
  EXPECT_GE(calls.load(), 50);
}

}  // namespace
}  // namespace chainmail::ops
