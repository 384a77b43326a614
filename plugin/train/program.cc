// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include <chainmail/train/program.h>

#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <thread>

#include <ATen/Parallel.h>

#include <chainmail/error.h>

namespace chainmail {

std::optional<c10::ScalarType> parse_wire_dtype(std::string_view name) {
  if (name.empty()) return std::nullopt;
  if (name == "float16" || name == "fp16") return c10::kHalf;
  if (name == "bfloat16" || name == "bf16") return c10::kBFloat16;
  if (name == "float32" || name == "fp32") return c10::kFloat;
  throw InvalidArgument("--allreduce_grad_dtype " + std::string(name) +
                        ": use float16, bfloat16 or float32");
}

void choose_threads(const Communicator& communicator) {
  if (std::getenv("OMP_NUM_THREADS") != nullptr) return;
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  int allowed = cores;
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) allowed = CPU_COUNT(&set);
  at::set_num_threads(std::max(1, std::min(allowed, cores / communicator.intra_size())));
}

}  // namespace chainmail
