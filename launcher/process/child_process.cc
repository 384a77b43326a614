// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/process/child_process.h"

#include <fcntl.h>
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

pid_t spawn(const SpawnRequest& request) {
  Pipe report;
  std::vector<std::string> words = request.arguments;
  const std::vector<char*> arguments = pointers_to(words);
  std::vector<std::string> variables;
  if (request.environment != nullptr) variables = *request.environment;
  const std::vector<char*> own_variables = pointers_to(variables);
  char* const* const environment = request.environment == nullptr ? environ : own_variables.data();
  std::vector<int> descriptors = request.descriptors;
  const int first_free = static_cast<int>(descriptors.size());
  const pid_t parent = getpid();
  const Forked child = fork_to_exec([&] {
    become_child_of(parent, request.death_signal, request.ignored_signals);
    const int told = fcntl(report.write_end.get(), F_DUPFD_CLOEXEC, first_free);
    if (told < 0) report_and_exit(report.write_end.get(), errno);
    // Above the numbers that are about to be taken.
    for (int& fd : descriptors) {
      fd = fcntl(fd, F_DUPFD_CLOEXEC, first_free);
      if (fd < 0) report_and_exit(told, errno);
    }
    for (std::size_t i = 0; i < descriptors.size(); ++i) {
      if (dup2(descriptors[i], static_cast<int>(i)) < 0) report_and_exit(told, errno);
    }
    if (request.file_limit != nullptr) (void)setrlimit(RLIMIT_NOFILE, request.file_limit);
    execvpe(arguments[0], arguments.data(), environment);
    report_and_exit(told, errno);
  });
  int failure = child.error;
  if (child.pid > 0) {
    failure = wait_for_exec(report);
    if (failure != 0) waitpid(child.pid, nullptr, 0);
  }
  if (failure != 0) {
    throw SystemError("cannot run " + words.front() + ": " + std::strerror(failure), failure);
  }
  return child.pid;
}

ChildProcess start_child(const std::vector<std::string>& arguments, const rlimit* file_limit,
                         const std::vector<std::string>* environment) {
  Pipe input;
  Pipe output;
  Pipe error;
  // Grid Engine and Slurm send the signals that are passed on to remote shells as well, which would
  // end the whole job. An agent handles them.
  std::vector<int> ignored(std::begin(kPassedSignals), std::end(kPassedSignals));
  ignored.push_back(SIGINT);
  // A remote shell that still connects would go on for its own time limit. An agent is not ended by
  // SIGTERM: it sees the end of its input.
  const pid_t pid = spawn({arguments,
                           environment,
                           {input.read_end.get(), output.write_end.get(), error.write_end.get()},
                           file_limit,
                           SIGTERM,
                           std::move(ignored)});
  return {pid, std::move(input.write_end), std::move(output.read_end), std::move(error.read_end)};
}

}  // namespace chainmail::launch
