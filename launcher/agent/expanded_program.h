// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What a rank runs, with the patterns of its program expanded on its host. A name stands for
//
//   1. what the launcher sets for each rank there: RANK, NODE_RANK, CHAINMAIL_JOB_TEMP, ...
//   2. a variable of the program, itself a pattern, which is expanded first
//   3. a variable of the agent's own environment or one that the launcher has handed on as it is
//   4. nothing
//
// so variables may refer to each other in any order. One that refers to itself, as PATH=$PATH:/x
// does, means what it is outside of the program; the same where several refer to each other in a
// circle.
//
// Pure, thread-safe.

#pragma once

#include <string>
#include <vector>

#include "launcher/channel/wire.h"
#include "launcher/job/environment.h"

namespace chainmail::launch {

struct ExpandedProgram {
  std::vector<std::string> words;
  std::string working_directory;
  Environment environment;
};

/// `outside`: the agent's own environment; the program's literal variables come on top of it here.
/// `fixed`: what the launcher sets, which no variable of the program changes. PWD is the working
/// directory, unless the program sets it. Throws SystemError where something is too long to be
/// handed to a program (E2BIG), the program's name has become empty (ENOENT), or the working
/// directory is not absolute (EINVAL).
[[nodiscard]] ExpandedProgram expanded_program(const OrderedProgram& program, Environment outside,
                                               const Environment& fixed);

}  // namespace chainmail::launch
