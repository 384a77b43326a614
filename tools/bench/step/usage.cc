// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "tools/bench/step/usage.h"

#include <malloc.h>

#include <cerrno>
#include <fstream>
#include <numeric>
#include <string>

#include <chainmail/error.h>

#include "tools/bench/machine/wire.h"

namespace chainmail::bench {
namespace {

// Of this process, without files, which any other program may map: a page that n processes map
// counts 1/n of its size in each.
double proportional_bytes() {
  std::ifstream file("/proc/self/smaps_rollup");
  double sum = 0;
  for (std::string word; file >> word;) {
    double kib = 0;
    if ((word == "Pss_Anon:" || word == "Pss_Shmem:") && file >> kib) sum += kib * 1024;
  }
  if (sum == 0) throw SystemError("no line 'Pss_Anon:' in /proc/self/smaps_rollup", ENOENT);
  return sum;
}

double sum_over_ranks(Communicator& communicator, double own) {
  const std::vector<double> all = communicator.allgather_obj(own);
  return std::accumulate(all.begin(), all.end(), 0.0);
}

}  // namespace

double node_memory(Communicator& communicator) {
  ::malloc_trim(0);
  communicator.barrier();
  return sum_over_ranks(communicator, proportional_bytes()) / communicator.inter_size();
}

double bytes_of_step(Trainer& trainer, const at::Tensor& x, const at::Tensor& t, std::int64_t steps,
                     Communicator& communicator) {
  communicator.barrier();
  const std::uint64_t before = bytes_sent();
  communicator.barrier();
  for (std::int64_t step = 0; step < steps; ++step) trainer.step(x, t);
  communicator.barrier();
  const bool is_first = communicator.intra_rank() == 0;
  const double own = is_first ? static_cast<double>(bytes_sent() - before) : 0;
  return sum_over_ranks(communicator, own) / communicator.inter_size() / static_cast<double>(steps);
}

}  // namespace chainmail::bench
