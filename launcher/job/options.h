// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What a job is asked to be, as the command line says it (command_line/parse.h). Values.

#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "launcher/job/elastic_options.h"
#include "launcher/job/host_setup.h"
#include "launcher/job/job_file_options.h"

namespace chainmail::launch {

/// The user's mistake on the command line: exit code 2.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Which process managers a job's ranks find: --mpi. The numbers travel to the agents.
enum class MpiMode : std::uint8_t { kNone, kAuto, kPmix, kPmi1 };

/// Where the next rank goes: to the next slot of the same host, or to the next host.
enum class MapBy { kSlot, kNode };

/// What one rank may run on. The numbers travel to the agents.
enum class BindTo : std::uint8_t {
  kShare = 0,     ///< neighbouring cores, as many as an even share gives; the default
  kNone = 1,      ///< whatever the agent may run on
  kHwthread = 2,  ///< one logical processor
  kCore = 3,      ///< one core with its hardware threads
  kL3 = 4,        ///< the cores that share a level-3 cache
  kNuma = 5,      ///< a NUMA node
  kSocket = 6,    ///< a processor package
};
inline constexpr std::uint8_t kBindToCount = 7;

struct Binding {
  BindTo to = BindTo::kShare;
  /// Cores (or hardware threads) of each rank with kCore (kHwthread): `--map-by slot:pe=N`.
  std::uint32_t width = 1;
  /// Neighbouring ranks go to different L3 caches, NUMA nodes or sockets instead of filling one
  /// before the next: `--map-by socket`.
  bool scatter = false;
  /// More ranks than cores share them instead of being refused.
  bool overload = false;
  static void fields(auto& archive, auto& m) { archive(m.to, m.width, m.scatter, m.overload); }
};

/// One `-x NAME` (value taken from the launcher's environment) or `-x NAME=value`.
struct ExportedVariable {
  std::string name;
  std::optional<std::string> value;
};

/// One program of a job and what belongs to it alone: `launcher -n 1 ./a : -n 3 ./b` has two.
struct Application {
  std::string hosts;     ///< -H
  std::string hostfile;  ///< --hostfile
  std::optional<int> ranks;
  std::optional<int> per_node;
  std::vector<ExportedVariable> variables;
  std::string working_directory;     ///< empty: the launcher's; otherwise absolute
  std::vector<std::string> program;  ///< program and its arguments
  /// The program's words, its working directory and the values of its variables are patterns
  /// (launcher/job/expansion.h), expanded on the rank's host; see agent/expanded_program.h. Not
  /// those of --genv and of the launcher's own environment.
  bool expands = false;
};

/// A secret, which the launcher itself does not say.
struct HiddenValue {
  std::string name;
  std::string value;
};

/// Who reads the launcher's standard input.
struct InputTarget {
  enum class Kind { kRank, kAll, kNone };
  Kind kind = Kind::kRank;
  int rank = 0;
};

/// Descriptors that get a copy of the job's output; -1: none. They stay their owner's, outlive the
/// job, and should have O_APPEND.
struct OutputCopies {
  int stdout_fd = -1;
  int stderr_fd = -1;
  int log_fd = -1;  ///< the launcher's own lines, each with its time

  /// Everything that is written goes to a job's own folder as well, whose loss fails nothing.
  [[nodiscard]] bool is_on() const noexcept { return log_fd >= 0; }
};

/// What is inherited belongs to the first program.
struct Options : Application {
  std::vector<Application> more_applications;      ///< after each ':'
  std::vector<ExportedVariable> common_variables;  ///< -genv: for all programs
  std::string host_discovery;                      ///< --host-discovery, a command
  std::string include;                             ///< --include, hosts and slots to use
  std::string exclude;                             ///< --exclude, hosts and slots to leave out
  std::string remote_shell;                        ///< empty: what reaches the hosts best
  std::string remote_shell_arguments;              ///< words after the remote shell's own
  std::string output_dir;
  std::string events_dir;  ///< no option: where events.jsonl stays; empty: in output_dir
  OutputCopies copies;
  bool is_silent = false;  ///< nothing goes to standard output and standard error
  bool preload = false;    ///< hosts get a copy of each program
  std::vector<std::string> preload_files;
  std::optional<std::chrono::milliseconds> timeout;
  std::optional<std::chrono::milliseconds> grace;
  std::optional<std::chrono::milliseconds> lease;          ///< --lease: silence that is a loss
  std::optional<std::chrono::milliseconds> start_timeout;  ///< of a login and of a rank's start
  /// --wait-hosts: how long hosts out of reach are tried again; nothing: not at the first start,
  /// and ten minutes at a restart
  std::optional<std::chrono::milliseconds> wait_hosts;
  Container container;
  Preparation preparation;          ///< of a job of fixed size; elastic.prepare is what others have
  std::vector<HiddenValue> hidden;  ///< no option
  bool has_job_temp = false;        ///< ranks find a folder of the job's own in CHAINMAIL_JOB_TEMP
  MpiMode mpi = MpiMode::kAuto;
  std::optional<std::chrono::milliseconds> stall_timeout;
  std::optional<MapBy> map_by;  ///< default: as the scheduler numbers tasks, else kSlot
  std::optional<MapBy> rank_by;
  /// --tree: how many agents each machine starts; 0: this one all; nothing: as the number of hosts
  /// says
  std::optional<std::uint32_t> tree_width;
  std::string encryption;  ///< --encrypt, --authenticate: what CHAINMAIL_ENCRYPT is; empty: neither
  std::optional<std::uint32_t> shards;  ///< --shards: what CHAINMAIL_SHARDS is
  ElasticOptions elastic;               ///< --elastic
  JobFileOptions job;                   ///< --job
  int max_restarts = 0;                 ///< how often the world may be started anew after a failure
  Binding binding;
  InputTarget input;
  bool oversubscribe = false;
  bool hostfile_strict = false;  ///< a host named twice in a hostfile is an error
  bool report_bindings = false;
  bool tag_output = false;
  bool timestamp = false;
  bool dry_run = false;
  std::string
      said_reason;  ///< why no host could be reached in the try before: not to be said again
  bool display_map = false;  ///< show the plan, then start the job
  bool json = false;
  bool torchrun_env = false;
  bool help = false;
  bool help_all = false;
  bool version = false;
};

/// What ranks of an elastic job get from being told to leave to SIGTERM.
[[nodiscard]] inline std::chrono::milliseconds elastic_grace(const Options& options) {
  constexpr std::chrono::milliseconds kDefault{5000};
  constexpr std::chrono::milliseconds kMost = std::chrono::hours(24 * 7);
  return std::min(options.grace.value_or(kDefault), kMost);
}

/// All programs of the job, in the order of the command line.
[[nodiscard]] inline std::vector<Application> applications_of(const Options& options) {
  std::vector<Application> all = {options};
  all.insert(all.end(), options.more_applications.begin(), options.more_applications.end());
  return all;
}

}  // namespace chainmail::launch
