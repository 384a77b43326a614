// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// How an agent comes to run on another host. A remote shell is asked for /bin/sh and nothing else,
// which no login shell can misread and no starter split differently; the rest goes over its
// standard input: a script that runs the launcher installed at the same path if it is the same
// build and nobody but root and the user can change it there, and otherwise asks for the program
// itself. Pure functions.

#pragma once

#include <cstddef>
#include <string>

namespace chainmail::launch {

struct Bootstrap {
  std::string marker;
  std::string installed_path;  ///< of the launcher here, and perhaps there
  std::string identity;        ///< agent_identity()
  std::string machine;         ///< what `uname -m` says here
  std::size_t image_bytes = 0;
  std::string image_checksum;
  std::string image_loader = {};  ///< the program that it needs there to be loaded; empty: none
};

/// Script for a POSIX shell that reads it from its standard input. The shell has read all of it
/// before it runs the first command, so what is sent afterwards is left to the commands.
[[nodiscard]] std::string bootstrap_script(const Bootstrap& bootstrap);

/// What the script prints when it wants the image; nothing may be sent before.
[[nodiscard]] std::string image_request(const std::string& marker);

/// Single-quoted for a POSIX shell, whatever is in it but NUL.
[[nodiscard]] std::string shell_quoted(const std::string& text);

/// Begins every message of the script on its standard error.
inline constexpr char kBootstrapSays[] = "chainmail: ";
/// Begins its line about an installed launcher that it does not run.
inline constexpr char kBootstrapNotes[] = "chainmail-note: ";

}  // namespace chainmail::launch
