// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/jobs/job_command.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <iostream>
#include <sstream>
#include <vector>

#include "base/error.h"
#include "base/unique_fd.h"
#include "launcher/files/trusted_path.h"
#include "launcher/hosts/host_text.h"
#include "launcher/hosts/hosts_edit.h"
#include "launcher/job/options.h"
#include "launcher/job/text.h"
#include "launcher/jobs/control_socket.h"
#include "launcher/output/job_directory.h"

namespace chainmail::launch {
namespace {

namespace fs = std::filesystem;
using internal::UniqueFd;
using Verb = JobRequest::Verb;

constexpr int kPatienceSeconds = 30;
constexpr int kStatusSeconds = 5;

/// A running job, by its folder.
struct RunningJob {
  std::string folder;
  std::string pid;
};

std::vector<RunningJob> jobs_here() {
  const std::string prefix = JobDirectory::kPrefix;
  std::vector<RunningJob> jobs;
  for (const std::string& place : temporary_folders()) {
    const std::string trusted = trusted_folder(place).path;
    std::error_code error;
    fs::directory_iterator entries(trusted, error);  // nothing where it is not trusted
    for (; !error && entries != fs::directory_iterator(); entries.increment(error)) {
      const std::string name = entries->path().filename().string();
      if (name.rfind(prefix, 0) != 0) continue;
      const std::string pid =
          name.substr(prefix.size(), name.find('.', prefix.size()) - prefix.size());
      if (fs::is_socket(entries->path() / kControlSocketName, error)) {
        jobs.push_back({entries->path().string(), pid});
      }
      error.clear();
    }
  }
  std::sort(jobs.begin(), jobs.end(), [](const auto& a, const auto& b) { return a.pid < b.pid; });
  return jobs;
}

void send_whole(int fd, std::string_view bytes, const std::string& who) {
  while (!bytes.empty()) {
    const ssize_t sent = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) throw system_error("cannot ask " + who);
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
}

std::string receive_line(int fd, const std::string& who) {
  std::string line;
  std::string block(65536, '\0');
  while (line.find('\n') == std::string::npos && line.size() <= kMostControlBytes) {
    const ssize_t count = recv(fd, block.data(), block.size(), 0);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) {
      throw SystemError(
          who + " does not answer; is it stopped? It may do later what it was asked for", EAGAIN);
    }
    if (count < 0) throw system_error(who + " does not answer");
    if (count == 0) throw SystemError(who + " gave no answer: it has ended", ECONNRESET);
    line.append(block, 0, static_cast<std::size_t>(count));
  }
  return line;
}

/// Nothing where the job has ended meanwhile, and of a job that is somebody else's.
std::optional<JobAnswer> ask(const RunningJob& job, const JobRequest& request) {
  const UniqueFd folder(open(job.folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  const UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!folder.is_open() || !fd.is_open()) return std::nullopt;
  const bool is_status = request.verb == Verb::kStatus;
  const timeval patience{is_status ? kStatusSeconds : kPatienceSeconds, 0};
  for (const int option : {SO_RCVTIMEO, SO_SNDTIMEO}) {
    (void)setsockopt(fd.get(), SOL_SOCKET, option, &patience, sizeof(patience));
  }
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = control_path(folder);
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    return std::nullopt;
  }
  // Anybody may make a folder of that name in a place for all.
  if (!is_of_this_user(fd.get())) return std::nullopt;
  const std::string who = "the job of launcher " + job.pid;
  send_whole(fd.get(), json_of(request) + "\n", who);
  return answer_of(receive_line(fd.get(), who));
}

/// The status of one of several: others may answer where it does not, whose launcher is `silent`
/// then.
std::optional<JobAnswer> ask_or_warn(const RunningJob& job, std::vector<std::string>& silent) {
  try {
    return ask(job, {});
  } catch (const SystemError& error) {
    std::cerr << "launcher: " << error.what() << "\n";
    silent.push_back(job.pid);
    return std::nullopt;
  }
}

std::string absolute(const std::string& path) {
  std::error_code error;
  const fs::path whole = fs::weakly_canonical(path, error);
  return error ? path : whole.string();
}

/// The one that `name` means.
RunningJob find_job(const std::string& name) {
  const std::vector<RunningJob> jobs = jobs_here();
  for (const RunningJob& job : jobs) {
    if (job.pid == name) return job;
  }
  const std::string file = absolute(name);
  std::vector<std::string> silent;
  for (const RunningJob& job : jobs) {
    const auto answer = ask_or_warn(job, silent);
    if (answer && !answer->status.hosts_file.empty() &&
        absolute(answer->status.hosts_file) == file) {
      return job;
    }
  }
  throw UsageError(
      "no elastic job of yours on this machine has the launcher or the hosts file '" + name +
      "'; " +
      (silent.empty()
           ? "'launcher status' lists those that there are, each on the machine where its "
             "launcher was started"
           : "launchers that do not answer may have it: " + joined(silent, ", ")));
}

std::string text_of(const JobStatus& status) {
  std::ostringstream text;
  text << "job of launcher " << status.pid << ": " << joined(status.program, " ") << "\n"
       << "  " << status.state << ": " << status.size << " of " << status.sizes << " ranks, world "
       << status.world << ", step " << status.step << " or later\n";
  if (!status.hosts_file.empty()) text << "  hosts file " << status.hosts_file << "\n";
  std::size_t width = 4;
  for (const HostStatus& host : status.hosts) width = std::max(width, host.host.size());
  for (const HostStatus& host : status.hosts) {
    text << "  " << host.host << std::string(width - host.host.size(), ' ') << "  " << host.slots
         << (host.slots == 1 ? " slot   " : " slots  ") << host.state;
    if (!host.members.empty()) text << "; " << joined(host.members, ", ");
    text << "\n";
  }
  return text.str();
}

std::string show(const JobAnswer& answer, bool is_json) {
  return is_json ? json_of(answer) + "\n" : text_of(answer.status);
}

std::string show_all(bool is_json) {
  std::string text;
  std::vector<std::string> silent;
  for (const RunningJob& job : jobs_here()) {
    if (const auto answer = ask_or_warn(job, silent)) text += show(*answer, is_json);
  }
  if (text.empty() && !is_json) {
    text = "no elastic job of yours " + std::string(silent.empty() ? "runs" : "that answers runs") +
           " on this machine\n";
  }
  return text;
}

}  // namespace

std::optional<JobCommand> parse_job_command(std::span<const std::string> arguments) {
  if (arguments.empty()) return std::nullopt;
  const std::string& verb = arguments.front();
  JobCommand command;
  if (verb == "add") {
    command.request.verb = Verb::kAdd;
  } else if (verb == "drain") {
    command.request.verb = Verb::kDrain;
  } else if (verb != "status") {
    return std::nullopt;
  }
  const bool is_edit = command.request.verb != Verb::kStatus;
  for (const std::string& word : arguments.subspan(1)) {
    if (word == "--json" && !is_edit) {
      command.is_json = true;
    } else if (word.empty() || word.front() == '-') {
      throw UsageError("launcher " + verb + " knows no option '" + word + "'; a program of that " +
                       "name is ./" + verb);
    } else if (command.job.empty()) {
      command.job = word;
    } else {
      command.request.hosts.push_back(word);
    }
  }
  if (is_edit && command.request.hosts.empty()) {
    throw UsageError("launcher " + verb +
                     " needs a job, its launcher's pid or its hosts file, and " +
                     "hosts, as in: launcher " + verb + " host_worker n3");
  }
  if (!is_edit && !command.request.hosts.empty()) {
    throw UsageError("launcher status takes one job, its launcher's pid or its hosts file");
  }
  // What the job would refuse is refused before it is looked for.
  for (const std::string& host : command.request.hosts) {
    (void)(command.request.verb == Verb::kAdd ? addition_of(host) : removal_of(host));
  }
  return command;
}

std::string run_job_command(const JobCommand& command) {
  if (command.job.empty()) return show_all(command.is_json);
  const RunningJob job = find_job(command.job);
  const auto answer = ask(job, command.request);
  if (!answer) throw UsageError("the job of launcher " + job.pid + " has just ended");
  if (!answer->error.empty()) throw HostsError(answer->error);
  if (command.request.verb == Verb::kStatus) return show(*answer, command.is_json);
  std::string text;
  for (const std::string& line : answer->said) text += line + "\n";
  return text;
}

}  // namespace chainmail::launch
