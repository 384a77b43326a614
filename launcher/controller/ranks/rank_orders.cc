// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/controller/ranks/rank_orders.h"

#include <algorithm>
#include <cstdlib>
#include <set>
#include <string>

#include "launcher/controller/ranks/rank_input.h"
#include "launcher/job/environment.h"
#include "launcher/job/expansion.h"

namespace chainmail::launch {
namespace {

// Of one stream of one rank: so many that the launcher stays small with a slow reader, and as many
// as keep a fast one busy.
std::size_t output_window(std::size_t ranks) {
  constexpr std::size_t kAllBytes = std::size_t{16} << 20;
  constexpr std::size_t kLeast = std::size_t{64} << 10;
  constexpr std::size_t kMost = std::size_t{256} << 10;
  return std::clamp(kAllBytes / (2 * ranks), kLeast, kMost);
}

// `missing`: names that were asked for and that there are none of.
OrderedProgram program_of(const Application& application, const Options& options,
                          const Environment& own, std::set<std::string>& missing) {
  OrderedProgram program;
  program.expands = application.expands;
  program.words = application.program;
  program.working_directory = application.working_directory;
  if (program.working_directory.empty()) {
    program.working_directory =
        program.expands ? as_pattern(current_directory()) : current_directory();
  }
  std::vector<ExportedVariable> exported = options.common_variables;
  for (const ExportedVariable& variable : application.variables) {
    if (program.expands && variable.value) {
      program.patterns[variable.name] = *variable.value;
    } else {
      exported.push_back(variable);
    }
  }
  std::vector<std::string> absent;
  program.variables = exported_environment(own, exported, absent);
  missing.insert(absent.begin(), absent.end());
  return program;
}

}  // namespace

RankOrders::RankOrders(JobState& job, const std::vector<int>& ignored_signals)
    : job_(job), ignored_signals_(ignored_signals.begin(), ignored_signals.end()) {
  const Environment own = current_environment();
  std::set<std::string> missing;
  for (const Application& application : applications_of(job_.options)) {
    programs_.push_back(program_of(application, job_.options, own, missing));
  }
  for (const std::string& name : missing) {
    job_.say("launcher: -x " + name + ": there is no such variable here; it is not set");
  }
}

void RankOrders::add_torchrun_variables() {
  const AgentHello& first = *job_.agents[0].link->hello();
  const std::string address = first.addresses.substr(0, first.addresses.find(','));
  for (OrderedProgram& program : programs_) {
    program.variables["MASTER_ADDR"] = job_.agents.size() == 1 ? "127.0.0.1" : address;
    program.variables["MASTER_PORT"] = std::to_string(first.free_port);
  }
}

bool RankOrders::has_input(std::uint32_t rank) const {
  const InputTarget& input = job_.options.input;
  if (input.kind == InputTarget::Kind::kNone) return false;
  const bool is_meant =
      input.kind == InputTarget::Kind::kAll || static_cast<std::uint32_t>(input.rank) == rank;
  return is_meant && InputReader::is_worthwhile();
}

std::vector<std::uint32_t> RankOrders::ranks_with_input() const {
  std::vector<std::uint32_t> ranks;
  for (std::uint32_t rank = 0; rank < job_.ranks.size(); ++rank) {
    if (has_input(rank)) ranks.push_back(rank);
  }
  return ranks;
}

std::chrono::milliseconds RankOrders::start_timeout() const {
  // Shared file systems take minutes when all hosts ask them at once, and then give an answer.
  constexpr std::chrono::milliseconds kDefault = std::chrono::minutes(5);
  constexpr std::chrono::milliseconds kMost = std::chrono::hours(24 * 7);
  return std::min(job_.options.start_timeout.value_or(kDefault), kMost);
}

StartOrder RankOrders::with_ranks(std::uint32_t node) const {
  StartOrder order = without_ranks(node);
  order.world_size = static_cast<std::uint32_t>(job_.ranks.size());
  order.node_rank = node;
  for (const PlacedRank& placed : job_.placement.ranks) {
    if (static_cast<std::uint32_t>(placed.node) != node) continue;
    const auto rank = static_cast<std::uint32_t>(placed.rank);
    order.ranks.push_back({rank, static_cast<std::uint32_t>(placed.application), has_input(rank)});
  }
  return order;
}

StartOrder RankOrders::without_ranks(std::uint32_t node) const {
  const Host& host = job_.agents[node].asked;
  const ElasticOptions& elastic = job_.options.elastic;
  StartOrder order;
  order.generation = job_.generation;
  order.programs = programs_;
  for (OrderedProgram& program : order.programs) add_variables_of(host, program.variables);
  order.binding = job_.options.binding;
  order.start_timeout_ms = static_cast<std::uint32_t>(start_timeout().count());
  order.processors = static_cast<std::uint32_t>(host.processors.value_or(0));
  order.output_window = static_cast<std::uint32_t>(
      output_window(elastic.is_on() ? elastic.sizes().max + elastic.spares : job_.ranks.size()));
  order.carriage_returns = job_.has_terminal();
  order.window = own_window_size();
  const char* terminal = std::getenv("TERM");
  for (OrderedProgram& program : order.programs) {
    if (order.carriage_returns && terminal != nullptr) program.variables.emplace("TERM", terminal);
  }
  order.ignored_signals = ignored_signals_;
  order.has_job_temp = job_.options.has_job_temp;
  return order;
}

}  // namespace chainmail::launch
