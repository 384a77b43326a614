// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/controller/signal_relay.h"

#include <signal.h>

#include <algorithm>
#include <cerrno>
#include <string>

#include "base/error.h"
#include "launcher/process/children.h"

namespace chainmail::launch {

SignalRelay::SignalRelay(JobState& job, Shutdown& shutdown, std::vector<int> ignored,
                         std::function<bool(std::uint32_t node)> takes_leave)
    : job_(job),
      shutdown_(shutdown),
      ignored_(std::move(ignored)),
      takes_leave_(std::move(takes_leave)),
      signals_(job.io) {}

void SignalRelay::start() {
  for (const int number : {SIGCHLD, SIGTERM, SIGTSTP}) signals_.add(number);
  // Under nohup the job is meant to outlive the terminal; in the background of a script, Ctrl-C;
  // under `trap '' USR1`, a scheduler's warning.
  for (const int number : {SIGHUP, SIGINT, SIGUSR1, SIGUSR2, SIGWINCH}) {
    if (!ignores(number)) signals_.add(number);
  }
  // Who runs one world after the other blocks those that end the job in between, so that none is
  // lost and none ends this process.
  sigset_t ending;
  sigemptyset(&ending);
  for (const int number : {SIGTERM, SIGHUP, SIGINT}) sigaddset(&ending, number);
  pthread_sigmask(SIG_UNBLOCK, &ending, &mask_before_);
  wait();
}

void SignalRelay::stop() {
  pthread_sigmask(SIG_SETMASK, &mask_before_, nullptr);
  // Of signals that are passed on the launcher dies at no moment: Asio leaves them with their
  // default.
  const SignalsBlocked blocked;
  signals_.clear();
  ignore_passed_signals();
}

void SignalRelay::on_started() noexcept {
  // What came before reached nobody; the same signal may yet come to agents that have ranks.
  own_.clear();
  agents_.clear();
  has_ranks_ = true;
}

void SignalRelay::wait() {
  signals_.async_wait([this](const asio::error_code& error, int number) {
    if (error) return;
    if (number == SIGCHLD) {
      shutdown_.reap_agents();
      // Of commands that look for hosts, which come again and again for as long as the job lives.
      if (job_.options.elastic.is_on()) reap_orphans();
    } else if (number == SIGTSTP) {
      // Stopped, the launcher would be taken for dead by its agents.
      job_.say("launcher: a job cannot be suspended; the signal is ignored");
    } else if (is_passed_signal(number)) {
      if (!agents_.has(number)) {
        own_.add(number);
        spread(number, {}, false);
      }
    } else {
      shutdown_.interrupt(number);
    }
    wait();
  });
}

bool SignalRelay::ignores(int number) const {
  return std::find(ignored_.begin(), ignored_.end(), number) != ignored_.end();
}

// A scheduler, or somebody on that host, wants the job to end, or tells it something.
void SignalRelay::on_frame(std::uint32_t node, const internal::Frame& frame) {
  internal::BodyReader body(frame.body);
  const auto number = static_cast<int>(body.u32());
  const bool has_passed_it = body.u8() != 0;
  if (ignores(number)) return;
  if (is_passed_signal(number)) {
    // Slurm signals a step's tasks, which are agents, or some of them; all ranks are meant.
    if (own_.has(number) || agents_.has(number)) return;
    agents_.add(number);
    return spread(number, node, has_passed_it);
  }
  if (number != SIGTERM && number != SIGINT && number != SIGHUP) {
    throw SystemError("agent protocol: signal " + std::to_string(number) + " is not for a job",
                      EPROTO);
  }
  if (number == SIGTERM && takes_leave_ && takes_leave_(node)) return;
  shutdown_.interrupt_from(node, number);
}

// `origin`: the node whose agent has told of it.
void SignalRelay::spread(int number, std::optional<std::uint32_t> origin, bool has_passed_it) {
  EventLog::Members members = {{"signal", number}};
  if (origin) members["host"] = job_.agents[*origin].host;
  job_.events.record("signal", members);
  if (!has_ranks_) {
    if (number != SIGWINCH) {
      job_.say("launcher: " + signal_name(number) +
               " came before there were ranks; nobody gets it");
    }
    return;
  }
  const WindowSize window = own_window_size();
  for (std::uint32_t node = 0; node < job_.agents.size(); ++node) {
    if (has_passed_it && node == origin) continue;
    job_.agents.send(node, AgentMessage::kPassSignal,
                     internal::BodyWriter()
                         .u32(static_cast<std::uint32_t>(number))
                         .u32(window.rows)
                         .u32(window.columns)
                         .take());
  }
}

}  // namespace chainmail::launch
