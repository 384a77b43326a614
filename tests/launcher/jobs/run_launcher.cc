// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "tests/launcher/jobs/run_launcher.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <thread>

#include "base/deadline.h"
#include "tests/support/patience.h"

namespace chainmail::launch {
namespace {

namespace fs = std::filesystem;
using internal::Deadline;
using std::chrono::milliseconds;

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

template <typename Condition>
bool wait_until(milliseconds limit, Condition condition) {
  const Deadline deadline =
      Deadline::after(std::chrono::duration_cast<milliseconds>(patient(limit)));
  while (!condition()) {
    if (deadline.has_passed()) return false;
    std::this_thread::sleep_for(milliseconds(5));
  }
  return true;
}

}  // namespace

RunningLauncher::RunningLauncher(const std::vector<std::string>& arguments) {
  std::string name = (fs::temp_directory_path() / "chainmail-launcher-test.XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
  directory_ = name;
  std::vector<std::string> words = {CHAINMAIL_TEST_LAUNCHER};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  const std::string out = directory_ + "/out";
  const std::string err = directory_ + "/err";
  constexpr int kFlags = O_WRONLY | O_CREAT | O_APPEND;
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, out.c_str(), kFlags, 0600);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, err.c_str(), kFlags, 0600);
  const int error = posix_spawn(&pid_, pointers[0], &actions, nullptr, pointers.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) throw std::runtime_error("cannot start " + words.front());
}

RunningLauncher::~RunningLauncher() {
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  std::error_code ignored;
  fs::remove_all(directory_, ignored);
}

void RunningLauncher::signal(int number) const { kill(pid_, number); }

bool RunningLauncher::wait_for_output(const std::string& text, milliseconds limit) const {
  return wait_until(limit, [&] { return out().find(text) != std::string::npos; });
}

int RunningLauncher::wait(milliseconds limit) {
  int status = 0;
  if (!wait_until(limit, [&] { return waitpid(pid_, &status, WNOHANG) == pid_; })) return -1;
  pid_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

std::string RunningLauncher::out() const { return read_file(directory_ + "/out"); }
std::string RunningLauncher::err() const { return read_file(directory_ + "/err"); }

Result run_launcher(const std::vector<std::string>& arguments) {
  RunningLauncher launcher(arguments);
  const int code = launcher.wait(milliseconds(30000));
  return {code, launcher.out(), launcher.err()};
}

Result run_script(std::vector<std::string> arguments, const std::string& script) {
  arguments.insert(arguments.end(), {"sh", "-c", script});
  return run_launcher(arguments);
}

std::vector<pid_t> processes_with(const std::string& variable) {
  std::vector<pid_t> found;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const std::string name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const std::string environment = '\0' + read_file(entry.path() / "environ");
    // A zombie's environment is empty, so it never matches.
    if (environment.find('\0' + variable + '\0') != std::string::npos) {
      found.push_back(std::stoi(name));
    }
  }
  return found;
}

bool all_gone(const std::string& variable, milliseconds limit) {
  return wait_until(limit, [&] { return processes_with(variable).empty(); });
}

std::vector<std::string> sorted_lines(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  std::sort(lines.begin(), lines.end());
  return lines;
}

}  // namespace chainmail::launch
