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

AgentStarter::AgentStarter(std::vector<std::string> remote_shell, std::string launcher_path)
    : remote_shell_(std::move(remote_shell)), launcher_path_(std::move(launcher_path)) {}

AgentStart AgentStarter::start_on(const Host& host, const std::string& marker) {
  AgentStart start;
  start.marker = marker;
  if (is_this_machine(host)) {
    start.command = {launcher_path_, "--agent", marker};
    return start;
  }
  start.command = remote_shell_command(remote_shell_, host);
  const AgentImage& image = this->image();
  start.script = bootstrap_script({marker, launcher_path_, agent_identity(), own_machine(),
                                   image.bytes->size(), image.checksum});
  start.request = image_request(marker);
  start.image = image.bytes;
  start.image_checksum = image.checksum;
  return start;
}

// One login per node does not come often, and most jobs have one node: read when it is needed.
const AgentImage& AgentStarter::image() {
  if (!image_) image_ = read_agent_image(launcher_path_);
  return *image_;
}

}  // namespace chainmail::launch
