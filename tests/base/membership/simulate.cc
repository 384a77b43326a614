// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The simulator by hand:
//
//   membership_simulate seeds COUNT [FIRST]     that many schedules, one per seed
//   membership_simulate states                  every state of the larger of the small jobs
//   membership_simulate trace SEED DIRECTORY    the trace of one schedule, as a job would write it
//   membership_simulate check FILE...           whether the machines can have done what a trace
//                                               says: events.jsonl, then the members' files
//   membership_simulate check-launcher FILE     the same of events.jsonl alone
//
// Exit code 1 where something is wrong, 2 for wrong arguments.

#include <charconv>
#include <cstdint>
#include <ctime>
#include <fstream>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

#include "tests/base/membership/sim/explore.h"
#include "tests/base/membership/sim/seeded.h"
#include "tests/base/membership/sim/small_jobs.h"
#include "tests/base/membership/trace/trace_checker.h"
#include "tests/base/membership/trace/trace_files.h"

namespace chainmail::membership {
namespace {

constexpr int kWrongArguments = 2;
constexpr std::uint64_t kMostStates = 40'000'000;

// Of this process: other processes do not change it.
double processor_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

int run_seeds(std::uint64_t count, std::uint64_t first) {
  const double start = processor_seconds();
  std::uint64_t events = 0;
  int found = 0;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    const sim::SeededResult result = sim::run_seed(seed);
    events += result.events;
    if (result.violation.empty()) continue;
    std::cout << "seed " << seed << ": " << result.violation << "\n";
    if (++found == 10) break;
  }
  std::cout << count << " schedules from " << first << ", " << events << " events, "
            << processor_seconds() - start << " s of processor time\n";
  return found == 0 ? 0 : 1;
}

int run_states() {
  int code = 0;
  for (const sim::SmallJob& job : sim::long_jobs()) {
    const double start = processor_seconds();
    const sim::ExploreResult result =
        sim::explore(job.setup, job.faults, kMostStates, sim::Order::kDepthFirst);
    std::cout << job.name << ": " << result.states << " states, " << result.transitions
              << " transitions, " << processor_seconds() - start << " s"
              << (result.is_complete ? "" : ", not all") << std::endl;
    if (result.violation.empty()) continue;
    std::cout << "  " << result.violation << "\n";
    code = 1;
  }
  return code;
}

int write_lines(const std::string& path, const std::vector<std::string>& lines) {
  std::ofstream file(path);
  for (const std::string& line : lines) file << line << "\n";
  file.close();
  if (file) return 0;
  std::cerr << "cannot write " << path << "\n";
  return 1;
}

int write_trace(std::uint64_t seed, const std::string& directory) {
  TraceFiles files;
  const sim::SeededResult result = sim::run_seed(seed, &files);
  if (!result.violation.empty()) std::cout << result.violation << "\n";
  int code = write_lines(directory + "/events.jsonl", files.launcher);
  for (const auto& [id, lines] : files.members) {
    code |= write_lines(directory + "/member-" + std::to_string(id) + ".jsonl", lines);
  }
  return code;
}

int check(const std::vector<std::string>& paths, bool of_launcher) {
  TraceChecker checker;
  for (const std::string& path : paths) {
    std::ifstream file(path);
    if (!file) {
      std::cerr << "cannot read " << path << "\n";
      return 1;
    }
    std::string line;
    for (std::uint64_t number = 1; std::getline(file, line); ++number) {
      checker.add(line, path + ":" + std::to_string(number));
    }
  }
  const auto& problems = of_launcher ? checker.finish_launcher() : checker.finish();
  for (const std::string& problem : problems) std::cout << problem << "\n";
  std::cout << checker.lines() << " lines, " << checker.members() << " members, " << checker.steps()
            << " steps: " << (problems.empty() ? "accepted" : "refused") << "\n";
  return problems.empty() ? 0 : 1;
}

bool parse(std::string_view text, std::uint64_t& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

int run(const std::vector<std::string>& arguments) {
  const std::string verb = arguments.empty() ? "" : arguments[0];
  const std::size_t count = arguments.size();
  std::uint64_t number = 0;
  std::uint64_t first = 0;
  if (verb == "states" && count == 1) return run_states();
  if (verb == "check" && count > 1) return check({arguments.begin() + 1, arguments.end()}, false);
  if (verb == "check-launcher" && count == 2) return check({arguments[1]}, true);
  if (verb == "trace" && count == 3 && parse(arguments[1], number)) {
    return write_trace(number, arguments[2]);
  }
  if (verb == "seeds" && (count == 2 || count == 3) && parse(arguments[1], number) &&
      (count == 2 || parse(arguments[2], first))) {
    return run_seeds(number, first);
  }
  std::cerr << "usage: membership_simulate seeds COUNT [FIRST] | states | trace SEED DIRECTORY | "
               "check FILE... | check-launcher FILE\n";
  return kWrongArguments;
}

}  // namespace
}  // namespace chainmail::membership

int main(int argc, char** argv) { return chainmail::membership::run({argv + 1, argv + argc}); }
