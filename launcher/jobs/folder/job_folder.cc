// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/jobs/folder/job_folder.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <exception>
#include <filesystem>
#include <utility>

#include "base/bytes.h"
#include "base/error.h"
#include "launcher/hosts/host_text.h"
#include "launcher/job/options.h"
#include "launcher/jobs/folder/disk/ended_jobs.h"
#include "launcher/jobs/folder/disk/job_lock.h"
#include "launcher/jobs/folder/disk/job_places.h"
#include "launcher/jobs/folder/disk/state_file.h"
#include "launcher/jobs/folder/launcher_process.h"

namespace chainmail::launch {
namespace {

namespace fs = std::filesystem;
using internal::UniqueFd;

constexpr char kStopFile[] = "stop";
// Of one length, so that what is asked for takes no room that a full disk does not have. Each
// request has a line of its own: of two at once none is written over.
constexpr std::string_view kNoStop = "none\n----\n";
constexpr std::string_view kStop = "stop\n";
constexpr std::string_view kStopNow = "now \n";

// At the end, where they make another name of one folder.
std::string without_slashes(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

std::string random_letters() {
  // Each letter is as likely as any other.
  const auto most = static_cast<unsigned char>(256 - 256 % kIdLetters.size());
  std::string letters;
  while (letters.size() < kRandomLetters) {
    for (const char c : internal::random_bytes(2 * kRandomLetters)) {
      const auto byte = static_cast<unsigned char>(c);
      if (byte < most && letters.size() < kRandomLetters)
        letters += kIdLetters[byte % kIdLetters.size()];
    }
  }
  return letters;
}

// Of random numbers (RFC 9562, version 4).
std::string new_uuid() {
  std::string bytes = internal::random_bytes(16);
  bytes[6] = static_cast<char>((static_cast<unsigned char>(bytes[6]) & 0x0fU) | 0x40U);
  bytes[8] = static_cast<char>((static_cast<unsigned char>(bytes[8]) & 0x3fU) | 0x80U);
  std::string text = internal::to_hex(bytes);
  for (const std::size_t at : {8U, 13U, 18U, 23U}) text.insert(at, "-");
  return text;
}

std::int64_t now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

// Where another is in its place already, whatever it is: false.
bool rename_to_new(const std::string& from, const std::string& to) {
  if (renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return true;
  // NFS has no such rename; there, a folder that is not empty is not replaced either.
  const bool is_unknown = errno == EINVAL || errno == ENOSYS;
  if (is_unknown && rename(from.c_str(), to.c_str()) == 0) return true;
  if (errno == EEXIST || errno == ENOTEMPTY || errno == ENOTDIR) return false;
  throw system_error("cannot make " + to);
}

}  // namespace

std::string state_root(const Environment& variables) {
  if (const auto own = value_of(variables, "CHAINMAIL_STATE")) {
    if (own->front() == '/') return without_slashes(*own);
    throw UsageError("CHAINMAIL_STATE is " + in_quotes(*own) + ": an absolute path is needed");
  }
  // A relative one is to be ignored, says the XDG specification.
  const auto state = value_of(variables, "XDG_STATE_HOME");
  if (state && state->front() == '/') return *state + "/chainmail";
  const auto home = value_of(variables, "HOME");
  if (home && home->front() == '/') return *home + "/.local/state/chainmail";
  throw UsageError(
      "there is no place for the state of jobs: set CHAINMAIL_STATE, or HOME, to an absolute path");
}

StopRequest stop_request_of(const std::string& folder) {
  const std::string path = folder + "/" + kStopFile;
  // Opened anew each time: so network file systems look at what others have written.
  const UniqueFd file(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC));
  std::string text(kNoStop.size(), '\0');
  const ssize_t count = file.is_open() ? ::read(file.get(), text.data(), text.size()) : 0;
  text.resize(count > 0 ? static_cast<std::size_t>(count) : 0);
  // Somebody may have written it by hand.
  const bool is_below =
      text.size() > kStop.size() && std::string_view(text).substr(kStop.size()).starts_with("now");
  if (text.starts_with("now") || is_below) return StopRequest::kNow;
  return text.empty() || text.starts_with("none") ? StopRequest::kNone : StopRequest::kStop;
}

void request_stop(const std::string& folder, StopRequest request,
                  const std::function<void()>& on_written) {
  if (request <= stop_request_of(folder)) return;
  const bool is_now = request == StopRequest::kNow;
  const std::string_view text = is_now ? kStopNow : kStop;
  const auto place = static_cast<off_t>(is_now ? kStop.size() : 0);
  const std::string path = folder + "/" + kStopFile;
  UniqueFd file(open(path.c_str(), O_WRONLY | O_CREAT | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC, 0600));
  const bool is_written = file.is_open() && ::pwrite(file.get(), text.data(), text.size(), place) ==
                                                static_cast<ssize_t>(text.size());
  if (is_written && on_written) on_written();
  if (is_written && fsync(file.get()) == 0) return;
  throw system_error("cannot write " + path);
}

JobFolder::JobFolder(const std::string& root, JobRecord record)
    : root_(root), record_(std::move(record)) {
  if (!is_job_name(record_.name)) {
    throw UsageError("a job cannot be called " + in_quotes(record_.name) +
                     ": 1 to 64 letters, digits, '-', '_' and '.', neither '-' nor '.' first");
  }
  make_job_places(root_);
  if (record_.uuid.empty()) record_.uuid = new_uuid();
  if (record_.launcher.pid == 0) record_.launcher = this_launcher();
  if (record_.created_ms == 0) record_.created_ms = now_ms();
  const bool has_output = !record_.stdouterr.empty();
  constexpr int kTries = 100;
  for (int tries = 0; tries < kTries; ++tries) {
    record_.id = record_.name + "-" + random_letters();
    path_ = jobs_folder(root_) + "/" + record_.id;
    if (!has_output) record_.stdouterr = path_;
    const std::string hidden = unfinished_folder(root_) + "/" + record_.id;
    if (mkdir(hidden.c_str(), 0700) != 0) {
      if (errno == EEXIST) continue;
      throw system_error("cannot make " + hidden);
    }
    std::error_code ignored;
    try {
      fill(hidden);
      if (rename_to_new(hidden, path_)) {
        sync_jobs(root_);
        remove_unfinished(root_, path_);
        return;
      }
    } catch (...) {
      fs::remove_all(hidden, ignored);
      throw;
    }
    fs::remove_all(hidden, ignored);
  }
  throw SystemError("cannot find a name for the job in " + jobs_folder(root_), EEXIST);
}

JobFolder::~JobFolder() = default;

// All that a reader looks for.
void JobFolder::fill(const std::string& hidden) {
  // The umask may have taken away so much that it could not even be opened.
  if (chmod(hidden.c_str(), 0700) != 0) throw system_error("cannot change the mode of " + hidden);
  folder_.reset(open(hidden.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!folder_.is_open()) throw system_error("cannot use " + hidden);
  lock_ = take_job_lock(folder_.get(), hidden);
  std::string failure = write_file(kStopFile, std::string(kNoStop));
  if (failure.empty()) failure = replace_file_of(folder_.get(), kStateFile, json_of(record_));
  if (!failure.empty()) throw SystemError("cannot write into " + hidden + ": " + failure, EIO);
  make_reserve(folder_.get());
}

std::string JobFolder::write(JobRecord record) {
  try {
    record.id = record_.id;
    record.uuid = record_.uuid;
    record.name = record_.name;
    record_ = std::move(record);
    std::string failure = write_state();
    if (!failure.empty()) failure = "cannot write " + path_ + "/" + kStateFile + ": " + failure;
    const bool is_new = failure != last_error_;
    last_error_ = failure;
    return is_new ? failure : "";
  } catch (const std::exception& error) {
    return error.what();
  }
}

std::string JobFolder::write_state() {
  const std::string text = json_of(record_);
  std::string failure = replace_file_of(folder_.get(), kStateFile, text);
  if (!is_ended(record_.phase)) return failure;
  if (!failure.empty()) {
    // There is less room in reserve than thousands of hosts need.
    JobRecord shorter = record_;
    if (text.size() > kReserveBytes) shorter.hosts.clear();
    if (replace_from_reserve(folder_.get(), kStateFile, json_of(shorter)).empty()) failure.clear();
    // Nor is there any where the disk was nearly full at the start.
    shorter.hosts.clear();
    shorter.warnings.clear();
    if (!failure.empty() &&
        overwrite_file_of(folder_.get(), kStateFile, json_of(shorter)).empty()) {
      failure.clear();
    }
  }
  if (failure.empty()) {
    remove_reserve(folder_.get());
    note_ended(root_, record_.id);
  }
  return failure;
}

std::string JobFolder::write_file(const std::string& name, const std::string& text) {
  try {
    if (name.empty() || name.front() == '.' || name.find('/') != std::string::npos) {
      return "cannot write " + in_quotes(name) + " into " + path_ + ": that is no file's name";
    }
    const std::string failure = replace_file_of(folder_.get(), name, text);
    return failure.empty() ? "" : "cannot write " + path_ + "/" + name + ": " + failure;
  } catch (const std::exception& error) {
    return error.what();
  }
}

}  // namespace chainmail::launch
