// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "base/job/job_protocol.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>

#include "base/error.h"

namespace chainmail::internal {
namespace {

using ::testing::HasSubstr;

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

// The message of the SystemError(EPROTO) that `action` throws.
template <typename Action>
std::string protocol_error_of(Action action) {
  try {
    action();
  } catch (const SystemError& error) {
    EXPECT_EQ(error.native_code(), EPROTO);
    return error.what();
  }
  ADD_FAILURE() << "no SystemError";
  return {};
}

Welcome example_welcome() {
  return {.rank = 2,
          .job_id = "job-1",
          .secret = std::string(32, '\xfe'),
          .node_of_rank = {0, 0, 1},
          .addresses = {"10.0.0.1", ""}};
}

TEST(Frame, HeadIsLittleEndianAndSixteenBytes) {
  const std::string wire = encode_frame({JobMessage::kReply, 0x01020304U, "abc"});
  EXPECT_EQ(wire, std::string("\x03\0\0\0\x06\0\x41\0\x04\x03\x02\x01\0\0\0\0abc", 19));
}

TEST(Frame, ComesOutWhateverTheCut) {
  const std::string wire = encode_frame({JobMessage::kStoreSet, 7, std::string("k\0v", 3)}) +
                           encode_frame({JobMessage::kStep, 7, ""}) +
                           encode_frame({JobMessage::kStep, 8, "12345678"});
  for (std::size_t step = 1; step <= wire.size(); ++step) {
    FrameReader reader;
    std::vector<Frame> frames;
    for (std::size_t at = 0; at < wire.size(); at += step) {
      reader.append(bytes_of(std::string_view(wire).substr(at, step)));
      while (auto frame = reader.next()) frames.push_back(*frame);
    }
    ASSERT_EQ(frames.size(), 3U) << "cut every " << step;
    EXPECT_EQ(frames[0].body, std::string("k\0v", 3));
    EXPECT_EQ(frames[1].type, JobMessage::kStep);
    EXPECT_EQ(frames[2].generation, 8U);
  }
}

TEST(Frame, TruncatedIsNotAFrame) {
  const std::string wire = encode_frame({JobMessage::kStep, 0, "12345678"});
  for (std::size_t length = 0; length < wire.size(); ++length) {
    FrameReader reader;
    reader.append(bytes_of(std::string_view(wire).substr(0, length)));
    EXPECT_FALSE(reader.next().has_value()) << length << " bytes";
  }
}

TEST(Frame, LargestPassesAndOneMoreIsRefused) {
  const std::size_t largest = kMaxFrameBytes - 16;
  FrameReader reader;
  reader.append(bytes_of(encode_frame({JobMessage::kStoreSet, 0, std::string(largest, 'x')})));
  const auto frame = reader.next();
  ASSERT_TRUE(frame.has_value());
  EXPECT_EQ(frame->body.size(), largest);
  EXPECT_THROW((void)encode_frame({JobMessage::kStoreSet, 0, std::string(largest + 1, 'x')}),
               InvalidArgument);
}

TEST(Frame, OversizedLengthIsRefusedFromTheHeadAlone) {
  std::string wire = encode_frame({JobMessage::kStep, 0, ""});
  wire[3] = '\x7f';
  FrameReader reader;
  reader.append(bytes_of(wire));
  EXPECT_THAT(protocol_error_of([&] { (void)reader.next(); }), HasSubstr("at most"));
}

TEST(Frame, OtherVersionIsNamed) {
  std::string wire = encode_frame({JobMessage::kStep, 0, ""});
  wire[4] = 9;
  FrameReader reader;
  reader.append(bytes_of(wire));
  EXPECT_THAT(protocol_error_of([&] { (void)reader.next(); }), HasSubstr("version 9"));
}

TEST(Frame, ReservedBytesMustBeZero) {
  std::string wire = encode_frame({JobMessage::kStep, 0, ""});
  wire[15] = 1;
  FrameReader reader;
  reader.append(bytes_of(wire));
  EXPECT_THAT(protocol_error_of([&] { (void)reader.next(); }), HasSubstr("reserved"));
}

TEST(Body, RoundTripsExtremes) {
  const std::string body = BodyWriter()
                               .u8(255)
                               .u32(0xffffffffU)
                               .u64(~std::uint64_t{0})
                               .i64(INT64_MIN)
                               .text(std::string_view("a\0b", 3))
                               .text("")
                               .take();
  BodyReader reader(body);
  EXPECT_EQ(reader.u8(), 255);
  EXPECT_EQ(reader.u32(), 0xffffffffU);
  EXPECT_EQ(reader.u64(), ~std::uint64_t{0});
  EXPECT_EQ(reader.i64(), INT64_MIN);
  EXPECT_EQ(reader.text(), std::string("a\0b", 3));
  EXPECT_FALSE(reader.at_end());
  EXPECT_EQ(reader.text(), "");
  EXPECT_TRUE(reader.at_end());
}

TEST(Body, EndsAreNoticed) {
  EXPECT_THAT(protocol_error_of([] { BodyReader("").u8(); }), HasSubstr("byte"));
  EXPECT_THAT(protocol_error_of([] { BodyReader("abc").u32(); }), HasSubstr("3 left"));
  EXPECT_THAT(protocol_error_of([] { BodyReader("abcdefg").u64(); }), HasSubstr("8 bytes wanted"));
  // A length that promises more than there is must not allocate it.
  EXPECT_THAT(protocol_error_of([] { (void)BodyReader("\xff\xff\xff\xff").text(); }),
              HasSubstr("4294967295"));
}

TEST(Welcome, RoundTrips) {
  const Welcome welcome = decode_welcome(encode_welcome(example_welcome()));
  EXPECT_EQ(welcome.rank, 2U);
  EXPECT_EQ(welcome.job_id, "job-1");
  EXPECT_EQ(welcome.secret, std::string(32, '\xfe'));
  EXPECT_EQ(welcome.node_of_rank, (std::vector<std::uint32_t>{0, 0, 1}));
  EXPECT_EQ(welcome.addresses, (std::vector<std::string>{"10.0.0.1", ""}));
}

TEST(EndedRanks, AreListedOneAfterTheOther) {
  const std::string value = encode_ended({3, "n1", "exited with code 0"}) +
                            encode_ended({0, "n2", "was killed by signal 9 (Killed)"});
  const auto ended = decode_ended(value);
  ASSERT_EQ(ended.size(), 2U);
  EXPECT_EQ(ended[0].rank, 3U);
  EXPECT_EQ(ended[0].cause, "exited with code 0");
  EXPECT_EQ(ended[1].host, "n2");
  EXPECT_TRUE(decode_ended("").empty());
  EXPECT_THROW((void)decode_ended(std::string_view(value).substr(0, value.size() - 1)),
               SystemError);
}

TEST(Welcome, EveryTruncationIsRefused) {
  const std::string body = encode_welcome(example_welcome());
  for (std::size_t length = 0; length < body.size(); ++length) {
    EXPECT_THROW((void)decode_welcome(std::string_view(body).substr(0, length)), SystemError)
        << length << " bytes";
  }
  EXPECT_THROW((void)decode_welcome(body + "x"), SystemError);
}

TEST(Welcome, OfManyThatAreGoneIsShort) {
  Welcome welcome = example_welcome();
  welcome.node_of_rank.assign(300'000, 7);
  welcome.addresses.assign(300'000, "");
  welcome.addresses.back() = "10.0.0.1";
  const std::string body = encode_welcome(welcome);
  EXPECT_LT(body.size(), 200U);
  const Welcome decoded = decode_welcome(body);
  EXPECT_EQ(decoded.node_of_rank, welcome.node_of_rank);
  EXPECT_EQ(decoded.addresses, welcome.addresses);
}

TEST(Welcome, PromisesOfEndlessListsAreRefused) {
  Welcome welcome = example_welcome();
  welcome.node_of_rank.assign((1 << 20) + 1, 0);
  EXPECT_THAT(protocol_error_of([&] { (void)decode_welcome(encode_welcome(welcome)); }),
              HasSubstr("more than 1048576 ranks"));
  welcome = example_welcome();
  welcome.addresses.resize((1 << 20) + 1);
  EXPECT_THAT(protocol_error_of([&] { (void)decode_welcome(encode_welcome(welcome)); }),
              HasSubstr("more nodes than there are"));
}

TEST(Welcome, ContradictionsAreRefused) {
  Welcome outside = example_welcome();
  outside.rank = 3;
  EXPECT_THAT(protocol_error_of([&] { (void)decode_welcome(encode_welcome(outside)); }),
              HasSubstr("rank 3"));
  Welcome nowhere = example_welcome();
  nowhere.node_of_rank[1] = 2;
  EXPECT_THAT(protocol_error_of([&] { (void)decode_welcome(encode_welcome(nowhere)); }),
              HasSubstr("node 2"));
}

}  // namespace
}  // namespace chainmail::internal
