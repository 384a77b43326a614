// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Folders and programs of a host that nobody but root and this user could have put there or could
// replace, by the rules that the script in remote/bootstrap.cc follows in a shell.
//
// A path is walked from the top. Nobody else can replace what lies in a folder that has passed, so
// what has passed stays, and may be used by the name that comes back. Thread-safe.

#pragma once

#include <sys/types.h>

#include <set>
#include <string>
#include <vector>

namespace chainmail::launch {

struct TrustedPath {
  std::string path;  ///< absolute and without links; empty where it is not trusted
  std::string why;   ///< why not, for people
};

/// Who may write to something, apart from root and this user.
struct Writers {
  std::set<uid_t> users;
  std::set<gid_t> groups;
};

/// A folder. Links may be anybody's: what counts is where they lead to now.
[[nodiscard]] TrustedPath trusted_folder(const std::string& path);

/// A program to run. Links count as well: somebody else's could lead to any program. `also` are
/// trusted like this user.
[[nodiscard]] TrustedPath trusted_program(const std::string& path, const Writers& also = {});

/// Owners and groups that could put something else in the place of `path`, which has no links.
[[nodiscard]] Writers writers_of(const std::string& path);

/// Where files of a job may go, in this order, trusted or not: $TMPDIR and /tmp.
[[nodiscard]] std::vector<std::string> temporary_folders();

/// Where agents put what is large, in this order, as remote/bootstrap.cc does: those, /var/tmp,
/// /dev/shm and $XDG_RUNTIME_DIR. Not the home directory, which is shared, and may be slow.
[[nodiscard]] std::vector<std::string> scratch_folders();

}  // namespace chainmail::launch
