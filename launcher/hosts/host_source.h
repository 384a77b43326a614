// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Where the hosts of a job come from, in order of precedence: the command line, a default
// hostfile, this machine. Schedulers become further sources.
//
// Not thread-safe; asked once, before anything is started.

#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launcher/hosts/host.h"

namespace chainmail::launch {

class HostSource {
 public:
  virtual ~HostSource() = default;
  /// The hosts, or nothing when this source does not apply here. Throws HostfileError for text
  /// that cannot be read with certainty and UsageError for a file that cannot be opened.
  [[nodiscard]] virtual std::optional<HostSet> hosts() const = 0;
};

/// `-H value`: a file when it contains '/' or names one, otherwise a list.
[[nodiscard]] std::unique_ptr<HostSource> command_line_source(std::string value);
/// `--hostfile path`.
[[nodiscard]] std::unique_ptr<HostSource> hostfile_source(std::string path);
/// The first of $CHAINMAIL_HOSTFILE, /etc/chainmail/hosts and Open MPI's default hostfile that
/// names a host.
[[nodiscard]] std::unique_ptr<HostSource> default_hostfile_source();
/// This machine, a slot per core that this process may use.
[[nodiscard]] std::unique_ptr<HostSource> localhost_source();

/// Asks the sources in order; the last one must always apply.
[[nodiscard]] HostSet find_hosts(const std::vector<std::unique_ptr<HostSource>>& sources);

/// True for a host that the agent can be started on without a remote shell: localhost, this
/// machine's own name or one of its addresses, and neither user nor port given.
[[nodiscard]] bool is_this_machine(const Host& host);

}  // namespace chainmail::launch
