// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What it takes to start an agent on each host: the command that runs here, and what is sent over
// its standard input before an agent is there to talk to. Thread-safe.

#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launcher/job/host.h"
#include "launcher/remote/agent_image.h"
#include "launcher/remote/container_script.h"

namespace chainmail::launch {

/// What an agent that the launcher starts itself, and not by a remote shell, has as its third word.
inline constexpr char kChildOfLauncher[] = "child-of-launcher";

struct AgentStart {
  std::vector<std::string> command;
  std::string marker;         ///< what the agent says first, in angle brackets
  std::string script;         ///< sent at once; empty for an agent on this machine
  std::string shell_request;  ///< when this comes back, `shell_script` is sent: to a container
  std::string shell_script;
  std::string request;  ///< when this comes back, `image` is sent
  std::shared_ptr<const std::string> image;
  std::string image_checksum;

  [[nodiscard]] bool is_local() const noexcept { return script.empty(); }
};

/// `remote_shell` are the words of --rsh. `image` is this program, which is read when the first
/// host needs it: most jobs have one node. `container`: what the agent is to be in; null: none.
/// Throws UsageError where the remote shell cannot do what the host asks for, and SystemError when
/// this program cannot be read.
[[nodiscard]] AgentStart start_on(const Host& host, const std::string& marker,
                                  const std::vector<std::string>& remote_shell,
                                  const std::string& launcher_path,
                                  std::optional<AgentImage>& image,
                                  const ContainerStart* container = nullptr);

}  // namespace chainmail::launch
