// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Agents behind agents: who carries whom, the messages about it, and both ends of tunnels with real
// commands between them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <asio/io_context.hpp>
#include <asio/signal_set.hpp>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "base/error.h"
#include "launcher/process/child_process.h"
#include "launcher/tree/agent_process.h"
#include "launcher/tree/relay.h"
#include "launcher/tree/tree_shape.h"
#include "launcher/tree/tunnel_wire.h"
#include "launcher/tree/tunnels.h"

namespace chainmail::launch {
namespace {

using ::testing::HasSubstr;
using Parents = std::vector<std::optional<std::uint32_t>>;

rlimit own_descriptors() {
  rlimit limit{};
  EXPECT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  return limit;
}

TEST(TreeShape, IsAStarUpTo64HostsAndTwoLevelsAbove) {
  EXPECT_EQ(tree_width(std::nullopt, 64, true), 0U);
  EXPECT_EQ(tree_width(std::nullopt, 65, true), 8U);
  EXPECT_EQ(tree_width(std::nullopt, 72, true), 8U);
  EXPECT_EQ(tree_width(std::nullopt, 73, true), 9U);
  EXPECT_EQ(tree_width(std::nullopt, 110, true), 10U);
  EXPECT_EQ(tree_width(std::nullopt, 1056, true), 16U);
  EXPECT_EQ(tree_width(std::nullopt, 100000, true), 16U);
  EXPECT_EQ(tree_width(std::nullopt, 1000, false), 0U) << "a starter that may work from here alone";
  EXPECT_EQ(tree_width(0, 1000, true), 0U);
  EXPECT_EQ(tree_width(3, 5, false), 3U);
}

TEST(TreeShape, CarriersComeBeforeWhomTheyCarryAndNoneHasTooMany) {
  EXPECT_EQ(parents_of(std::vector<bool>(7, false), 2),
            (Parents{std::nullopt, std::nullopt, 0, 0, 1, 1, 2}));
  EXPECT_EQ(parents_of(std::vector<bool>(3, false), 0), Parents(3));
  for (const std::size_t hosts : {1U, 65U, 100U, 1000U, 5000U}) {
    const std::uint32_t width = tree_width(std::nullopt, hosts, true);
    if (width == 0) continue;
    std::map<std::optional<std::uint32_t>, std::uint32_t> children;
    const Parents parents = parents_of(std::vector<bool>(hosts, false), width);
    for (std::uint32_t node = 0; node < hosts; ++node) {
      EXPECT_LE(++children[parents[node]], width);
      EXPECT_LT(parents[node].value_or(0), std::max(node, 1U));
    }
  }
}

TEST(TreeShape, ThisMachineCarriesNobodyAndNobodyCarriesIt) {
  EXPECT_EQ(parents_of({true, false, false, true, false, false}, 2),
            (Parents{std::nullopt, std::nullopt, std::nullopt, std::nullopt, 1, 1}));
}

// All beginnings of `body` are refused, and so is what is longer.
template <typename Decode>
void expect_exact(const std::string& body, Decode decode) {
  for (std::size_t length = 0; length < body.size(); ++length) {
    EXPECT_THROW((void)decode(body.substr(0, length)), SystemError) << length;
  }
  EXPECT_THROW((void)decode(body + "x"), SystemError);
}

TEST(TunnelWire, RoundTripsAndRefusesTruncation) {
  const TunnelOrder order{7, {"ssh", "", "/bin/sh"}};
  EXPECT_EQ(decode_tunnel_order(encode_fields(order)).command, order.command);
  expect_exact(encode_fields(order), decode_tunnel_order);
  const TunnelOutput output{8, TunnelStream::kError, std::string("a\0b", 3)};
  EXPECT_EQ(decode_tunnel_output(encode_fields(output)).bytes, output.bytes);
  EXPECT_EQ(decode_tunnel_output(encode_fields(output)).stream, TunnelStream::kError);
  expect_exact(encode_fields(output), decode_tunnel_output);
  const TunnelEnd end{9, TunnelEnd::How::kNotStarted, 3, "why"};
  EXPECT_EQ(decode_tunnel_end(encode_fields(end)).reason, "why");
  expect_exact(encode_fields(end), decode_tunnel_end);
  expect_exact(encode_fields(TunnelText{1, "text"}), decode_tunnel_text);
}

TEST(TunnelWire, RefusesNonsense) {
  EXPECT_THROW((void)decode_tunnel_order(encode_fields(TunnelOrder{1, {}})), SystemError);
  EXPECT_THROW((void)decode_tunnel_order(encode_fields(TunnelOrder{1, {""}})), SystemError);
  std::string many = encode_fields(TunnelOrder{1, {"a"}});
  many[4] = many[5] = many[6] = many[7] = '\xff';
  EXPECT_THROW((void)decode_tunnel_order(many), SystemError);
  EXPECT_THROW(
      (void)decode_tunnel_output(encode_fields(TunnelOutput{1, static_cast<TunnelStream>(3), ""})),
      SystemError);
  EXPECT_THROW(
      (void)decode_tunnel_end(encode_fields(TunnelEnd{1, static_cast<TunnelEnd::How>(3), 0, ""})),
      SystemError);
}

// Launcher and agent in one process; what one sends the other gets at once.
class Tunnel : public testing::Test {
 protected:
  void SetUp() override {
    signal(SIGPIPE, SIG_IGN);  // as agents do: commands end without reading all
    signals_.add(SIGCHLD);
    wait_for_children();
  }

  std::unique_ptr<AgentProcess> open(const std::string& script, AgentStart start = {}) {
    start.command = {"/bin/sh", "-c", script};
    return connected(tunnels_.open(3, start));
  }
  std::unique_ptr<AgentProcess> connected(std::unique_ptr<AgentProcess> process) {
    ByteStream::Callbacks callbacks;
    callbacks.on_bytes = [this](std::span<const std::byte> bytes) {
      output_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    };
    callbacks.on_end = [this](const std::string&) { ++ends_; };
    transport_ = process->connect(std::move(callbacks));
    transport_->start();
    process->read_errors([this](std::span<const std::byte> bytes) {
      errors_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    });
    return process;
  }
  // Nothing when it has not come within 10 s.
  std::optional<AgentProcess::Exit> exit_of(AgentProcess& process) {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (std::chrono::steady_clock::now() < limit) {
      io_.run_one_for(std::chrono::milliseconds(100));
      if (auto exit = process.reap()) return exit;
    }
    return std::nullopt;
  }
  void wait_for_children() {
    signals_.async_wait([this](const asio::error_code& error, int) {
      if (error) return;
      relay_.reap();
      wait_for_children();
    });
  }

  asio::io_context io_;
  asio::signal_set signals_{io_};
  Tunnels::Send to_relay_ = [this](std::uint32_t node, AgentMessage type, std::string body) {
    EXPECT_EQ(node, 3U);
    relay_.on_frame(make_frame(type, std::move(body)));
  };
  Tunnels tunnels_{to_relay_, to_relay_};
  SharedTexts shared_;
  Relay relay_{io_, shared_,
               [this](AgentMessage type, std::string body) {
                 EXPECT_LT(body.size(), std::size_t{1} << 20);
                 if (type == AgentMessage::kTunnelNoImage) ++refused_images_;
                 (void)tunnels_.on_frame(3, make_frame(type, std::move(body)));
               },
               own_descriptors()};
  std::shared_ptr<ByteTransport> transport_;
  std::string output_;
  std::string errors_;
  int ends_ = 0;
  int refused_images_ = 0;
};

TEST_F(Tunnel, CarriesAllThreeStreamsAndTheExitCode) {
  const auto process = open("read line; echo out $line; echo err $line >&2; exit 7");
  transport_->write("word\n");
  const auto exit = exit_of(*process);
  ASSERT_TRUE(exit);
  EXPECT_EQ(exit->code, 7);
  EXPECT_EQ(exit->text, "exited with code 7");
  EXPECT_EQ(output_, "out word\n");
  EXPECT_EQ(errors_, "err word\n");
  EXPECT_FALSE(process->reap()) << "said once";
}

// What the text is for the agent behind, word for word as this one has got it.
TEST_F(Tunnel, HandsOnWhatAllGet) {
  const std::string text(700 << 10, 'x');
  std::string expected;
  const SharedFrames frames = cut_shared(5, text);
  for (const auto& frame : frames) {
    expected += *frame;
    internal::FrameReader reader;
    reader.append(std::as_bytes(std::span(frame->data(), frame->size())));
    shared_.on_frame(*reader.next());
  }
  EXPECT_EQ(shared_.text(5), text);
  const auto process = open("head -c " + std::to_string(expected.size()) + "; exit 3");
  process->send_shared(5, frames);
  ASSERT_EQ(exit_of(*process)->code, 3);
  EXPECT_TRUE(output_ == expected);
  shared_.on_frame(make_frame(AgentMessage::kSharedDrop, encode_fields(TunnelText{5, ""})));
  EXPECT_THROW((void)shared_.text(5), SystemError);
}

TEST(SharedTexts, RefusesWhatIsNotWholeAndWhatGoesOn) {
  SharedTexts shared;
  const auto part = [](const std::string& text) {
    return make_frame(AgentMessage::kSharedPart, encode_fields(TunnelText{1, text}));
  };
  EXPECT_THROW((void)shared.frames(1), SystemError);
  shared.on_frame(part("ab"));
  EXPECT_THROW((void)shared.text(1), SystemError);
  shared.on_frame(part(""));
  EXPECT_EQ(shared.text(1), "ab");
  EXPECT_THROW(shared.on_frame(part("c")), SystemError);
}

// The command reads nothing until all has been written, more than a pipe holds.
TEST_F(Tunnel, UrgentWordsGoAheadOfWhatWaits) {
  const auto process = open("sleep 0.2; head -c 400011");
  for (int i = 0; i < 4; ++i) transport_->write(std::string(100000, 'x'));
  transport_->write_urgent("first");
  transport_->write_urgent("second");
  ASSERT_TRUE(exit_of(*process));
  EXPECT_EQ(output_.size(), 400011U);
  const std::size_t found = output_.find("firstsecond");
  EXPECT_LE(found, 200000U) << "behind nothing but the write that had begun";
  EXPECT_EQ(found % 100000, 0U) << "between writes";
}

TEST_F(Tunnel, CarriesManyBytesBothWaysWithPauses) {
  std::string bytes(std::size_t{8} << 20, '\0');
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 31 + i / 251);
  const auto process = open("head -c 8388608; echo done >&2");
  transport_->write(bytes);
  for (int turn = 0; turn < 20; ++turn) {
    relay_.set_reading(turn % 2 == 1);
    const std::size_t before = output_.size();
    for (int step = 0; step < 20; ++step) io_.run_one_for(std::chrono::milliseconds(1));
    // A read that had become possible before may still deliver.
    if (turn % 2 == 0) {
      EXPECT_LE(output_.size() - before, std::size_t{65536});
    }
  }
  relay_.set_reading(true);
  ASSERT_TRUE(exit_of(*process));
  EXPECT_TRUE(output_ == bytes) << output_.size();
  EXPECT_EQ(errors_, "done\n");
}

TEST_F(Tunnel, EndsItsCommandByTheEndOfInputOrBySignal) {
  const auto reader = open("cat; exit 3");
  transport_->close();
  EXPECT_FALSE(transport_->is_open());
  EXPECT_EQ(exit_of(*reader).value_or(AgentProcess::Exit{}).code, 3);
  const auto sleeper = open("sleep 60");
  sleeper->kill();
  const auto exit = exit_of(*sleeper);
  ASSERT_TRUE(exit);
  EXPECT_EQ(exit->code, -1);
  EXPECT_THAT(exit->text, HasSubstr("was killed by signal 9"));
}

TEST_F(Tunnel, TellsTheEndOfOutputBeforeTheEndOfTheCommand) {
  const auto process = open("exec >&-; echo still here >&2; read line");
  while (ends_ == 0) io_.run_one_for(std::chrono::seconds(5));
  EXPECT_FALSE(process->reap());
  transport_->write("go\n");
  ASSERT_TRUE(exit_of(*process));
  EXPECT_EQ(ends_, 1);
  EXPECT_EQ(errors_, "still here\n");
}

TEST_F(Tunnel, ReportsACommandThatCannotBeRun) {
  AgentStart start;
  start.command = {"/no/such/shell"};
  const auto process = connected(tunnels_.open(3, start));
  const auto exit = process->reap();
  ASSERT_TRUE(exit);
  EXPECT_THAT(exit->text, HasSubstr("cannot run /no/such/shell: No such file or directory"));
}

// Wherever in between it hits the limit: here, or in the child before its program runs.
TEST(ChildProcess, TooFewOpenFilesAreCalledSo) {
  const rlimit before = own_descriptors();
  bool has_failed = false;
  bool has_run = false;
  for (rlim_t files = 3; files < 100 && !has_run; ++files) {
    rlimit low = before;
    low.rlim_cur = files;
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
    try {
      const ChildProcess child = start_child({"/bin/true"}, &before);
      has_run = waitpid(child.pid, nullptr, 0) == child.pid;
    } catch (const SystemError& error) {
      has_failed = true;
      EXPECT_EQ(error.native_code(), EMFILE) << files << ": " << error.what();
    }
  }
  EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_TRUE(has_failed && has_run);
}

TEST_F(Tunnel, SendsTheRelaysOwnProgramOnlyWhenItIsTheRightOne) {
  AgentStart start;
  const AgentImage own = read_agent_image("/proc/self/exe");
  start.image = std::make_shared<const std::string>("sent all the way");
  start.image_checksum = own.checksum;
  const auto own_program = open("head -c 4 | tail -c 3", start);
  own_program->send_image(start);
  ASSERT_TRUE(exit_of(*own_program));
  EXPECT_EQ(output_, "ELF");
  EXPECT_EQ(refused_images_, 0);
  output_.clear();
  start.image_checksum = "1 16";
  const auto other = open("head -c 16", start);
  other->send_image(start);
  ASSERT_TRUE(exit_of(*other));
  EXPECT_EQ(output_, "sent all the way");
  EXPECT_EQ(refused_images_, 1);
}

TEST_F(Tunnel, OfAnotherAgentIsRefusedAndALateWordDropped) {
  std::string late;
  {
    const auto process = open("cat");
    late = encode_fields(TunnelOutput{0, TunnelStream::kOutput, "late"});
    EXPECT_THROW((void)tunnels_.on_frame(4, make_frame(AgentMessage::kTunnelOutput, late)),
                 SystemError);
    transport_->close();
    ASSERT_TRUE(exit_of(*process));
  }
  EXPECT_FALSE(tunnels_.on_frame(3, make_frame(AgentMessage::kTunnelOutput, late)));
  EXPECT_EQ(output_, "");
  const std::string never = encode_fields(TunnelEnd{1, TunnelEnd::How::kExited, 0, ""});
  EXPECT_THROW((void)tunnels_.on_frame(3, make_frame(AgentMessage::kTunnelEnded, never)),
               SystemError);
}

// One copy of the launcher stands in memory, however many hosts get it at once.
TEST(LocalAgentProcess, SendsTheImageWithoutCopyingIt) {
  asio::io_context io;
  AgentStart start;
  start.command = {"sleep", "60"};
  start.image = std::make_shared<const std::string>(std::size_t{1} << 20, 'x');
  {
    LocalAgentProcess process(io, start, own_descriptors());
    const auto stream = process.connect({});
    process.send_image(start);
    EXPECT_EQ(start.image.use_count(), 2) << "more than a pipe takes: the rest waits";
    EXPECT_EQ(stream->queued_bytes(), 0U);
    process.kill();
    while (!process.reap()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  io.poll();
  EXPECT_EQ(start.image.use_count(), 1);
}

TEST_F(Tunnel, EndsACommandThatReadsNothing) {
  const auto process = open("sleep 60");
  const std::string piece(std::size_t{1} << 20, 'x');
  for (std::size_t sent = 0; sent <= Relay::kMostQueuedBytes + piece.size(); sent += piece.size()) {
    transport_->write(piece);
  }
  const auto exit = exit_of(*process);
  ASSERT_TRUE(exit);
  EXPECT_THAT(exit->text, HasSubstr("was killed by signal 9"));
}

}  // namespace
}  // namespace chainmail::launch
