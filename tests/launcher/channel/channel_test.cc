// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Frames between controller and agent: encoding, and a channel over real pipes.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <asio/io_context.hpp>
#include <csignal>
#include <thread>

#include "base/error.h"
#include "launcher/channel/frame_channel.h"

namespace chainmail::launch {
namespace {

using internal::UniqueFd;
using ::testing::HasSubstr;

StartOrder example_order() {
  StartOrder order;
  order.world_size = 4;
  order.node_rank = 1;
  order.ranks = {{1, 0, true}, {3, 1, false}};
  order.programs = {{"/home/u", {"./p", "--a", ""}, {{"A", "1"}, {"B", ""}}}, {"/tmp", {"q"}, {}}};
  order.binding = {BindTo::kSocket, 3, true, true};
  order.output_window = 70000;
  order.mpi = "order";
  order.carriage_returns = true;
  order.ignored_signals = {10, 2};
  return order;
}

TEST(Wire, OrderRoundTrips) {
  const StartOrder order = decode_order(encode_fields(example_order()));
  EXPECT_EQ(order.world_size, 4U);
  ASSERT_EQ(order.ranks.size(), 2U);
  EXPECT_EQ(order.ranks[1].rank, 3U);
  EXPECT_EQ(order.ranks[1].program, 1U);
  EXPECT_TRUE(order.ranks[0].has_input);
  EXPECT_FALSE(order.ranks[1].has_input);
  ASSERT_EQ(order.programs.size(), 2U);
  EXPECT_EQ(order.programs[0].words, example_order().programs[0].words);
  EXPECT_EQ(order.programs[0].variables, example_order().programs[0].variables);
  EXPECT_EQ(order.programs[1].working_directory, "/tmp");
  EXPECT_EQ(order.binding.to, BindTo::kSocket);
  EXPECT_EQ(order.binding.width, 3U);
  EXPECT_TRUE(order.binding.scatter && order.binding.overload);
  EXPECT_EQ(order.output_window, 70000U);
  EXPECT_EQ(order.mpi, "order");
  EXPECT_TRUE(order.carriage_returns);
  EXPECT_EQ(order.ignored_signals, (std::vector<std::uint32_t>{10, 2}));
}

TEST(Wire, EveryTruncationIsRefused) {
  const std::string order = encode_fields(example_order());
  for (std::size_t length = 0; length < order.size(); ++length) {
    EXPECT_THROW((void)decode_order(order.substr(0, length)), SystemError) << length;
  }
  const std::string hello = encode_fields(AgentHello{"n1", 1, 2, "10.0.0.1", 4});
  for (std::size_t length = 0; length < hello.size(); ++length) {
    EXPECT_THROW((void)decode_hello(hello.substr(0, length)), SystemError) << length;
  }
  EXPECT_THROW((void)decode_order(order + "x"), SystemError);
}

TEST(Wire, ContradictoryOrdersAreRefused) {
  const auto refuses = [](auto change) {
    StartOrder order = example_order();
    change(order);
    EXPECT_THROW((void)decode_order(encode_fields(order)), SystemError);
  };
  refuses([](StartOrder& order) { order.ranks[0].rank = 4; });
  refuses([](StartOrder& order) { order.ranks[1].program = 2; });
  refuses([](StartOrder& order) { order.ranks.clear(); });
  refuses([](StartOrder& order) { order.world_size = 1; });
  refuses([](StartOrder& order) { order.programs[0].words.clear(); });
  refuses([](StartOrder& order) { order.ignored_signals = {0}; });
  refuses([](StartOrder& order) { order.ignored_signals = {65}; });
  refuses([](StartOrder& order) { order.ignored_signals = {SIGTERM}; });
  refuses([](StartOrder& order) { order.binding.to = static_cast<BindTo>(kBindToCount); });
}

// A channel that reads what the test writes into a pipe.
class ChannelTest : public ::testing::Test {
 protected:
  void open(const std::string& marker) {
    std::array<int, 2> ends{};
    ASSERT_EQ(pipe2(ends.data(), O_CLOEXEC), 0);
    writer_.reset(ends[1]);
    FrameChannel::Callbacks callbacks;
    callbacks.on_frame = [this](const internal::Frame& frame) { bodies_.push_back(frame.body); };
    callbacks.on_end = [this](const std::string& reason) { ends_.push_back(reason); };
    channel_ = std::make_unique<FrameChannel>(io_, UniqueFd(ends[0]), UniqueFd(), marker,
                                              std::move(callbacks));
  }
  void feed(const std::string& bytes) {
    ASSERT_EQ(::write(writer_.get(), bytes.data(), bytes.size()),
              static_cast<ssize_t>(bytes.size()));
    io_.restart();
    io_.run_for(std::chrono::milliseconds(20));
  }
  static std::string frame(const std::string& body) {
    return internal::encode_frame(make_frame(AgentMessage::kOutput, body));
  }

  asio::io_context io_;
  UniqueFd writer_;
  std::vector<std::string> bodies_;
  std::vector<std::string> ends_;
  std::unique_ptr<FrameChannel> channel_;
};

TEST_F(ChannelTest, NoiseBeforeTheMarkerIsSkipped) {
  open("chainmail-0123");
  feed("Welcome to n1!\n+ exec launcher --agent chainmail-0123\n<chainmail-01 is near\n");
  feed("<chainmail-0");
  feed("123>\n" + frame("one").substr(0, 5));
  feed(frame("one").substr(5) + frame("two"));
  EXPECT_EQ(bodies_, (std::vector<std::string>{"one", "two"}));
  EXPECT_TRUE(ends_.empty());
}

TEST_F(ChannelTest, EndOfFileIsReportedOnceAfterAllFrames) {
  open("");
  feed(frame("last"));
  writer_.reset();
  io_.restart();
  io_.run_for(std::chrono::milliseconds(20));
  EXPECT_EQ(bodies_, std::vector<std::string>{"last"});
  EXPECT_EQ(ends_.size(), 1U);
}

// A rank has ended while a process that it left behind goes on writing.
TEST(ByteStreamTest, DrainEndsAlthoughTheOtherSideWritesOn) {
  signal(SIGPIPE, SIG_IGN);
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe2(ends.data(), O_CLOEXEC), 0);
  asio::io_context io;
  std::size_t received = 0;
  ByteStream::Callbacks callbacks;
  // Slower than the writer, so that there is always more to read.
  callbacks.on_bytes = [&](std::span<const std::byte> bytes) {
    received += bytes.size();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (received > std::size_t{8} << 20) throw std::runtime_error("drain goes on");
  };
  const auto stream = ByteStream::make(io, UniqueFd(ends[0]), UniqueFd(), callbacks);
  std::thread writer([fd = UniqueFd(ends[1])] {
    const std::string bytes(65536, 'x');
    while (::write(fd.get(), bytes.data(), bytes.size()) > 0) {
    }
  });
  while (received == 0) stream->drain();
  EXPECT_LE(received, (std::size_t{1} << 20) + 65536);
  stream->close();
  writer.join();
}

TEST(ByteStreamTest, WhatTheKernelDoesNotWatchIsASystemError) {
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe2(ends.data(), O_CLOEXEC), 0);
  const UniqueFd writer(ends[1]);
  asio::io_context io;
  asio::posix::stream_descriptor first(io, ends[0]);
  // The same descriptor a second time is the refusal that needs no full kernel.
  EXPECT_THROW((void)ByteStream::make(io, UniqueFd(ends[0]), UniqueFd(), {}), SystemError);
  (void)first.release();  // closed already
}

TEST_F(ChannelTest, NonsenseEndsTheChannel) {
  open("");
  feed(frame("good") + std::string(16, '\xff'));
  EXPECT_EQ(bodies_, std::vector<std::string>{"good"});
  ASSERT_EQ(ends_.size(), 1U);
  EXPECT_THAT(ends_[0], HasSubstr("what came is no message"));
  EXPECT_FALSE(channel_->is_open());
}

TEST_F(ChannelTest, OversizedFrameEndsTheChannel) {
  open("");
  std::string head = frame("").substr(0, 16);
  head[2] = '\x7f';
  feed(head);
  ASSERT_EQ(ends_.size(), 1U);
  EXPECT_THAT(ends_[0], HasSubstr("at most"));
}

}  // namespace
}  // namespace chainmail::launch
