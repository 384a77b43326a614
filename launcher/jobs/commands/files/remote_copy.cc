// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/jobs/commands/files/remote_copy.h"

#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <thread>
#include <utility>
#include <vector>

#include "base/deadline.h"
#include "base/error.h"
#include "base/unique_fd.h"
#include "launcher/jobs/commands/files/growing_file.h"
#include "launcher/process/child_process.h"
#include "launcher/process/fork_exec.h"
#include "launcher/process/signals.h"
#include "launcher/remote/bootstrap.h"
#include "launcher/remote/rsh_command.h"

namespace chainmail::launch {
namespace {

namespace fs = std::filesystem;
using internal::Deadline;
using internal::UniqueFd;
using std::chrono::milliseconds;

constexpr milliseconds kMostSilence{60'000};
constexpr milliseconds kLookAtFlag{200};

// A program that is killed at the end of the scope, if it has not ended.
class HelperProcess {
 public:
  HelperProcess(const std::vector<std::string>& words, int input, int output, int errors)
      : name_(words.front()) {
    SpawnRequest request;
    request.arguments = words;
    request.descriptors = {input, output, errors};
    request.ignored_signals = {SIGINT};
    pid_ = spawn(request);
  }
  ~HelperProcess() {
    if (pid_ <= 0) return;
    kill(-pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  HelperProcess(const HelperProcess&) = delete;
  HelperProcess& operator=(const HelperProcess&) = delete;

  /// How it failed, for people; empty: it did not.
  [[nodiscard]] std::string finish() {
    const Deadline deadline = Deadline::after(kMostSilence);
    int status = 0;
    while (waitpid(pid_, &status, WNOHANG) == 0) {
      if (deadline.has_passed()) return name_ + " does not end";
      std::this_thread::sleep_for(milliseconds(5));
    }
    pid_ = -1;
    const bool by_signal = WIFSIGNALED(status);
    const int value = by_signal ? WTERMSIG(status) : WEXITSTATUS(status);
    return by_signal || value != 0 ? name_ + " " + end_text(by_signal, value) : "";
  }

 private:
  std::string name_;
  pid_t pid_ = -1;
};

// The end of what both have said.
std::string last_words(int errors) {
  constexpr off_t kMost = 2000;
  struct stat status {};
  if (fstat(errors, &status) != 0) return "";
  std::string text(static_cast<std::size_t>(std::min(status.st_size, kMost)), '\0');
  const ssize_t count =
      ::pread(errors, text.data(), text.size(), status.st_size - static_cast<off_t>(text.size()));
  text.resize(count > 0 ? static_cast<std::size_t>(count) : 0);
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text.empty() ? "" : ": " + text;
}

void pass_on(int from, int to, const std::string& host, const IsInterrupted& is_interrupted) {
  std::string block(std::size_t{64} << 10, '\0');
  Deadline silence = Deadline::after(kMostSilence);
  while (true) {
    if (is_interrupted()) throw SystemError("interrupted: nothing was copied", EINTR);
    pollfd readable{from, POLLIN, 0};
    if (::poll(&readable, 1, static_cast<int>(kLookAtFlag.count())) <= 0) {
      if (!silence.has_passed()) continue;
      throw SystemError(host + " has sent nothing for a minute", ETIMEDOUT);
    }
    const ssize_t count = ::read(from, block.data(), block.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw system_error("cannot read what " + host + " sends");
    if (count == 0) return;
    write_out(to, {block.data(), static_cast<std::size_t>(count)}, "what tar reads");
    silence = Deadline::after(kMostSilence);
  }
}

}  // namespace

std::string sending_script(const std::string& folder, const std::string& path) {
  return "{\nfolder=" + shell_quoted(folder) + "\npath=" + shell_quoted(path) + R"(
root=$(cd "$folder" && pwd -P) || exit 3
full=$(readlink -f "$root/$path") && [ -e "$full" ] || {
  echo "there is no '$path' in $folder" >&2; exit 3; }
case $full/ in
  "$root"/*) ;;
  *) echo "'$path' leads out of $folder" >&2; exit 3 ;;
esac
cd "${full%/*}/" && exec tar -cf - "./${full##*/}"
exit 3
}
)";
}

std::string copy_from_host(const std::string& host, const std::string& folder,
                           const std::string& path, const std::string& into,
                           const IsInterrupted& is_interrupted) {
  Host where;
  where.name = host;
  const std::vector<std::string> shell = remote_shell_command({"ssh"}, where);
  // A file: nobody waits for somebody to read it.
  const UniqueFd errors(memfd_create("errors", MFD_CLOEXEC));
  if (!errors.is_open()) throw system_error("cannot make a file in memory");
  const std::string script = sending_script(folder, path);
  Pipe to_shell;
  Pipe from_shell;
  Pipe to_tar;
  const auto before = signal(SIGPIPE, SIG_IGN);
  std::string failure;
  try {
    HelperProcess ssh(shell, to_shell.read_end.get(), from_shell.write_end.get(), errors.get());
    HelperProcess tar({"tar", "-xpof", "-", "-C", into}, to_tar.read_end.get(), errors.get(),
                      errors.get());
    to_shell.read_end.reset();
    from_shell.write_end.reset();
    to_tar.read_end.reset();
    write_out(to_shell.write_end.get(), script, "what " + host + " reads");
    to_shell.write_end.reset();
    pass_on(from_shell.read_end.get(), to_tar.write_end.get(), host, is_interrupted);
    to_tar.write_end.reset();
    failure = ssh.finish();
    const std::string failure_here = tar.finish();
    if (failure.empty()) failure = failure_here;
  } catch (const SystemError& error) {
    signal(SIGPIPE, before);
    throw SystemError(error.what() + last_words(errors.get()), error.native_code());
  }
  signal(SIGPIPE, before);
  if (!failure.empty()) {
    throw SystemError("cannot copy from " + host + ": " + failure + last_words(errors.get()), EIO);
  }
  std::error_code error;
  const fs::directory_iterator first(into, error);
  if (!error && first != fs::directory_iterator()) return first->path().filename().string();
  throw SystemError(host + " has sent nothing" + last_words(errors.get()), EIO);
}

}  // namespace chainmail::launch
