// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// How a host's part of a job comes into a container: a shell on the host reads a script from its
// standard input that becomes the engine's client, whose container runs /bin/sh with the same
// standard streams; that one reads the bootstrap script (bootstrap.h) as any host's shell does. So
// no word of it passes through a remote shell's command line. Pure functions.

#pragma once

#include <string>

#include "launcher/job/host_setup.h"

namespace chainmail::launch {

/// A container on one host.
struct ContainerStart {
  Container what;
  std::string name;
  std::string label;
};

/// Throws UsageError for an engine that is not known and for what an engine, or a shell, could take
/// for something else.
void check_container(const Container& container);

/// Script for a POSIX shell, as bootstrap_script(). It prints shell_request() when the container is
/// about to be started; what the shell in it is to read may not be sent before. What it finds wrong
/// with the host it says as the bootstrap script does.
[[nodiscard]] std::string container_script(const ContainerStart& start, const std::string& marker);
[[nodiscard]] std::string shell_request(const std::string& marker);

/// Script that removes all containers with this label and prints how many there were.
[[nodiscard]] std::string removal_script(const Container& container, const std::string& label);

/// Whether the engine keeps containers that could be left; apptainer's are processes like others.
[[nodiscard]] bool keeps_containers(const Container& container);

}  // namespace chainmail::launch
