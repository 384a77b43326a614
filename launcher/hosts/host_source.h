// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The places that hosts of a job can come from. job_hosts.h asks them in order.
//
// Not thread-safe; asked once, before anything is started.

#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launcher/hosts/host.h"
#include "launcher/hosts/hostfile.h"
#include "launcher/hosts/schedulers/schedulers.h"

namespace chainmail::launch {

class HostSource {
 public:
  virtual ~HostSource() = default;
  /// The hosts, or nothing when this source does not apply here. Throws HostfileError for text
  /// that cannot be read with certainty and UsageError for a file that cannot be opened.
  [[nodiscard]] virtual std::optional<HostSet> hosts() const = 0;
};

/// `-H value`: a file when it contains '/' or names one, otherwise a list. A file with the name of
/// this machine or of a `known` host is refused, since both could be meant.
[[nodiscard]] std::unique_ptr<HostSource> command_line_source(std::string value,
                                                              const HostfileRules& rules = {},
                                                              std::vector<Host> known = {});
/// `--hostfile path`.
[[nodiscard]] std::unique_ptr<HostSource> hostfile_source(std::string path,
                                                          const HostfileRules& rules = {});
/// $CHAINMAIL_HOSTFILE.
[[nodiscard]] std::unique_ptr<HostSource> own_hostfile_source(Variables variables,
                                                              const HostfileRules& rules = {});
/// The hostfile that the variables of other launchers name; else the first of /etc/chainmail/hosts
/// and Open MPI's default hostfile that names a host.
[[nodiscard]] std::unique_ptr<HostSource> default_hostfile_source(Variables variables,
                                                                  const HostfileRules& rules = {});
/// This machine, a slot per core that this process may use.
[[nodiscard]] std::unique_ptr<HostSource> localhost_source();

/// Asks the sources in order; the last one must always apply.
[[nodiscard]] HostSet find_hosts(const std::vector<std::unique_ptr<HostSource>>& sources);

/// More than this is no text about hosts.
inline constexpr std::size_t kMaxHostTextBytes = std::size_t{16} << 20;
/// A whole file; `what` names it in messages. Throws UsageError.
[[nodiscard]] std::string read_host_text(const std::string& path, const std::string& what);

/// True for equal names, and for one that is the other's first label: n1 and n1.example.org.
[[nodiscard]] bool is_same_name(const std::string& one, const std::string& other);

/// True for a host that the agent can be started on without a remote shell: localhost, this
/// machine's own name or one of its addresses, and neither user nor port given.
[[nodiscard]] bool is_this_machine(const Host& host);

}  // namespace chainmail::launch
