// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Ours beside Gloo's: every collective, element type, reduction and shape, sync and async. Fails
// when ours is wrong or refuses what has a right result. usage: side_by_side [--table]
// With --table every case is run, and every row printed; without, some thousand cases.

#include <chainmail/backend.h>
#include <torch/types.h>

#include <iostream>
#include <map>
#include <string>

#include "plugin/job/environment/job_info.h"
#include "tests/plugin/c10d/side_by_side/comparison.h"
#include "tools/bench/contestants/groups.h"

namespace chainmail::side_by_side {
namespace {

constexpr char kLegend[] =
    "= both right   r Gloo refuses, ours right   w Gloo wrong, ours right\n"
    "x both refuse   o only ours refuses (nothing is right, Gloo gives values)   ! ours is bad\n";

void print_head(int ranks) {
  std::cout << "chainmail beside gloo at " << ranks << " ranks\n"
            << kLegend << std::string(54, ' ');
  for (const char* name :
       {"u8", "i8", "i16", "i32", "i64", "bool", "f16", "bf16", "f32", "f64", "c64", "c128"}) {
    std::cout << name << std::string(5 - std::string(name).size(), ' ');
  }
  std::cout << std::endl;
}

int run(bool wants_table) {
  const internal::JobInfo job = internal::read_job_info(internal::process_environment());
  const auto store = make_job_store();
  const bench::Ranks ranks{job.rank, job.size, 1};
  const auto ours = bench::make_ours(store, ranks, "auto", "native");
  const auto gloo = bench::make_gloo(store, ranks);
  const Backends backends{ours.group->getBackend(c10::kCPU), gloo.group->getBackend(c10::kCPU),
                          job.rank, job.size};
  const bool prints = wants_table && job.rank == 0;
  if (prints) print_head(job.size);
  std::map<Verdict, int> counts;
  compare(
      backends, wants_table ? Extent::kFull : Extent::kQuick,
      [](const std::string& complaint) { std::cerr << complaint << std::endl; },
      [&](const Row& row) {
        for (const Verdict verdict : row.verdicts) ++counts[verdict];
        if (prints) std::cout << describe(row) << std::endl;
      });
  if (job.rank == 0) {
    std::cout << job.size << " ranks" << (wants_table ? ", sync and async: " : ": ")
              << counts[Verdict::kSame] << " same, " << counts[Verdict::kGlooRefuses]
              << " that Gloo refuses, " << counts[Verdict::kGlooWrong] << " that Gloo gets wrong, "
              << counts[Verdict::kBothRefuse] << " that both refuse, "
              << counts[Verdict::kOnlyOursRefuses] << " without meaning that only ours refuses, "
              << counts[Verdict::kBad] << " bad\n";
  }
  return counts[Verdict::kBad] == 0 ? 0 : 1;
}

}  // namespace
}  // namespace chainmail::side_by_side

int main(int argc, char** argv) {
  try {
    return chainmail::side_by_side::run(argc > 1 && std::string(argv[1]) == "--table");
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
