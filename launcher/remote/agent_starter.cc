// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/remote/agent_starter.h"

#include <sys/utsname.h>

#include <utility>

#include "launcher/hosts/this_machine.h"
#include "launcher/remote/bootstrap.h"
#include "launcher/remote/rsh_command.h"

namespace chainmail::launch {
namespace {

std::string own_machine() {
  utsname names{};
  return uname(&names) == 0 ? names.machine : "unknown";
}

}  // namespace

AgentStart start_on(const Host& host, const std::string& marker,
                    const std::vector<std::string>& remote_shell, const std::string& launcher_path,
                    std::optional<AgentImage>& image, const ContainerStart* container) {
  AgentStart start;
  start.marker = marker;
  const bool is_here = is_this_machine(host);
  if (is_here && container == nullptr) {
    start.command = {launcher_path, "--agent", marker, kChildOfLauncher};
    return start;
  }
  start.command =
      is_here ? std::vector<std::string>{"/bin/sh"} : remote_shell_command(remote_shell, host);
  if (!image) image = read_agent_image(launcher_path);
  start.script = bootstrap_script({marker, launcher_path, agent_identity(), own_machine(),
                                   image->bytes->size(), image->checksum, image->loader});
  if (container != nullptr) {
    start.shell_request = shell_request(marker);
    start.shell_script = std::exchange(start.script, container_script(*container, marker));
  }
  start.request = image_request(marker);
  start.image = image->bytes;
  start.image_checksum = image->checksum;
  return start;
}

}  // namespace chainmail::launch
