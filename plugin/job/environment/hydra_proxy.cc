// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/job/environment/hydra_proxy.h"

#include <unistd.h>

#include <fstream>
#include <iterator>
#include <string>

namespace chainmail::internal {
namespace {

// Empty when it cannot be read.
std::string read_of(pid_t process, const char* name) {
  std::ifstream file("/proc/" + std::to_string(process) + "/" + name, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// What the proxy gives each rank; processes between it and the program have inherited it.
bool belongs_to_rank(pid_t process, const Environment& environment) {
  // In a rank of an outer job the proxy has that job's variables, which may be equal.
  if (read_of(process, "comm").starts_with("hydra_")) return false;
  const std::string variables = '\0' + read_of(process, "environ");
  for (const char* name : {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"}) {
    const auto value = environment(name);
    if (value &&
        variables.find('\0' + std::string(name) + "=" + *value + '\0') == std::string::npos) {
      return false;
    }
  }
  return true;
}

// 0 when it is not known.
pid_t parent_of(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/status");
  for (std::string word; file >> word;) {
    pid_t parent = 0;
    if (word == "PPid:" && file >> parent) return parent;
  }
  return 0;
}

}  // namespace

pid_t hydra_proxy(const Environment& environment) {
  pid_t process = ::getppid();
  while (process > 1 && belongs_to_rank(process, environment)) process = parent_of(process);
  return process;
}

}  // namespace chainmail::internal
