// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// A job whose agents are started by a stand-in for the remote shell: a fixture that keeps what is
// told of them.
//
// One thread, the main one (launcher/process/fork_exec.h).

#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "launcher/controller/starting/agent_starts.h"
#include "launcher/process/children.h"
#include "launcher/tree/tunnel_wire.h"
#include "tests/launcher/placement/place_ranks.h"
#include "tests/support/patience.h"

namespace chainmail::launch {

/// HOST /bin/sh: what the host's name says, in the words of OpenSSH; --agent MARKER: the launcher
/// itself. An agent says what is in the file `words`, keeps its output open and leaves when its
/// input ends.
inline constexpr char kStandIn[] = R"sh(#!/bin/sh
cd "${0%/*}" || exit 1
say() { echo "$1" >&2; exit 255; }
echo x >>"tries$1"
cm_marker=$2
case $1 in
  down*) say "ssh: connect to host $1 port 22: No route to host" ;;
  refused*) say "me@$1: Permission denied (publickey)." ;;
  busy*)
    [ "$(wc -l <"tries$1")" -gt "${1#busy}" ] || say "Connection closed by 10.0.0.1 port 22" ;;
  back*) [ -e "$1" ] || say "ssh: connect to host $1 port 22: Connection refused" ;;
  odd*) echo "no idea" >&2; exit 3 ;;
  silent*) exec cat 3>&1 >/dev/null ;;
  noted*) echo "chainmail-note: why not" >&2 ;;
esac
while [ "$1" != --agent ] && read -r line; do
  case $line in cm_marker=*) eval "$line"; break ;; esac
done
printf '<%s>\n' "$cm_marker"
cat words
exec cat 3>&1 >/dev/null
)sh";

/// Agents of a job that are brought up, and all that becomes of them.
class StartedAgents : public ::testing::Test {
 protected:
  void SetUp() override {
    signal(SIGPIPE, SIG_IGN);
    std::string name =
        (std::filesystem::temp_directory_path() / "chainmail-starts.XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
    remote_shell_ = stand_in();
    std::ofstream(stand_in()) << kStandIn;
    ASSERT_EQ(chmod(stand_in().c_str(), 0700), 0);
    AgentHello hello;
    hello.pid = 77;
    std::ofstream(folder_ / "words", std::ios::binary)
        << internal::encode_frame(make_frame(AgentMessage::kAgentHello, encode_fields(hello)))
        << internal::encode_frame(make_frame(AgentMessage::kAllExited, ""));
  }
  void TearDown() override {
    if (job_) job_->agents.drop_links();
    starts_.reset();
    job_.reset();
    EXPECT_TRUE(end_all_children(internal::Deadline::after(std::chrono::seconds(10))).empty());
    std::filesystem::remove_all(folder_);
  }

  // A job on these hosts, of which nothing has been started.
  void plan(const std::vector<std::string>& names, std::uint32_t tree_width = 0) {
    starts_.reset();
    job_.reset();
    Options options = options_;
    options.remote_shell = remote_shell_;
    options.tree_width = tree_width;
    std::vector<Host> hosts(names.size());
    for (std::size_t i = 0; i < names.size(); ++i) {
      hosts[i].name = names[i];
      hosts[i].has_slots = true;
    }
    job_ = std::make_unique<JobState>(options, place_ranks(hosts, {}), directory_, generation_);
    starts_ = std::make_unique<AgentStarts>(
        *job_, stand_in(),
        AgentStarts::Callbacks{
            .on_hello = [this] { ++hellos_; },
            .on_frame = [this](std::uint32_t node, const auto&) { frames_.push_back(node); },
            .on_lost = [this](std::uint32_t node, const auto&) { on_lost(node); },
            .fail =
                [this](const std::string& cause) {
                  failures_.push_back(cause);
                  starts_->stop();
                },
            .on_waiting = [this](const std::string& words) { waiting_.push_back(words); }});
  }
  void start(const std::vector<std::string>& names, std::uint32_t tree_width = 0) {
    plan(names, tree_width);
    starts_->start();
  }

  // False as well when nothing is left that could make it so.
  bool run_until(const std::function<bool()>& is_so) {
    using Clock = std::chrono::steady_clock;
    const auto limit = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                          patient(std::chrono::seconds(30)));
    job_->io.restart();
    while (!is_so()) {
      if (job_->io.run_one_until(limit) == 0) return false;
    }
    return true;
  }
  // Until there is nothing to wait for.
  void run_out() {
    EXPECT_FALSE(run_until([] { return false; }));
    EXPECT_TRUE(job_->io.stopped());
  }

  // The host that carries a tunnel says how its command failed.
  void fail_tunnel(std::uint32_t tunnel, const std::string& words) {
    Tunnels& tunnels = job_->agents.tunnels();
    const TunnelOutput output{tunnel, TunnelStream::kError, words};
    tunnels.on_frame(0, make_frame(AgentMessage::kTunnelOutput, encode_fields(output)));
    const TunnelEnd end{tunnel, TunnelEnd::How::kExited, 255, ""};
    EXPECT_TRUE(tunnels.on_frame(0, make_frame(AgentMessage::kTunnelEnded, encode_fields(end))));
    job_->agents.reap();
  }

  Agents::Node& node(std::uint32_t number) { return job_->agents[number]; }
  std::string stand_in() const { return folder_ / "shell"; }
  // How often the command for a host has been run.
  std::ptrdiff_t tries_of(const std::string& host) const {
    std::ifstream file(folder_ / ("tries" + host));
    return std::count(std::istreambuf_iterator<char>(file), {}, '\n');
  }
  // How often the launcher has said so.
  std::size_t times_said(const std::string& text) {
    (void)job_->output->finish();
    const std::string all = ::testing::internal::GetCapturedStderr();
    std::size_t times = 0;
    for (auto at = all.find(text); at != std::string::npos; at = all.find(text, at + 1)) ++times;
    return times;
  }

  std::filesystem::path folder_;
  Options options_;
  std::uint32_t generation_ = 0;
  std::string remote_shell_;
  JobDirectory directory_;
  std::unique_ptr<JobState> job_;
  std::unique_ptr<AgentStarts> starts_;
  bool gives_up_ = true;      // where there is no other try
  bool may_be_lost_ = false;  // agents that were up
  int hellos_ = 0;
  std::vector<std::uint32_t> frames_;  // whose
  std::vector<std::uint32_t> again_;   // lost, and tried again
  std::vector<std::uint32_t> lost_;
  std::vector<std::string> failures_;
  std::vector<std::string> waiting_;  // who is waited for

 private:
  void on_lost(std::uint32_t node) {
    if (may_be_lost_ && job_->agents[node].link->hello()) return;
    EXPECT_FALSE(job_->agents[node].link->hello()) << "an agent has left";
    if (starts_->try_again(node)) return again_.push_back(node);
    lost_.push_back(node);
    if (gives_up_) starts_->give_up(node);
  }
};

}  // namespace chainmail::launch
