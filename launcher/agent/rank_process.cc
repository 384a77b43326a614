// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/agent/rank_process.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "base/error.h"
#include "launcher/fork_exec.h"
#include "launcher/pmi1/pmi1_server.h"

namespace chainmail::launch {
namespace {

using internal::UniqueFd;

// The number under which a rank finds its socket: above what wrapper scripts take for themselves,
// and the lowest number that the child parks descriptors at while it arranges them.
constexpr int kJobFd = 60;
constexpr int kFirstParkedFd = 100;

struct Pair {
  UniqueFd ours;
  UniqueFd theirs;
};

Pipe new_pipe() {
  try {
    return Pipe();
  } catch (const SystemError& failure) {
    throw SpawnError("spawn", failure.native_code());
  }
}

Pair make_pipe() {
  Pipe pipe = new_pipe();
  return {std::move(pipe.read_end), std::move(pipe.write_end)};
}

Pair make_socket_pair() {
  std::array<int, 2> ends{};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    throw SpawnError("spawn", errno);
  }
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

// Where no pty can be had (no devpts, limit reached) a pipe does, at the price of late lines.
Pair make_output() {
  UniqueFd master(posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
  if (!master.is_open() || grantpt(master.get()) != 0 || unlockpt(master.get()) != 0) {
    return make_pipe();
  }
  std::array<char, 64> name{};
  if (ptsname_r(master.get(), name.data(), name.size()) != 0) return make_pipe();
  UniqueFd slave(open(name.data(), O_RDWR | O_NOCTTY | O_CLOEXEC));
  termios modes{};
  if (!slave.is_open() || tcgetattr(slave.get(), &modes) != 0) return make_pipe();
  cfmakeraw(&modes);
  if (tcsetattr(slave.get(), TCSANOW, &modes) != 0) return make_pipe();
  return {std::move(master), std::move(slave)};
}

// Here the rank reads.
Pair make_input(bool has_input) {
  if (!has_input) {
    UniqueFd null(open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (!null.is_open()) throw SpawnError("spawn", errno);
    return {UniqueFd(), std::move(null)};
  }
  Pipe pipe = new_pipe();
  return {std::move(pipe.write_end), std::move(pipe.read_end)};
}

// The processors that a rank is bound to, made before the fork.
class CpuSet {
 public:
  explicit CpuSet(const std::vector<int>& cpus) {
    if (cpus.empty()) return;
    const auto count = static_cast<std::size_t>(*std::max_element(cpus.begin(), cpus.end())) + 1;
    set_.reset(CPU_ALLOC(count));
    bytes_ = CPU_ALLOC_SIZE(count);
    CPU_ZERO_S(bytes_, set_.get());
    for (const int cpu : cpus) CPU_SET_S(static_cast<std::size_t>(cpu), bytes_, set_.get());
  }
  void bind_this_process() const noexcept {
    // A cpu that went away meanwhile is no reason not to run.
    if (set_) (void)sched_setaffinity(0, bytes_, set_.get());
  }

 private:
  struct Deleter {
    void operator()(cpu_set_t* set) const noexcept { CPU_FREE(set); }
  };
  std::unique_ptr<cpu_set_t, Deleter> set_;
  std::size_t bytes_ = 0;
};

// The file that exec would find in the rank's own PATH; exec itself would look into this process's.
// Throws SpawnError.
std::string find_program(const std::string& name,
                         const std::map<std::string, std::string>& environment) {
  if (name.find('/') != std::string::npos) return name;
  const auto variable = environment.find("PATH");
  const std::string path = variable != environment.end() ? variable->second : "/bin:/usr/bin";
  int why = ENOENT;
  for (std::size_t at = 0; at <= path.size();) {
    const std::size_t end = std::min(path.find(':', at), path.size());
    const std::string folder = end == at ? "." : path.substr(at, end - at);
    std::string file = folder + "/" + name;
    errno = 0;
    struct stat status {};
    if (stat(file.c_str(), &status) == 0 && S_ISREG(status.st_mode) &&
        access(file.c_str(), X_OK) == 0) {
      return file;
    }
    if (errno == EACCES) why = EACCES;
    at = end + 1;
  }
  throw SpawnError("exec", why);
}

struct ChildPlan {
  pid_t parent;
  int input;
  int output;
  int error;
  int job;
  int pmi;  // -1: none
  int report;
  const CpuSet& cpus;
  const rlimit& descriptors;
  const char* program;
  char* const* arguments;
  char* const* environment;
};

// Every descriptor that the plan needs moves above the numbers that are about to be taken.
int moved_up(int fd, int report_fd) {
  const int copy = fcntl(fd, F_DUPFD_CLOEXEC, kFirstParkedFd);
  if (copy < 0) report_and_exit(report_fd, errno);
  return copy;
}

[[noreturn]] void run_child(ChildPlan plan) {
  become_child_of(plan.parent, SIGKILL);
  plan.cpus.bind_this_process();
  plan.report = moved_up(plan.report, plan.report);
  const int output = moved_up(plan.output, plan.report);
  const int error = moved_up(plan.error, plan.report);
  const int job = moved_up(plan.job, plan.report);
  const int pmi = plan.pmi < 0 ? -1 : moved_up(plan.pmi, plan.report);
  const int input = moved_up(plan.input, plan.report);
  if (dup2(input, STDIN_FILENO) < 0 || dup2(output, STDOUT_FILENO) < 0 ||
      dup2(error, STDERR_FILENO) < 0 || dup2(job, kJobFd) < 0 ||
      (pmi >= 0 && dup2(pmi, kPmi1Fd) < 0)) {
    report_and_exit(plan.report, errno);
  }
  // Not earlier: most numbers above lie beyond it.
  (void)setrlimit(RLIMIT_NOFILE, &plan.descriptors);
  execvpe(plan.program, plan.arguments, plan.environment);
  report_and_exit(plan.report, errno);
}

}  // namespace

SpawnError::SpawnError(std::string stage, int error)
    : std::runtime_error(stage + ": " + std::strerror(error)),
      stage_(std::move(stage)),
      error_(error) {}

RankHandles spawn_rank(const RankRequest& request) {
  Pair input = make_input(request.has_input);
  Pair output = make_output();
  Pair error = make_pipe();
  Pair job = make_socket_pair();
  Pipe report = new_pipe();
  std::vector<std::string> words = request.program;
  std::vector<std::string> variables;
  for (const auto& [name, value] : request.environment) variables.push_back(name + "=" + value);
  variables.push_back("CHAINMAIL_JOB_FD=" + std::to_string(kJobFd));
  const std::vector<char*> arguments = pointers_to(words);
  const std::vector<char*> environment = pointers_to(variables);
  const std::string program = find_program(words.front(), request.environment);
  const CpuSet cpus(request.cpus);

  const pid_t parent = getpid();
  const Forked child = fork_to_exec([&] {
    run_child({parent, input.theirs.get(), output.theirs.get(), error.theirs.get(),
               job.theirs.get(), request.pmi.get(), report.write_end.get(), cpus,
               request.descriptors, program.c_str(), arguments.data(), environment.data()});
  });
  if (child.pid < 0) throw SpawnError("spawn", child.error);
  if (const int exec_error = wait_for_exec(report); exec_error != 0) {
    waitpid(child.pid, nullptr, 0);
    throw SpawnError("exec", exec_error);
  }
  return {child.pid, std::move(output.ours), std::move(error.ours), std::move(job.ours),
          std::move(input.ours)};
}

}  // namespace chainmail::launch
