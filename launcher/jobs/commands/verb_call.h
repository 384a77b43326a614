// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// `launcher ps`, `show`, `logs`, `attach`, `ls`, `cp`, `wait`, `stop` and `rm`: what a user says of
// jobs that have a folder (launcher/jobs/folder).
//
// The main thread's.

#pragma once

#include <optional>
#include <span>
#include <string>

#include "launcher/command_line/verbs.h"
#include "launcher/job/options.h"
#include "launcher/jobs/folder/job_list.h"

namespace chainmail::launch {

/// Does what the first word says, if that is one of these verbs, and returns the exit code of the
/// launcher: 2 for bad usage and unknown jobs, 125 where something could not be done. Nothing where
/// the word is none; a program of that name is ./ls.
[[nodiscard]] std::optional<int> run_verb(std::span<const std::string> arguments);

/// A verb's words, and the root of the state.
struct VerbCall {
  const VerbWords& words;
  std::string root;

  [[nodiscard]] const std::string& operand(std::size_t index) const {
    return words.operands().at(index);
  }
  /// The job that an operand means. Throws as find_job() does.
  [[nodiscard]] FoundJob job(std::size_t index = 0) const;
  /// Those of all operands, each once. Throws for the first that there is not.
  [[nodiscard]] std::vector<FoundJob> jobs() const;
};

/// One for each verb; they return the exit code, and throw UsageError and SystemError.
[[nodiscard]] int run_ps(const VerbCall& call);
[[nodiscard]] int run_show(const VerbCall& call);
[[nodiscard]] int run_logs(const VerbCall& call);
[[nodiscard]] int run_attach(const VerbCall& call);
[[nodiscard]] int run_ls(const VerbCall& call);
[[nodiscard]] int run_cp(const VerbCall& call);
[[nodiscard]] int run_wait(const VerbCall& call);
[[nodiscard]] int run_stop(const VerbCall& call);
[[nodiscard]] int run_rm(const VerbCall& call);

/// To standard output, whole. Throws SystemError.
void print_text(const std::string& text);
/// "launcher: MESSAGE" to standard error, without what a terminal would obey.
void say(const std::string& message);

/// The exit code that a job leaves: its own; 125 of one that was lost, or has none.
[[nodiscard]] int code_of(const JobRecord& record);
/// Throws SystemError where the folder of a job is another user's: what stands there is not
/// believed.
void check_owner(const std::string& folder, const std::string& id);

/// From here on Ctrl-C ends this process with code 130, and says so; where the caller ignores
/// SIGINT it stays ignored.
void exit_on_interrupt(const std::string& message);

}  // namespace chainmail::launch
