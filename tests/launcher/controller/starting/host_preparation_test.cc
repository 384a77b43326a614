// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// In which order hosts are prepared, and what becomes of a preparation that fails.

#include "launcher/controller/starting/host_preparation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/launcher/controller/fake_agents.h"

namespace chainmail::launch {
namespace {

using internal::BodyReader;
using internal::BodyWriter;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class HostPreparationTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name =
        (std::filesystem::temp_directory_path() / "chainmail-prepared.XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override {
    preparation_.reset();
    fake_.reset();
    std::filesystem::remove_all(folder_);
  }

  void begin(std::vector<std::string> first, std::vector<std::string> words,
             std::optional<std::chrono::milliseconds> limit = {}, bool has_files = false) {
    Options options;
    options.preparation = {std::move(first), std::move(words), limit,
                           has_files ? folder_.string() : "", ""};
    options.job.file = job_file_;
    fake_ = std::make_unique<test::FakeJob>(std::vector<int>{2, 1, 1}, options);
    for (std::uint32_t node = 0; node < 3; ++node) fake_->say_hello(node);
    preparation_ = std::make_unique<HostPreparation>(
        fake_->job, HostPreparation::Callbacks{
                        .make_order =
                            [](std::uint32_t) {
                              StartOrder order;
                              order.programs.resize(2);
                              order.programs[0].variables["JOB"] = "yes";
                              return order;
                            },
                        .on_done = [this] { ++done_; },
                        .fail =
                            [this](Failure failure) {
                              preparation_->stop();  // as the job does when it begins to end
                              failures_.push_back(std::move(failure));
                            }});
    preparation_->start();
  }

  // What the agent of `node` has been told to run.
  std::optional<StartOrder> order_of(std::uint32_t node) {
    std::string bytes;
    for (const internal::Frame& frame : fake_->told(node)) {
      if (type_of(frame) == AgentMessage::kStartPart) bytes += frame.body;
    }
    return bytes.empty() ? std::nullopt : std::optional(decode_order(bytes));
  }

  bool hear(std::uint32_t node, AgentMessage type, std::string body) {
    return preparation_->on_frame(node, make_frame(type, std::move(body)));
  }
  void print(std::uint32_t node, const std::string& text) {
    EXPECT_TRUE(hear(node, AgentMessage::kOutput, BodyWriter().u32(0).u8(2).text(text).take()));
  }
  void end(std::uint32_t node, RankExit exit = {}) {
    EXPECT_TRUE(hear(node, AgentMessage::kRankExited, encode_fields(exit)));
    preparation_->on_all_exited(node);
  }

  std::string job_file_;
  std::filesystem::path folder_;
  std::unique_ptr<test::FakeJob> fake_;
  std::unique_ptr<HostPreparation> preparation_;
  int done_ = 0;
  std::vector<Failure> failures_;
};

TEST(PreparationOrder, RunsWhereItIsAskedToAndKnowsWhereRanksRun) {
  StartOrder order;
  order.programs.resize(2);
  order.programs[0].working_directory = "$OUT/x";
  order.programs[0].expands = true;
  order_preparation({{}, {}, {}, "", "/"}, {"sh"}, order);
  ASSERT_EQ(order.programs.size(), 1U);
  EXPECT_EQ(order.programs[0].working_directory, "/");
  EXPECT_EQ(order.programs[0].patterns.at("PWD"), "$OUT/x");
  order.programs[0].working_directory = "/work";
  order_preparation({}, {"sh"}, order);
  EXPECT_EQ(order.programs[0].working_directory, "/work");
}

TEST_F(HostPreparationTest, EachHostRunsOneProcessThatIsNoRank) {
  begin({}, {"sh", "-c", "x"});
  for (std::uint32_t node = 0; node < 3; ++node) {
    const auto order = order_of(node);
    ASSERT_TRUE(order);
    EXPECT_TRUE(order->is_preparation);
    EXPECT_EQ(order->ranks.size(), 1U);
    EXPECT_EQ(order->node_rank, node);
    EXPECT_EQ(order->binding.to, BindTo::kNone);
    ASSERT_EQ(order->programs.size(), 1U);
    EXPECT_THAT(order->programs[0].words, ElementsAre("sh", "-c", "x"));
    EXPECT_EQ(order->programs[0].variables.at("JOB"), "yes");
    EXPECT_FALSE(fake_->job.agents[node].all_exited);
  }
  end(2);
  end(0);
  EXPECT_EQ(done_, 0) << "one host is not prepared yet";
  end(1);
  EXPECT_EQ(done_, 1);
  EXPECT_FALSE(hear(1, AgentMessage::kRankExited, encode_fields(RankExit{}))) << "a rank's";
  EXPECT_THAT(failures_, IsEmpty());
}

TEST_F(HostPreparationTest, TheFirstHostComesBeforeAllOthers) {
  begin({"first"}, {"all"});
  EXPECT_TRUE(order_of(0));
  EXPECT_FALSE(order_of(1));
  EXPECT_TRUE(fake_->job.agents[1].all_exited) << "nobody will say that it has ended";
  end(0);
  EXPECT_EQ(done_, 0);
  for (std::uint32_t node = 0; node < 3; ++node) {
    const auto order = order_of(node);
    ASSERT_TRUE(order);
    EXPECT_THAT(order->programs[0].words, ElementsAre("all"));
    EXPECT_FALSE(fake_->job.agents[node].all_exited);
    end(node);
  }
  EXPECT_EQ(done_, 1);
}

TEST_F(HostPreparationTest, SomethingForTheFirstHostAloneIsEnough) {
  begin({"first"}, {});
  end(0);
  EXPECT_EQ(done_, 1);
  EXPECT_FALSE(order_of(1));
}

TEST_F(HostPreparationTest, AFailureNamesTheHostAndItsLastLines) {
  begin({}, {"all"});
  print(1, "looks for data\nno such disk\n");
  print(2, "fine\n");
  end(1, {0, false, 7});
  ASSERT_EQ(failures_.size(), 1U);
  EXPECT_EQ(failures_[0].exit_code, 7);
  EXPECT_EQ(failures_[0].kind, EndKind::kNotPrepared);
  EXPECT_FALSE(failures_[0].rank);
  EXPECT_EQ(failures_[0].cause, "the preparation of host n1 exited with code 7");
  EXPECT_THAT(failures_[0].quoted, AllOf(HasSubstr("\n  | no such disk"), Not(HasSubstr("fine"))));
  // Ended because of it.
  end(0, {0, true, SIGTERM});
  end(2);
  EXPECT_EQ(failures_.size(), 1U);
  EXPECT_EQ(done_, 0);
}

TEST_F(HostPreparationTest, AFailureOnTheFirstHostPreparesNoOther) {
  begin({"first"}, {"all"});
  end(0, {0, false, 1});
  EXPECT_EQ(failures_.size(), 1U);
  EXPECT_FALSE(order_of(1));
  EXPECT_EQ(done_, 0);
}

TEST_F(HostPreparationTest, WhatCannotBeRunIsAFailure) {
  begin({}, {"no-such"});
  const std::string body = BodyWriter().u32(0).u32(ENOENT).text("exec").text("no-such").take();
  EXPECT_TRUE(hear(2, AgentMessage::kStartFailed, body));
  preparation_->on_all_exited(2);
  ASSERT_EQ(failures_.size(), 1U);
  EXPECT_EQ(failures_[0].exit_code, exit_code::kNotFound);
  EXPECT_EQ(failures_[0].kind, EndKind::kNotPrepared);
  EXPECT_THAT(failures_[0].cause, AllOf(HasSubstr("the preparation of host n2"),
                                        HasSubstr("program not found on host n2: no-such")));
}

TEST_F(HostPreparationTest, HostsThatTakeTooLongAreNamed) {
  begin({}, {"all"}, std::chrono::milliseconds(20));
  print(2, "waits for a lock\n");
  end(0);
  while (failures_.empty() && fake_->job.io.run_one() > 0) {
  }
  ASSERT_EQ(failures_.size(), 1U);
  EXPECT_EQ(failures_[0].exit_code, exit_code::kTimeLimit);
  EXPECT_THAT(failures_[0].cause, HasSubstr("not ended within 0.02 s on hosts n1, n2 ("));
  EXPECT_THAT(failures_[0].quoted, HasSubstr("last lines of host n2:\n  | waits for a lock"));
}

TEST_F(HostPreparationTest, TheLimitIsCalledAsTheUserKnowsIt) {
  for (const std::string file : {"", "job.json"}) {
    job_file_ = file;
    failures_.clear();
    begin({}, {"all"}, std::chrono::milliseconds(1));
    while (failures_.empty() && fake_->job.io.run_one() > 0) {
    }
    ASSERT_EQ(failures_.size(), 1U);
    EXPECT_THAT(failures_[0].cause, HasSubstr(file.empty() ? "(--prepare-timeout)"
                                                           : "(prepare.timeout in the job file)"));
    preparation_.reset();
  }
}

TEST_F(HostPreparationTest, WhenTheJobIsEndingNothingIsBegunAndNothingFails) {
  begin({"first"}, {"all"}, std::chrono::milliseconds(1));
  preparation_->stop();
  end(0, {0, true, SIGTERM});
  fake_->job.io.run_for(std::chrono::milliseconds(20));
  EXPECT_THAT(failures_, IsEmpty());
  EXPECT_EQ(done_, 0);
  EXPECT_FALSE(order_of(1));
}

TEST_F(HostPreparationTest, OutputIsTakenAtOnceWhereNobodyKeepsIt) {
  begin({}, {"all"});
  (void)fake_->told(1);
  print(1, "text\n");
  const auto told = fake_->told(1);
  ASSERT_EQ(told.size(), 1U);
  EXPECT_EQ(type_of(told[0]), AgentMessage::kOutputTaken);
  BodyReader body(told[0].body);
  EXPECT_EQ(body.u32(), 0U);
  EXPECT_EQ(body.u8(), 2);
  EXPECT_EQ(body.u32(), 5U);
}

TEST_F(HostPreparationTest, OutputIsKeptAndMakesRoomWhenItIsWritten) {
  begin({}, {"all"}, {}, true);
  (void)fake_->told(1);
  print(1, "text\n");
  std::vector<internal::Frame> told;
  while (told.empty()) {
    fake_->job.io.restart();
    fake_->job.io.run_one_for(std::chrono::seconds(1));
    told = fake_->told(1);
  }
  EXPECT_EQ(type_of(told[0]), AgentMessage::kOutputTaken);
  for (std::uint32_t node = 0; node < 3; ++node) end(node);
  EXPECT_EQ(preparation_->finish(), "");
  std::ostringstream text;
  text << std::ifstream(folder_ / "prepare.n1.txt").rdbuf();
  EXPECT_EQ(text.str(), "text\n");
  EXPECT_TRUE(std::filesystem::exists(folder_ / "prepare.n0.txt"));
}

}  // namespace
}  // namespace chainmail::launch
