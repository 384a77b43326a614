// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/controller/starting/agent_starts.h"

#include <algorithm>
#include <asio/post.hpp>
#include <cerrno>
#include <memory>
#include <utility>

#include "base/bytes.h"
#include "base/error.h"
#include "launcher/command_line/parse.h"
#include "launcher/remote/agent_starter.h"
#include "launcher/remote/bootstrap.h"
#include "launcher/remote/rsh_command.h"

namespace chainmail::launch {
namespace {

using std::chrono::milliseconds;

// ssh gives up a connection after 10 s; slow start-up files come on top.
constexpr milliseconds kLoginLimit{30000};
// An engine may fetch the image first.
constexpr milliseconds kContainerLimit = std::chrono::minutes(10);

// Whatever a machine sends must not act on the user's terminal.
std::string without_controls(std::string text) {
  std::erase_if(text, [](char c) { return static_cast<unsigned char>(c) < ' '; });
  return text;
}

// What the remote shell said last, or how it ended.
std::string last_word(const AgentLink& link) {
  std::string text = link.error_output();
  while (!text.empty() && static_cast<unsigned char>(text.back()) <= ' ') text.pop_back();
  const std::string line = without_controls(text.substr(text.find_last_of("\r\n") + 1));
  return line.empty() ? link.start().command.front() + " " + link.exit_text() : line;
}

}  // namespace

AgentStarts::AgentStarts(JobState& job, std::string launcher_path, Callbacks callbacks)
    : job_(job),
      agents_(job.agents),
      launcher_path_(std::move(launcher_path)),
      callbacks_(std::move(callbacks)),
      report_timer_(job.io),
      patience_(job, {.start = [this](std::uint32_t node) { start_one(node); },
                      .on_over = [this](const auto& why) { give_up_waiting(why); },
                      .on_change =
                          [this](const std::string& words) {
                            if (callbacks_.on_waiting) callbacks_.on_waiting(words);
                          }}) {}

// All commands are known before the first is run: bad usage starts nothing.
void AgentStarts::start() {
  if (job_.options.container.is_on()) check_container(job_.options.container);
  for (std::uint32_t node = 0; node < agents_.size(); ++node) plan_start(node);
  // What is inside of a container has no remote shell.
  const auto width = job_.options.container.is_on() ? std::optional(0U) : job_.options.tree_width;
  agents_.plan(width, is_ssh(remote_shell_of(job_.options).front()));
  patience_.begin();
  start_from(0);
}

void AgentStarts::start_added(std::uint32_t node) {
  plan_start(node);
  start_one(node);
}

void AgentStarts::stop() {
  is_over_ = true;
  patience_.stop();
}

void AgentStarts::plan_start(std::uint32_t node) {
  const std::string marker = "chainmail-" + internal::to_hex(internal::random_bytes(8));
  const ContainerStart container = job_.container_on(node);
  agents_[node].start =
      start_on(agents_[node].asked, marker, remote_shell_of(job_.options), launcher_path_, image_,
               container.what.is_on() ? &container : nullptr);
}

// Starting many takes longer than agents wait for a word; those that run already get their
// heartbeats in between.
void AgentStarts::start_from(std::uint32_t node) {
  constexpr milliseconds kSlice{20};
  const auto end = std::chrono::steady_clock::now() + kSlice;
  for (; node < agents_.size() && !is_over_; ++node) {
    if (agents_[node].parent || agents_[node].link) continue;
    start_one(node);
    if (std::chrono::steady_clock::now() < end) continue;
    asio::post(job_.io, [this, node] { start_from(node + 1); });
    return;
  }
}

void AgentStarts::start_one(std::uint32_t node) {
  Agents::Node& started = agents_[node];
  const std::string& host = started.host;
  AgentLink::Callbacks callbacks{
      .on_hello = [this, node](const AgentHello& hello) { on_hello(node, hello); },
      .on_frame = [this, node](const auto& frame) { callbacks_.on_frame(node, frame); },
      .on_lost = [this, node](const std::string& reason) { callbacks_.on_lost(node, reason); },
      .on_error_line = [this,
                        &host](const std::string& line) { job_.say("[" + host + "] " + line); },
      .on_note = [this, &host](const std::string& note) { tell_not_run(host, note); }};
  agents_.set_link_aside(node);
  ++started.starts;
  EventLog::Members members = {{"host", host}, {"attempt", started.starts}};
  if (started.parent) members["through"] = agents_[*started.parent].host;
  job_.events.record("agent_starting", members);
  try {
    // Another name than that of the one before, which may not be gone.
    if (job_.options.container.is_on() && started.starts > 1) plan_start(node);
    std::unique_ptr<AgentProcess> process;
    if (started.parent) {
      process = agents_.tunnels().open(*started.parent, started.start);
    } else {
      process =
          std::make_unique<LocalAgentProcess>(job_.io, started.start, job_.descriptors.before());
    }
    started.link = std::make_unique<AgentLink>(
        job_.io, started.start, std::move(process), std::move(callbacks),
        AgentLimits{job_.options.lease.value_or(kDefaultLease),
                    job_.options.start_timeout.value_or(kLoginLimit),
                    job_.options.start_timeout.value_or(kContainerLimit)});
  } catch (const SystemError& error) {
    const std::string cause =
        "cannot start the agent on host " + host + ": " + error.what() +
        (error.native_code() == EMFILE
             ? "; each host that is started from here takes three open files: raise "
               "the limit (ulimit -n), or let hosts start each other by --tree auto"
         : error.native_code() == ENOENT
             ? "; install it (ssh is in openssh-client), or name another remote shell by --rsh"
             : "");
    callbacks_.on_not_run ? callbacks_.on_not_run(node, cause) : callbacks_.fail(cause);
  }
}

void AgentStarts::on_hello(std::uint32_t node, const AgentHello& hello) {
  job_.events.record("agent_up",
                     {{"host", agents_[node].host}, {"pid", hello.pid}, {"cores", hello.cores}});
  patience_.on_up(node);
  for (const std::uint32_t other : agents_[node].children) {
    if (!is_over_) start_one(other);
  }
  callbacks_.on_hello();
}

bool AgentStarts::try_again(std::uint32_t node) {
  return !is_over_ && (start_later(node) || start_from_here(node) || keep_trying(node));
}

bool AgentStarts::try_again_lost(std::uint32_t node, const std::string& reason) {
  if (is_over_ || agents_[node].link->start().is_local()) return false;
  if (!patience_.keep_trying(node, "lost host " + agents_[node].host + ": " + reason)) return false;
  if (agents_[node].parent) agents_.take_from_parent(node);
  agents_.lose_children_of(node);
  take_children(node);
  return true;
}

// What is wrong with a host that was reached stays so.
bool AgentStarts::keep_trying(std::uint32_t node) {
  const StartFailure failure = failure_of(node);
  if (!is_out_of_reach(failure) || !patience_.keep_trying(node, explain(failure))) return false;
  take_children(node);
  return true;
}

// Hosts behind one that may not come for long.
void AgentStarts::take_children(std::uint32_t node) {
  const std::vector<std::uint32_t> children = agents_[node].children;
  for (const std::uint32_t other : children) {
    agents_.take_from_parent(other);
    // One that was on its way through that host is lost by itself.
    if (agents_[other].link) continue;
    asio::post(job_.io, [this, other] {
      if (!is_over_ && !agents_[other].link) start_one(other);
    });
  }
}

void AgentStarts::give_up_waiting(const std::map<std::uint32_t, std::string>& why) {
  if (is_over_) return;
  may_pass_ = true;
  for (const auto& [node, reason] : why) {
    if (agents_[node].link) agents_[node].link->kill_process();
    failures_.emplace(node, reason);
  }
  report();
}

std::vector<std::uint32_t> AgentStarts::failed() const {
  std::vector<std::uint32_t> nodes;
  for (const auto& [node, failure] : failures_) nodes.push_back(node);
  return nodes;
}

// sshd refuses logins when many come at once (MaxStartups) and does not say so; later ones succeed,
// if not all come again at the same time.
bool AgentStarts::start_later(std::uint32_t node) {
  const int starts = agents_[node].starts;
  if (starts >= worthwhile_tries(agents_[node].link->error_output())) return false;
  const int longest = 500 << std::min(starts, 4);
  const auto share = static_cast<unsigned char>(internal::random_bytes(1).front());
  auto timer =
      std::make_shared<asio::steady_timer>(job_.io, milliseconds(200 + longest * share / 256));
  timer->async_wait([this, timer, node](const asio::error_code& error) {
    if (!error && !is_over_ && !agents_[node].is_retired) start_one(node);
  });
  return true;
}

// Users set up keys from here to every host; from host to host is a hope.
bool AgentStarts::start_from_here(std::uint32_t node) {
  const AgentLink& link = *agents_[node].link;
  if (!agents_[node].parent || link.error_output().find(kBootstrapSays) != std::string::npos) {
    return false;  // the host was reached, and is what is wrong
  }
  if (!std::exchange(has_told_detour_, true)) {
    job_.say(
        "launcher: host " + agents_[node].host + " cannot be reached from host " +
        agents_[*agents_[node].parent].host + " (" + last_word(link) +
        "); it is started from here, and so is every other host with which that happens. To start "
        "many hosts faster, let the hosts log in to each other (keys, or --rsh-args -A, and their "
        "host keys known); --tree no does not try");
  }
  agents_.take_from_parent(node);
  asio::post(job_.io, [this, node] {
    if (!is_over_) start_one(node);
  });
  return true;
}

// Once: hosts of a cluster are alike.
void AgentStarts::tell_not_run(const std::string& host, std::string note) {
  if (std::exchange(has_told_not_run_, true)) return;
  job_.say("launcher: host " + host + ": " + without_controls(std::move(note)) +
           "; the launcher has sent itself there instead. To have that one run, let nobody "
           "but root or yourself own it and the folders it lies in, and nobody else write "
           "there (chown, chmod go-w)");
}

// Hosts that are down mostly fail together; whoever has to mend them wants to know them all.
void AgentStarts::give_up(std::uint32_t node) {
  constexpr milliseconds kForMore{1000};
  if (is_over_) return;
  may_pass_ = may_pass_ || is_out_of_reach(failure_of(node));
  failures_.emplace(node, explain_failure(node));
  if (!is_any_awaited()) return report();
  if (failures_.size() > 1) return;
  report_timer_.expires_after(kForMore);
  report_timer_.async_wait([this](const asio::error_code& error) {
    if (!error) report();
  });
}

std::string AgentStarts::explain_failure(std::uint32_t node) const {
  return explain(failure_of(node));
}

StartFailure AgentStarts::failure_of(std::uint32_t node) const {
  const AgentLink& link = *agents_[node].link;
  StartFailure failure{
      agents_[node].asked,
      link.start().is_local() ? std::vector<std::string>() : remote_shell_of(job_.options),
      launcher_path_,
      link.exit_text(),
      link.exit_code(),
      link.error_output(),
      ""};
  const std::string& host = agents_[node].host;
  if (link.has_reached_engine()) {
    failure.container = &job_.options.container;
  } else if (job_.options.hosts == host) {
    failure.hint = "if a file was meant: there is no file " + host;
  }
  return failure;
}

// Between two tries as well.
bool AgentStarts::is_any_awaited() const {
  for (std::uint32_t node = 0; node < agents_.size(); ++node) {
    const Agents::Node& agent = agents_[node];
    const bool is_up = agent.link && agent.link->hello() && !agent.link->is_lost();
    if (!agent.parent && !is_up && !failures_.contains(node)) return true;
  }
  return false;
}

// The first one with all that was printed, of the others a sentence each.
void AgentStarts::report() {
  constexpr std::size_t kMost = 16;
  report_timer_.cancel();
  std::string text;
  std::size_t told = 0;
  for (const auto& [node, failure] : failures_) {
    if (++told > kMost) break;
    text += told == 1 ? failure : "\nlauncher: " + failure.substr(0, failure.find('\n'));
  }
  if (failures_.size() > kMost) {
    text += "\nlauncher: and " + std::to_string(failures_.size() - kMost) + " more hosts";
  }
  callbacks_.fail(text);
}

}  // namespace chainmail::launch
