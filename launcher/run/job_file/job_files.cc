// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/run/job_file/job_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "base/error.h"
#include "launcher/files/own_file.h"
#include "launcher/output/targets/line_prefix.h"

namespace chainmail::launch {
namespace {

using internal::UniqueFd;

constexpr const char* kOutputNames[] = {"stdout.txt", "stderr.txt", "execution.log"};

UniqueFd open_for_output(const std::string& folder, const char* name) {
  const std::string path = folder + "/" + name;
  return open_own(AT_FDCWD, path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600, path);
}

}  // namespace

JobFiles::JobFiles(const std::string& job_folder, const std::string& folder) : folder_(folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) {
    throw SystemError(
        "cannot make the folder for the job's output " + folder + ": " + error.message(),
        error.value());
  }
  out_ = open_for_output(folder, kOutputNames[0]);
  error_ = open_for_output(folder, kOutputNames[1]);
  log_ = open_for_output(folder, kOutputNames[2]);
  if (folder == job_folder) return;
  for (const char* name : kOutputNames) {
    std::filesystem::create_symlink(folder + "/" + name, job_folder + "/" + name, error);
  }
}

void JobFiles::log(const std::string& line) const {
  const std::string text = time_prefix() + line + "\n";
  // A full disk is said by who writes more than this.
  [[maybe_unused]] const auto written = write(log_.get(), text.data(), text.size());
}

std::string JobFiles::flush() const {
  const UniqueFd* const files[] = {&out_, &error_, &log_};
  for (std::size_t i = 0; i < std::size(files); ++i) {
    if (fsync(files[i]->get()) == 0 || errno == EINVAL) continue;
    return "cannot write " + folder_ + "/" + kOutputNames[i] + ": " + std::strerror(errno);
  }
  return "";
}

}  // namespace chainmail::launch
