// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// A job's hosts without processes: agents that say what a test has them say, and keep what they are
// told. For tests of what owns a part of the controller.
//
// One thread.

#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "launcher/controller/state/job_state.h"
#include "tests/launcher/placement/place_ranks.h"

namespace chainmail::test {

/// What a fake agent's process shares with the test.
struct FakeWire {
  std::string written;  ///< by the controller, not looked at yet
  launch::ByteStream::Callbacks callbacks;
  bool is_open = true;
  bool has_ended = false;
  bool was_killed = false;
};

class FakeTransport : public launch::ByteTransport {
 public:
  explicit FakeTransport(std::shared_ptr<FakeWire> wire) : wire_(std::move(wire)) {}
  void start() override {}
  void write(std::string bytes) override { wire_->written += bytes; }
  void write_urgent(std::string bytes) override { wire_->written += bytes; }
  [[nodiscard]] std::size_t queued_bytes() const noexcept override { return 0; }
  void close() override { wire_->is_open = false; }
  [[nodiscard]] bool is_open() const noexcept override { return wire_->is_open; }

 private:
  std::shared_ptr<FakeWire> wire_;
};

class FakeProcess : public launch::AgentProcess {
 public:
  explicit FakeProcess(std::shared_ptr<FakeWire> wire) : wire_(std::move(wire)) {}
  std::shared_ptr<launch::ByteTransport> connect(launch::ByteStream::Callbacks on) override {
    wire_->callbacks = std::move(on);
    return std::make_shared<FakeTransport>(wire_);
  }
  void read_errors(std::function<void(std::span<const std::byte>)>) override {}
  void drain_errors() override {}
  void stop_reading() override {}
  void send_image(const launch::AgentStart&) override {}
  void send_shared(std::uint32_t, const launch::SharedFrames&) override {}
  [[nodiscard]] std::optional<Exit> reap() override {
    if (!wire_->has_ended) return {};
    return Exit{0, "exited with code 0"};
  }
  void kill() override { wire_->was_killed = true; }

 private:
  std::shared_ptr<FakeWire> wire_;
};

/// A job with `ranks_of_node[i]` ranks on host "n<i>".
class FakeJob {
 public:
  explicit FakeJob(const std::vector<int>& ranks_of_node, launch::Options options = {})
      : job(std::move(options), placement_of(ranks_of_node), directory_, 0) {}

  /// The agent of `node` has started, and has said hello.
  void say_hello(std::uint32_t node) {
    const auto wire = std::make_shared<FakeWire>();
    wires_[node] = wire;
    launch::AgentStart start;
    start.command = {"agent"};
    job.agents[node].link = std::make_unique<launch::AgentLink>(
        job.io, start, std::make_unique<FakeProcess>(wire),
        launch::AgentLink::Callbacks{[](const auto&) {}, [](const auto&) {}, [](const auto&) {},
                                     [](const auto&) {}, [](const auto&) {}},
        launch::AgentLimits{std::chrono::hours(1), std::chrono::hours(1)});
    launch::AgentHello hello;
    hello.host = job.agents[node].host;
    say(node, launch::AgentMessage::kAgentHello, launch::encode_fields(hello));
    (void)told(node);
  }

  void say(std::uint32_t node, launch::AgentMessage type, std::string body) {
    const std::string bytes =
        internal::encode_frame({static_cast<internal::JobMessage>(type), 0, std::move(body)});
    wires_.at(node)->callbacks.on_bytes(std::as_bytes(std::span(bytes)));
  }

  /// What the agent of `node` has been told since the last call; heartbeats are left out.
  std::vector<internal::Frame> told(std::uint32_t node) {
    internal::FrameReader reader;
    std::string& written = wires_.at(node)->written;
    reader.append(std::as_bytes(std::span(written)));
    written.clear();
    std::vector<internal::Frame> frames;
    while (auto frame = reader.next()) {
      if (launch::type_of(*frame) != launch::AgentMessage::kHeartbeat) {
        frames.push_back(std::move(*frame));
      }
    }
    return frames;
  }

  FakeWire& wire(std::uint32_t node) { return *wires_.at(node); }

 private:
  static launch::Placement placement_of(const std::vector<int>& ranks_of_node) {
    std::vector<launch::Host> hosts;
    for (std::size_t i = 0; i < ranks_of_node.size(); ++i) {
      launch::Host host;
      host.name = "n" + std::to_string(i);
      host.slots = ranks_of_node[i];
      host.has_slots = true;
      hosts.push_back(host);
    }
    return launch::place_ranks(hosts, {});
  }

  launch::JobDirectory directory_;
  std::map<std::uint32_t, std::shared_ptr<FakeWire>> wires_;

 public:
  launch::JobState job;  // after what it holds on to
};

}  // namespace chainmail::test
