// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What a rank of the benchmark and the MPI process beside it say to each other: plain structs over
// a local stream socket. Both come from one build, so there is no version and no byte order.
//
// The MPI process blocks in read() while others are measured, so that it costs no CPU time.

#pragma once

#include <sched.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "tools/bench/measure/timing_loop.h"

namespace chainmail::bench {

/// The MPI process's first words.
struct MpiHello {
  std::int32_t rank = 0;
  std::int32_t size = 0;
  char version[128] = {};
};

enum class MpiTask : std::int32_t { kTime, kCheck };

struct MpiCommand {
  MpiTask task = MpiTask::kTime;
  std::int32_t is_in_place = 0;
  char op[16] = {};
  char dtype[16] = {};
  char redop[8] = {};
  std::uint64_t count = 0;
  Repeats repeats;
  cpu_set_t cores{};  ///< those of the benchmark's rank
};

/// Followed by `samples` doubles.
struct MpiAnswer {
  std::int64_t wrong = 0;
  std::int32_t samples = 0;
  double cpu_s = 0.0;
  double wall_s = 0.0;
};

struct MpiSocketName {
  sockaddr_un address{};
  socklen_t length = 0;
};

/// Where rank `rank` listens: an abstract name, which leaves nothing in the file system and is
/// found in this network namespace only.
inline MpiSocketName mpi_socket_name(const std::string& token, int rank) {
  const std::string name = "chainmail-bench/" + token + "/" + std::to_string(rank);
  MpiSocketName result;
  result.address.sun_family = AF_UNIX;
  std::memcpy(result.address.sun_path + 1, name.data(), name.size());
  result.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return result;
}

}  // namespace chainmail::bench
