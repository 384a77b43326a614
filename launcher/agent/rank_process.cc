// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/agent/rank_process.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <memory>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "launcher/pmi1/pmi1_server.h"
#include "launcher/process/children.h"
#include "launcher/process/fork_exec.h"

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

Pair make_pipe() {
  Pipe pipe;
  return {std::move(pipe.read_end), std::move(pipe.write_end)};
}

// Where no pty can be had (no devpts, limit reached) a pipe does, at the price of late lines.
Pair make_output(const WindowSize& window) {
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
  set_window(slave.get(), window);
  return {std::move(master), std::move(slave)};
}

// Here the rank reads.
Pair make_input(bool has_input) {
  if (!has_input) {
    UniqueFd null(open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (!null.is_open()) throw system_error("cannot open /dev/null");
    return {UniqueFd(), std::move(null)};
  }
  Pipe pipe;
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

struct FoundProgram {
  std::string file;
  int error = 0;
};

// The file that exec would find in the rank's own PATH; exec itself would look into this process's.
// `on_look`: before each file, since its file system may never answer.
FoundProgram find_program(const std::string& name, const Environment& environment,
                          const std::function<void(const std::string& file)>& on_look) {
  if (name.find('/') != std::string::npos) return {name, 0};
  const auto path = environment.find("PATH");
  int why = ENOENT;
  for (std::string& file :
       files_in_path(path != environment.end() ? path->second : "/bin:/usr/bin", name)) {
    on_look(file);
    errno = 0;
    struct stat status {};
    if (stat(file.c_str(), &status) == 0 && S_ISREG(status.st_mode) &&
        access(file.c_str(), X_OK) == 0) {
      return {std::move(file), 0};
    }
    if (errno == EACCES) why = EACCES;
  }
  return {{}, why};
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
  const RankRequest& request;
  char* const* arguments;
  char* const* environment;
};

void tell(int report_fd, StartStage stage, int error, std::string_view path = {}) {
  const std::string news = StartReport::encode(stage, error, path);
  [[maybe_unused]] const auto written = write(report_fd, news.data(), news.size());
}

[[noreturn]] void fail(int report_fd, StartStage stage, int error) {
  tell(report_fd, stage, error);
  _exit(127);
}

// Every descriptor that the plan needs moves above the numbers that are about to be taken. Where
// the limit on open files forbids those as well, the kernel says EINVAL.
int moved_up(int fd, int report_fd) {
  const int copy = fcntl(fd, F_DUPFD_CLOEXEC, kFirstParkedFd);
  if (copy < 0) fail(report_fd, StartStage::kSpawn, errno == EINVAL ? EMFILE : errno);
  return copy;
}

// False where the kernel has no close_range (before 5.9), or a sandbox does not know it.
bool close_ranges_but(std::initializer_list<int> kept) {
  unsigned first = STDERR_FILENO + 1;
  for (const int fd : kept) {  // in ascending order
    if (fd < 0) continue;
    const auto number = static_cast<unsigned>(fd);
    if (first < number && syscall(SYS_close_range, first, number - 1, 0) != 0) return false;
    first = number + 1;
  }
  return syscall(SYS_close_range, first, ~0U, 0) == 0;
}

// What the launcher's caller had open, and what the agent has for other ranks, which must not stay
// open for as long as this start takes.
void close_all_but(std::initializer_list<int> kept) {
  if (close_ranges_but(kept)) return;
  std::vector<int> open;
  std::error_code error;  // without /proc nothing of the launcher runs
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", error)) {
    open.push_back(std::atoi(entry.path().filename().c_str()));
  }
  for (const int fd : open) {
    if (fd > STDERR_FILENO && std::find(kept.begin(), kept.end(), fd) == kept.end()) close(fd);
  }
}

// A copy of an agent with one thread: it may do what it likes, and wait for as long as it has to.
[[noreturn]] void run_child(ChildPlan plan) {
  const auto& ignored = plan.request.ignored_signals;
  become_child_of(plan.parent, SIGKILL, std::vector<int>(ignored.begin(), ignored.end()));
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
    fail(plan.report, StartStage::kSpawn, errno);
  }
  static_assert(kJobFd < kPmi1Fd && kPmi1Fd < kFirstParkedFd);
  close_all_but({kJobFd, pmi < 0 ? -1 : kPmi1Fd, plan.report});
  // Not earlier: most numbers above lie beyond it.
  (void)setrlimit(RLIMIT_NOFILE, &plan.request.descriptors);
  tell(plan.report, StartStage::kFolder, 0);
  if (chdir(plan.request.working_directory.c_str()) != 0) {
    fail(plan.report, StartStage::kFolder, errno);
  }
  const FoundProgram program =
      find_program(plan.request.program.front(), plan.request.environment,
                   [&](const auto& file) { tell(plan.report, StartStage::kSearch, 0, file); });
  if (program.error != 0) fail(plan.report, StartStage::kExec, program.error);
  tell(plan.report, StartStage::kExec, 0, program.file);
  execvpe(program.file.c_str(), plan.arguments, plan.environment);
  fail(plan.report, StartStage::kExec, errno);
}

}  // namespace

void StartReport::append(std::span<const std::byte> bytes) {
  unread_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  std::size_t used = 0;
  for (News news; unread_.size() - used >= sizeof news; used += sizeof news + news.path_bytes) {
    std::memcpy(&news, unread_.data() + used, sizeof news);
    if (unread_.size() - used - sizeof news < news.path_bytes) break;
    news_ = news;
    path_ = unread_.substr(used + sizeof news, news.path_bytes);
  }
  unread_.erase(0, used);
}

std::string StartReport::encode(StartStage stage, int error, std::string_view path) {
  constexpr std::size_t kMostPathBytes = 1024;
  path = path.substr(0, kMostPathBytes);
  const News news{stage, error, static_cast<std::uint32_t>(path.size())};
  std::string bytes(reinterpret_cast<const char*>(&news), sizeof news);
  return bytes.append(path);
}

void set_window(int terminal, const WindowSize& size) noexcept {
  if (size.columns == 0) return;
  winsize window{};
  window.ws_row = static_cast<unsigned short>(size.rows);
  window.ws_col = static_cast<unsigned short>(size.columns);
  (void)ioctl(terminal, TIOCSWINSZ, &window);
}

// The kernel marks what has forked and not called exec since, until it is reaped.
bool has_never_run_program(pid_t pid) {
  constexpr unsigned long kForkedNoExec = 0x40;  // PF_FORKNOEXEC
  return (flags_in(stat_fields(std::to_string(pid))) & kForkedNoExec) != 0;
}

RankHandles spawn_rank(const RankRequest& request) {
  Pair input = make_input(request.has_input);
  Pair output = make_output(request.window);
  Pair error = make_pipe();
  SocketPair job(SOCK_STREAM);
  UniqueFd job_writer(fcntl(job.ours.get(), F_DUPFD_CLOEXEC, 3));
  if (!job_writer.is_open()) throw system_error("cannot copy a descriptor");
  Pipe report;
  std::vector<std::string> words = request.program;
  std::vector<std::string> variables = entries_of(request.environment);
  variables.push_back("CHAINMAIL_JOB_FD=" + std::to_string(kJobFd));
  const std::vector<char*> arguments = pointers_to(words);
  const std::vector<char*> environment = pointers_to(variables);
  const CpuSet cpus(request.cpus);

  const pid_t parent = getpid();
  const auto run = [&] {
    run_child({parent, input.theirs.get(), output.theirs.get(), error.theirs.get(),
               job.theirs.get(), request.pmi.get(), report.write_end.get(), cpus, request,
               arguments.data(), environment.data()});
  };
  const Forked child = fork_beside(run, request.group);
  if (child.pid < 0) throw SystemError("cannot fork", child.error);
  return {child.pid,
          std::move(output.ours),
          std::move(error.ours),
          std::move(job.ours),
          std::move(job_writer),
          std::move(input.ours),
          std::move(report.read_end)};
}

}  // namespace chainmail::launch
