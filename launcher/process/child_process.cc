// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/process/child_process.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>

#include "base/error.h"
#include "launcher/process/fork_exec.h"

namespace chainmail::launch {

RaisedFileLimit::RaisedFileLimit() {
  constexpr rlim_t kMany = 65536;
  if (getrlimit(RLIMIT_NOFILE, &before_) != 0) throw system_error("cannot ask for a limit");
  // Both limits, as root may; else as far as the hard one goes. Without it small jobs run as well.
  rlimit wanted{std::max(before_.rlim_cur, kMany), std::max(before_.rlim_max, kMany)};
  if (setrlimit(RLIMIT_NOFILE, &wanted) == 0) return;
  wanted = {std::max(before_.rlim_cur, std::min(before_.rlim_max, kMany)), before_.rlim_max};
  (void)setrlimit(RLIMIT_NOFILE, &wanted);
}

RaisedFileLimit::~RaisedFileLimit() { (void)setrlimit(RLIMIT_NOFILE, &before_); }

ChildProcess start_child(const std::vector<std::string>& arguments, const rlimit* descriptors,
                         const std::vector<std::string>* environment) {
  Pipe input;
  Pipe output;
  Pipe error;
  Pipe report;
  std::vector<std::string> words = arguments;
  const std::vector<char*> pointers = pointers_to(words);
  std::vector<std::string> variables;
  if (environment != nullptr) variables = *environment;
  const std::vector<char*> variable_pointers = pointers_to(variables);
  char* const* const given = environment == nullptr ? environ : variable_pointers.data();
  std::vector<int> ignored(std::begin(kPassedSignals), std::end(kPassedSignals));
  ignored.push_back(SIGINT);
  const pid_t parent = getpid();
  const Forked child = fork_to_exec([&] {
    // A remote shell that still connects would go on for its own time limit. An agent is not ended
    // by this signal: it sees the end of its input.
    // Grid Engine and Slurm send the signals that are passed on to remote shells as well, which
    // would end the whole job. An agent handles them.
    become_child_of(parent, SIGTERM, ignored);
    if (descriptors != nullptr) (void)setrlimit(RLIMIT_NOFILE, descriptors);
    if (dup2(input.read_end.get(), STDIN_FILENO) >= 0 &&
        dup2(output.write_end.get(), STDOUT_FILENO) >= 0 &&
        dup2(error.write_end.get(), STDERR_FILENO) >= 0) {
      execvpe(pointers[0], pointers.data(), given);
    }
    report_and_exit(report.write_end.get(), errno);
  });
  int failure = child.error;
  if (child.pid > 0) {
    failure = wait_for_exec(report);
    if (failure != 0) waitpid(child.pid, nullptr, 0);
  }
  if (failure != 0) {
    throw SystemError("cannot run " + arguments.front() + ": " + std::strerror(failure), failure);
  }
  return {child.pid, std::move(input.write_end), std::move(output.read_end),
          std::move(error.read_end)};
}

}  // namespace chainmail::launch
