// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Ends the whole job when one rank fails where nobody catches it; ChainerMN's global_except_hook.
// Opt-in: the library installs nothing by itself. Acts on the process, not on one communicator.

#pragma once

#include <memory>

#include <chainmail/communicator.h>
#include <chainmail/export.h>

namespace chainmail {

/// The exit code of a rank that an uncaught exception or std::terminate has ended.
inline constexpr int kTerminatedExitCode = 1;

/// From now on
/// - an exception that no handler catches, in any thread, and std::terminate write "chainmail: rank
///   1 on node2: uncaught exception: ..." to stderr, end `communicator` on all ranks with the same
///   text as their PeerError, and end the process with kTerminatedExitCode within 5 seconds,
///   without running destructors or atexit functions and without a core dump;
/// - such an exception on a rank that fails because of another one, which is a PeerError or any
///   other once `communicator` has failed with one, writes one line, "chainmail: rank 0 on node1:
///   ends because of another rank: ...", and ends the process half a second later, so that starters
///   see the rank first that has failed first;
/// - SIGSEGV, SIGBUS, SIGFPE, SIGILL and SIGABRT write such a line (with write(2) only) and then do
///   what they did before: by default they end the process by that signal, 128 + number for a
///   starter. The others hear of it from the launcher or by the broken connection.
///
/// A child of fork() is no rank: it ends as it would without this.
///
/// Starters end a job when a rank fails: our launcher, mpiexec and torchrun all do. A second call
/// only changes the communicator. Keeps it weakly. Local; every rank calls.
/// @throws InvalidArgument  no communicator
/// @throws SystemError      a signal handler cannot be set
CHAINMAIL_API void add_except_hook(const std::shared_ptr<Communicator>& communicator);

}  // namespace chainmail
