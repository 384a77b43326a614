// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include <algorithm>
#include <chrono>
#include <optional>
#include <stdexcept>

#include "launcher/hosts/host_text.h"
#include "launcher/hosts/schedulers/schedulers.h"
#include "launcher/hosts/this_machine.h"
#include "launcher/job/text.h"
#include "launcher/process/command_output.h"

namespace chainmail::launch {
namespace {

constexpr std::chrono::seconds kLimit{10};
constexpr std::size_t kMostOutput = std::size_t{4} << 20;

// "gpu:2", "gpu:a100:2", without what stands in brackets; 0 for everything else.
int gpus_in(std::string_view item) {
  if (item.rfind("gpu:", 0) != 0) return 0;
  const int count = whole_number(item.substr(item.rfind(':') + 1)).value_or(0);
  return count > 0 && count <= kMaxSlotsPerHost ? count : 0;
}

// "gpu:a100:2(IDX:0,3),shard:4(IDX:0-3)": commas inside of brackets separate nothing.
int gpus_of(std::string_view list) {
  int gpus = 0;
  std::string item;
  int depth = 0;
  for (const char c : list) {
    if (c == '(') ++depth;
    if (depth == 0 && c != ',') item += c;
    if (c == ')') --depth;
    if (depth > 0 || c != ',') continue;
    gpus += gpus_in(item);
    item.clear();
  }
  return gpus + gpus_in(item);
}

std::optional<std::string_view> value_in(const std::vector<Token>& words, std::string_view name) {
  for (const Token& word : words) {
    if (word.text.rfind(name, 0) == 0) return word.text.substr(name.size());
  }
  return std::nullopt;
}

bool counts_otherwise(const Environment& variables) {
  constexpr const char* kRequests[] = {"SLURM_GPUS", "SLURM_GPUS_PER_TASK", "SLURM_GPUS_PER_SOCKET",
                                       "SLURM_NTASKS_PER_GPU", "SLURM_TRES_PER_TASK"};
  return std::any_of(std::begin(kRequests), std::end(kRequests), [&variables](const char* name) {
    return std::any_of(variables.begin(), variables.end(), [name](const auto& variable) {
      const std::string& found = variable.first;
      return found == name || found.rfind(std::string(name) + "_HET_GROUP_", 0) == 0;
    });
  });
}

std::map<std::string, int> ask_scontrol(const std::string& job) {
  RunningCommand scontrol({"scontrol", "show", "job", "-d", job}, "");
  const CommandOutput output =
      scontrol.finish(std::chrono::steady_clock::now() + kLimit, kMostOutput);
  if (!output.failure.empty()) throw std::runtime_error("scontrol " + output.failure);
  return parse_slurm_gpus(output.out);
}

}  // namespace

std::map<std::string, int> parse_slurm_gpus(std::string_view text) {
  std::map<std::string, int> gpus;
  for_each_line(text, "scontrol", [&](const Cursor&, std::string_view line) {
    const std::vector<Token> words = blank_separated(line);
    const auto nodes = value_in(words, "Nodes=");
    const auto resources = value_in(words, "GRES=");
    if (!nodes || !resources) return;
    try {
      for (const std::string& name : expand_slurm_nodes(*nodes, "scontrol")) {
        gpus[name] += gpus_of(*resources);
      }
    } catch (const std::runtime_error&) {
      return;
    }
  });
  return gpus;
}

void count_slurm_gpus(const Environment& variables, HostSet& set) {
  const auto job = value_of(variables, "SLURM_JOB_ID");
  if (!job || !counts_otherwise(variables)) return;
  try {
    const auto gpus = ask_scontrol(*job);
    for (Host& host : set.hosts) {
      const auto found = std::find_if(gpus.begin(), gpus.end(), [&host](const auto& node) {
        return is_same_name(node.first, host.name);
      });
      if (found != gpus.end()) host.gpus = found->second;
    }
  } catch (const std::runtime_error& error) {
    set.notes.push_back(
        "ranks on other hosts may see fewer GPUs than the job has there, because "
        "Slurm does not tell how many that is: " +
        std::string(error.what()));
  }
}

}  // namespace chainmail::launch
