// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/command_line/elastic.h"

#include <unistd.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "launcher/command_line/parse.h"
#include "launcher/command_line/values.h"
#include "launcher/job/environment.h"
#include "launcher/job/text.h"

namespace chainmail::launch {
namespace {

[[noreturn]] void refuse_beside(const std::string& option, const std::string& why) {
  throw UsageError(option + " and --elastic exclude each other: " + why);
}

// One of several programs, a number of ranks on each host and the like say where ranks go; here the
// lines of the hosts file do.
void check_placement(const Options& options) {
  if (!options.more_applications.empty()) {
    refuse_beside("several programs (':')", "a rank may start on any host at any time");
  }
  if (options.per_node || options.map_by || options.rank_by) {
    refuse_beside("--per-node, --map-by and --rank-by",
                  "the hosts file says how many ranks a host has (slots=N)");
  }
  if (!options.include.empty() || !options.exclude.empty()) {
    refuse_beside("--include and --exclude", "take the hosts out of the hosts file instead");
  }
  if (options.torchrun_env) refuse_beside("--torchrun-env", "there is no rank 0 that stays");
}

// What a job of fixed size has of these.
void complete_preparation(Options& options) {
  const ElasticOptions& given = options.elastic;
  if (given.prepare.empty()) {
    if (given.prepare_timeout) throw UsageError("--prepare-timeout goes with --prepare COMMAND");
    return;
  }
  options.preparation.words = split_command(given.prepare, "--prepare");
  options.preparation.timeout = given.prepare_timeout;
}

void check_services(const Options& options) {
  if (options.wait_hosts) {
    refuse_beside("--wait-hosts", "its hosts join when they can be reached (--elastic-timeout)");
  }
  if (options.max_restarts > 0) {
    refuse_beside("--max-restarts", "ranks that live on are not started anew");
  }
  if (options.tree_width.value_or(0) != 0) {
    refuse_beside("--tree", "a host that leaves must not take others with it");
  }
  if (options.mpi == MpiMode::kPmix || options.mpi == MpiMode::kPmi1) {
    refuse_beside("--mpi", "MPI's world keeps its size");
  }
  if (options.preload || !options.preload_files.empty()) {
    refuse_beside("--preload", "hosts that join later would not get the files");
  }
  if (options.input.kind == InputTarget::Kind::kAll || options.input.rank != 0) {
    refuse_beside("--stdin", "no rank is sure to stay; let ranks read files");
  }
}

// Where nobody comes or goes they would do nothing.
void refuse_without_elastic(const ElasticOptions& given) {
  const std::pair<const char*, bool> options[] = {
      {"--elastic-window", given.window.has_value()},
      {"--elastic-timeout", given.timeout.has_value()},
      {"--drain-timeout", given.drain_timeout.has_value()},
      {"--cooldown", given.cool_down.has_value()},
      {"--max-changes", given.max_changes.has_value()},
  };
  for (const auto& [name, is_given] : options) {
    if (is_given) throw UsageError(std::string(name) + " goes with --elastic MIN:MAX");
  }
}

// What cannot be run here will hardly be there.
void check_prepare(const ElasticOptions& elastic) {
  if (elastic.prepare.empty()) return;
  if (elastic.prepare_only_file) {
    throw UsageError("--prepare and --prepare-only-file exclude each other; give one of them");
  }
  const std::string program = split_command(elastic.prepare, "--prepare").front();
  std::vector<std::string> files = {program};
  if (program.find('/') == std::string::npos) {
    const auto path = value_of(current_environment(), "PATH");
    files = files_in_path(path.value_or("/bin:/usr/bin"), program);
  }
  const bool is_there = std::any_of(files.begin(), files.end(), [](const std::string& file) {
    return access(file.c_str(), X_OK) == 0;
  });
  if (!is_there) {
    throw UsageError("--prepare " + elastic.prepare + ": " + program +
                     " is not executable here; make it so (chmod +x), or give its whole path");
  }
}

void check_discovery(const Options& options) {
  if (!options.elastic.discovery_interval) return;
  if (options.host_discovery.empty()) {
    throw UsageError("--discovery-interval goes with --host-discovery CMD");
  }
  if (options.elastic.discovery_interval->count() < 100) {
    throw UsageError("--discovery-interval: 0.1 s at least");
  }
}

void check_sizes(const Options& options) {
  const membership::SizeRange sizes = options.elastic.sizes();
  const std::string range = options.elastic.sizes_text();
  if (sizes.fit(sizes.max) == 0) {
    throw UsageError("--elastic " + range + " allows no number of ranks");
  }
  if (options.ranks) {
    const auto first = static_cast<std::uint32_t>(*options.ranks);
    if (sizes.fit(first) != first) {
      throw UsageError("-n " + std::to_string(first) + " is none of the sizes of --elastic " +
                       range);
    }
  }
  if (*options.shards < sizes.max) {
    throw UsageError("--shards " + std::to_string(*options.shards) + " cannot occupy " +
                     std::to_string(sizes.max) + " ranks (--elastic " + range +
                     "); use at least as many shards");
  }
}

}  // namespace

void apply_elastic(const std::string& flag, const std::string& text, ElasticOptions& elastic) {
  const std::vector<std::string> parts = split(text, ':');
  const bool is_range = parts.size() == 2 || parts.size() == 3;
  if (!is_range || (parts[0].empty() && parts[1].empty())) {
    throw UsageError(flag + " must be MIN:MAX, MIN:, :MAX or MIN:MAX:MULTIPLE, not '" + text + "'");
  }
  const auto number = [&](const std::string& part) {
    return static_cast<std::uint32_t>(parse_count(flag, part));
  };
  if (!parts[0].empty()) elastic.min = number(parts[0]);
  if (!parts[1].empty()) elastic.max = number(parts[1]);
  if (parts.size() == 3) elastic.multiple = number(parts[2]);
}

void apply_cooldown(const std::string& flag, const std::string& text, ElasticOptions& elastic) {
  const std::size_t between = text.find_first_of(": ");
  if (between == std::string::npos) {
    throw UsageError(flag + " must be two times such as 1s:5m, not '" + text + "'");
  }
  elastic.cool_down = parse_duration(flag, text.substr(0, between));
  elastic.cool_down_most = parse_duration(flag, text.substr(between + 1));
  if (*elastic.cool_down_most < *elastic.cool_down) {
    throw UsageError(flag + " " + text + ": the second time is the longest, and not the shorter");
  }
}

void complete_elastic(Options& options) {
  ElasticOptions& elastic = options.elastic;
  check_prepare(elastic);
  if (!elastic.is_on()) {
    // A job of --job goes on with the folders of the one before.
    const bool resumes_job = elastic.resumes && options.job.is_on();
    if (elastic.prepare_only_file || elastic.spares > 0 || (elastic.resumes && !resumes_job)) {
      throw UsageError("--prepare-only-file, --spares and --resume go with --elastic MIN:MAX");
    }
    complete_preparation(options);
    refuse_without_elastic(elastic);
    if (elastic.discovery_interval) {
      throw UsageError("--discovery-interval goes with --elastic MIN:MAX: other jobs ask " +
                       std::string("--host-discovery once, when they start"));
    }
    return;
  }
  check_placement(options);
  check_services(options);
  check_discovery(options);
  if (!elastic.max && !options.shards) {
    throw UsageError(
        "--elastic without a largest size needs --shards V, which is the largest then");
  }
  if (!elastic.max) elastic.max = options.shards;
  if (!options.shards) options.shards = elastic.max;
  check_sizes(options);
  options.mpi = MpiMode::kNone;
  options.input = {InputTarget::Kind::kNone, 0};
  options.tree_width = 0;
}

}  // namespace chainmail::launch
