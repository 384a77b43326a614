// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/controller/starting/rank_start_failure.h"

#include <string.h>

#include <cerrno>

#include "launcher/job/text.h"

namespace chainmail::launch {
namespace {

Failure of_launcher(std::string cause, int code = exit_code::kLauncherError) {
  return {std::nullopt, code, std::move(cause), EndKind::kNotStarted};
}

Failure explain_late(const RankStartFailure& failure, std::chrono::milliseconds limit) {
  const std::string& path = failure.path;
  std::string what;
  const std::size_t slash = path.rfind('/');
  if (failure.stage == "late chdir") {
    what = "its working directory " + path + " does not answer (chdir)";
  } else if (failure.stage == "late search" && slash != std::string::npos) {
    what = "the folder " + path.substr(0, slash) + " of its PATH, where " + path.substr(slash + 1) +
           " is looked for, does not answer (stat)";
  } else {
    what = "its program " + path + " does not come from its file system (exec)";
  }
  return of_launcher("rank " + std::to_string(failure.rank) + " on host " + failure.host +
                     " has not started within " + seconds_text(limit) + ": " + what +
                     "; look at that file system there, or allow more time by --start-timeout");
}

Failure explain_spawn(const RankStartFailure& failure) {
  const bool lacks_descriptors = failure.error == EMFILE || failure.error == ENFILE;
  return of_launcher(
      "cannot start rank " + std::to_string(failure.rank) + " on host " + failure.host + ": " +
      strerror(failure.error) +
      (lacks_descriptors ? "; each rank takes up to eight open files of the agent there: raise "
                           "the limit (ulimit -Hn), take fewer by --mpi none, or use more hosts"
       : failure.error == ENOSPC ? "; the kernel there watches no more files for this user: raise "
                                   "fs.epoll.max_user_watches (sysctl), or use more hosts"
                                 : ""));
}

// What users forget first.
std::string container_hint(const RankStartFailure& failure) {
  if (failure.image.empty()) return "";
  return "; it runs in a container of " + failure.image +
         ", which has what is in the image and in the folders that are mounted";
}

Failure explain_exec(const RankStartFailure& failure) {
  const std::string& path = failure.path;
  const std::string why = strerror(failure.error);
  const std::string cannot =
      "program cannot be executed on host " + failure.host + ": " + path + ": " + why;
  if (path.size() > 3 && path.ends_with(".py")) {
    return of_launcher(
        cannot + "; a Python script is run as: launcher ... python3 " + path + " ...",
        failure.error == EACCES ? exit_code::kCannotExecute : exit_code::kNotFound);
  }
  if (failure.error == ENOENT || failure.error == ENOTDIR) {
    const bool has_slash = path.find('/') != std::string::npos;
    return of_launcher(
        "program not found on host " + failure.host + ": " + path +
            (has_slash ? " (or the interpreter that it names)"
                       : " is not in PATH; for a program of this folder write ./" + path) +
            container_hint(failure),
        exit_code::kNotFound);
  }
  return of_launcher(cannot, exit_code::kCannotExecute);
}

}  // namespace

RankStartFailure start_failure_of(std::string_view bytes, std::string host, std::string image) {
  internal::BodyReader body(bytes);
  RankStartFailure failure;
  failure.rank = body.u32();
  failure.error = static_cast<int>(body.u32());
  failure.stage = body.text();
  failure.path = body.text();
  failure.host = std::move(host);
  failure.image = std::move(image);
  return failure;
}

Failure explain(const RankStartFailure& failure, std::chrono::milliseconds limit) {
  if (failure.stage.starts_with("late ")) return explain_late(failure, limit);
  if (failure.stage == "chdir") {
    return of_launcher("the working directory " + failure.path + " cannot be entered on host " +
                       failure.host + ": " + strerror(failure.error) +
                       "; start the job from a folder that every host has, or name one by --wdir" +
                       container_hint(failure));
  }
  if (failure.stage == "host") return of_launcher("host " + failure.host + ": " + failure.path);
  if (failure.stage == "spawn") return explain_spawn(failure);
  return explain_exec(failure);
}

}  // namespace chainmail::launch
