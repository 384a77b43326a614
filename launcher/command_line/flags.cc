// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/command_line/flags.h"

#include <algorithm>
#include <utility>

#include "launcher/command_line/elastic.h"
#include "launcher/command_line/values.h"
#include "launcher/job/nearest.h"

namespace chainmail::launch {
namespace {

using Names = std::vector<std::string>;
constexpr HelpLevel kCommon = HelpLevel::kCommon;
constexpr HelpLevel kMore = HelpLevel::kMore;
constexpr HelpLevel kAlias = HelpLevel::kAlias;

// The member is Application's for what belongs to one program, Options' for the whole job.
template <typename Owner>
Owner& owner_in(FlagTarget target) {
  if constexpr (std::is_same_v<Owner, Application>) {
    return target.application;
  } else {
    return target.job;
  }
}

// An option whose value `parse(flag, text)` reads.
template <typename Owner, typename Value, typename Parse>
Flag value_flag(Names names, Value Owner::*member, Parse parse, HelpLevel level,
                std::string synopsis, std::string help) {
  return {std::move(names), level, std::move(synopsis), std::move(help),
          [member, parse](FlagTarget target, FlagWords& words) {
            owner_in<Owner>(target).*member = parse(words.flag(), words.value());
          }};
}

// An option without a value; as an alias it sets what another option sets.
Flag plain_flag(Names names, std::function<void(FlagTarget)> apply, HelpLevel level = kAlias,
                std::string synopsis = "", std::string help = "") {
  return {std::move(names), level, std::move(synopsis), std::move(help),
          [apply = std::move(apply)](FlagTarget target, FlagWords& words) {
            words.no_value();
            apply(target);
          }};
}

Flag switch_flag(Names names, bool Options::*member, HelpLevel level, std::string synopsis,
                 std::string help) {
  return plain_flag(
      std::move(names), [member](FlagTarget target) { target.job.*member = true; }, level,
      std::move(synopsis), std::move(help));
}

void append(std::vector<Flag>& flags, std::vector<Flag> more) {
  std::move(more.begin(), more.end(), std::back_inserter(flags));
}

std::vector<Flag> host_flags() {
  return {
      value_flag({"H", "host", "hosts"}, &Application::hosts, parse_text, kCommon, "-H LIST|FILE",
                 "hosts: h1:4,h2:4, or a file: with '/', or one that exists"),
      value_flag({"hostfile", "machinefile", "f"}, &Application::hostfile, parse_text, kCommon,
                 "--hostfile FILE", "hosts from a file: 'name slots=4', one per line"),
      value_flag({"host-discovery", "host-discovery-script"}, &Options::host_discovery, parse_text,
                 kMore, "--host-discovery CMD", "a program that prints the lines of a hostfile"),
      value_flag({"include", "i"}, &Options::include, parse_text, kMore, "--include HOSTS",
                 "only these hosts and slots: h1@h2:0,2"),
      value_flag({"exclude", "e"}, &Options::exclude, parse_text, kMore, "--exclude HOSTS",
                 "all but these hosts and slots"),
      switch_flag({"hostfile-strict"}, &Options::hostfile_strict, kMore, "--hostfile-strict",
                  "refuse a hostfile that names a host twice"),
      value_flag({"rsh", "launcher-exec"}, &Options::remote_shell, parse_text, kCommon,
                 "--rsh COMMAND", "remote shell: ssh, or the scheduler's; '%h' is the host"),
      value_flag({"rsh-args"}, &Options::remote_shell_arguments, parse_text, kMore,
                 "--rsh-args WORDS", "more words for the remote shell, such as '-p 2222 -i KEY'"),
      value_flag({"tree", "treewidth", "tree-width", "branch-count"}, &Options::tree_width,
                 parse_tree, kMore, "--tree auto|no|WIDTH",
                 "how many further hosts each host starts (default: above 64 hosts\nso many that "
                 "two levels do, with ssh)"),
  };
}

std::vector<Flag> rank_flags() {
  return {
      value_flag({"n", "np", "ntasks"}, &Application::ranks, parse_count, kCommon, "-n, -np N",
                 "number of ranks (default: one per slot)"),
      value_flag(
          {"per-node", "N", "npernode", "ppn", "nproc-per-node", "ntasks-per-node", "num-gpus"},
          &Application::per_node,
          [](const std::string& flag, const std::string& text) {
            return parse_per_node(flag, text, gpus_here("/dev"));
          },
          kCommon, "-N, --per-node N", "ranks on each host (-npernode, -ppn, --nproc-per-node)"),
      plain_flag({"pernode"}, [](FlagTarget target) { target.application.per_node = 1; }),
      {{"map-by"},
       kMore,
       "--map-by WHAT",
       "slot (default): fill host after host; node: one rank on each in\n"
       "turn; ppr:N:node: N on each; socket, numa, l3cache: neighbouring\n"
       "ranks on different ones; slot:pe=N: N cores for each rank",
       [](FlagTarget target, FlagWords& words) {
         apply_map_by(words.flag(), words.value(), target.job, target.application);
       }},
      plain_flag({"bynode"}, [](FlagTarget target) { target.job.map_by = MapBy::kNode; }),
      plain_flag({"byslot"}, [](FlagTarget target) { target.job.map_by = MapBy::kSlot; }),
      value_flag({"rank-by"}, &Options::rank_by, parse_rank_by, kMore, "--rank-by slot|node",
                 "number ranks host by host, or in turn (default: as --map-by)"),
      switch_flag({"oversubscribe", "overcommit"}, &Options::oversubscribe, kCommon,
                  "--oversubscribe", "allow more ranks than slots"),
      plain_flag({"nooversubscribe"}, [](FlagTarget target) { target.job.oversubscribe = false; }),
  };
}

std::vector<Flag> binding_flags() {
  const auto bind_to = [](BindTo to) {
    return [to](FlagTarget target) { target.job.binding.to = to; };
  };
  return {
      {{"bind-to"},
       kMore,
       "--bind-to WHAT",
       "core, hwthread, l3cache, numa, socket or none (default: an even\n"
       "share of the node's cores)",
       [](FlagTarget target, FlagWords& words) {
         apply_bind_to(words.flag(), words.value(), target.job);
       }},
      plain_flag({"bind-to-core"}, bind_to(BindTo::kCore)),
      plain_flag({"bind-to-socket"}, bind_to(BindTo::kSocket)),
      plain_flag({"bind-to-none"}, bind_to(BindTo::kNone)),
      plain_flag({"bind-cores-to-rank"}, bind_to(BindTo::kShare)),
      switch_flag({"report-bindings"}, &Options::report_bindings, kMore, "--report-bindings",
                  "say for each rank which processors it runs on"),
  };
}

// "-env NAME VALUE" of Hydra, or "-env NAME=VALUE".
ExportedVariable hydra_variable(FlagWords& words) {
  const std::string text = words.value();
  if (text.find('=') != std::string::npos) return parse_variable(words.flag(), text);
  ExportedVariable variable = parse_variable(words.flag(), text);
  variable.value = words.value();
  return variable;
}

void add_list(FlagWords& words, std::vector<ExportedVariable>& variables) {
  for (const std::string& name : split_list(words.flag(), words.value())) {
    variables.push_back(parse_variable(words.flag(), name));
  }
}

std::vector<Flag> environment_flags() {
  return {
      {{"x", "env"},
       kCommon,
       "-x NAME[=VALUE]",
       "give the ranks a variable; may be repeated",
       [](FlagTarget target, FlagWords& words) {
         auto& variables = target.application.variables;
         if (words.has_one_dash() && words.name() == "env") {
           variables.push_back(hydra_variable(words));
         } else {
           variables.push_back(parse_variable(words.flag(), words.value()));
         }
       }},
      {{"genv"},
       kMore,
       "-genv NAME VALUE",
       "a variable for all programs of ':'",
       [](FlagTarget target, FlagWords& words) {
         target.job.common_variables.push_back(hydra_variable(words));
       }},
      {{"genvlist"},
       kMore,
       "-genvlist A,B",
       "variables of this environment for all programs",
       [](FlagTarget target, FlagWords& words) { add_list(words, target.job.common_variables); }},
      {{"envlist"},
       kAlias,
       "",
       "",
       [](FlagTarget target, FlagWords& words) { add_list(words, target.application.variables); }},
      value_flag({"wdir", "wd", "chdir", "D"}, &Application::working_directory, parse_directory,
                 kCommon, "--wdir DIR", "working directory of the ranks (default: this one)"),
      switch_flag({"preload", "preload-binary", "bcast"}, &Options::preload, kMore, "--preload",
                  "copy the program to every host first, and run the copies"),
      {{"preload-files"},
       kMore,
       "--preload-files A,B",
       "copy files, too; ranks find them in $CHAINMAIL_PRELOAD_DIR",
       [](FlagTarget target, FlagWords& words) {
         for (std::string& path : split_list(words.flag(), words.value())) {
           target.job.preload_files.push_back(std::move(path));
         }
       }},
      value_flag({"mpi"}, &Options::mpi, parse_mpi, kMore, "--mpi MODE",
                 "how MPI_Init finds its job: auto, pmix, pmi1 or none\n(default: auto)"),
      plain_flag(
          {"encrypt"}, [](FlagTarget target) { target.job.encryption = "encrypt"; }, kCommon,
          "--encrypt", "encrypt and authenticate the ranks' data between hosts"),
      plain_flag(
          {"authenticate"},
          [](FlagTarget target) {
            if (target.job.encryption.empty()) target.job.encryption = "authenticate";
          },
          kMore, "--authenticate",
          "authenticate them alone: nobody changes them, some may read them"),
      switch_flag({"torchrun-env"}, &Options::torchrun_env, kMore, "--torchrun-env",
                  "also set MASTER_ADDR and MASTER_PORT"),
  };
}

std::vector<Flag> output_flags() {
  return {
      switch_flag({"tag-output", "prepend-rank", "label", "l"}, &Options::tag_output, kCommon,
                  "--tag-output", "begin every line with [host/rank]"),
      switch_flag({"timestamp", "timestamp-output", "prefix-output-with-timestamp"},
                  &Options::timestamp, kMore, "--timestamp",
                  "begin every line with the date and time"),
      value_flag({"output", "output-filename", "log-dir"}, &Options::output_dir, parse_text,
                 kCommon, "--output DIR", "also write DIR/rank.<r>/stdout and stderr"),
      value_flag({"stdin"}, &Options::input, parse_input_target, kMore, "--stdin RANK|all|none",
                 "who reads the launcher's input (default: rank 0)"),
  };
}

std::vector<Flag> run_flags() {
  return {
      value_flag({"timeout"}, &Options::timeout, parse_duration, kCommon, "--timeout TIME",
                 "end the job after TIME (seconds, 500ms, 10m, 2h, 7d; 0:\nnever): exit code 124"),
      value_flag({"stall-timeout"}, &Options::stall_timeout, parse_duration, kMore,
                 "--stall-timeout TIME",
                 "end the job when a rank makes no step for TIME\n(default: only said, after 10m)"),
      value_flag({"grace"}, &Options::grace, parse_duration, kMore, "--grace TIME",
                 "from SIGTERM to SIGKILL on a signal (default: 30 s, Ctrl-C 5 s)"),
      value_flag({"start-timeout"}, &Options::start_timeout, parse_duration, kMore,
                 "--start-timeout TIME",
                 "how long a login and the start of a rank may take\n(default: 30 s and 5m; 0: as "
                 "long as they like)"),
      value_flag({"wait-hosts"}, &Options::wait_hosts, parse_duration, kMore, "--wait-hosts TIME",
                 "how long hosts out of reach are tried again (default: 0, and 10m\nwhen ranks are "
                 "started anew)"),
      value_flag({"lease"}, &Options::lease, parse_duration, kMore, "--lease TIME",
                 "how long a host may be silent before it is lost (default: 8 s)"),
      value_flag({"shards"}, &Options::shards, parse_shards, kMore, "--shards V",
                 "parts of a step whose result is the same on any number of ranks,\n"
                 "for programs with create_elastic_job"),
      value_flag({"max-restarts"}, &Options::max_restarts, parse_limit, kMore, "--max-restarts N",
                 "start all ranks anew after a failure, N times at most"),
      switch_flag({"dry-run", "do-not-launch"}, &Options::dry_run, kCommon, "--dry-run",
                  "print the plan and start nothing"),
      switch_flag({"display-map", "display-allocation"}, &Options::display_map, kMore,
                  "--display-map", "print the plan to stderr, then start the job"),
      switch_flag({"json"}, &Options::json, kMore, "--json", "with --dry-run: the plan as JSON"),
      // mpirun refuses root without it; here it is what everybody has in scripts, and true anyway.
      plain_flag({"allow-run-as-root"}, [](FlagTarget) {}),
      switch_flag({"help", "h"}, &Options::help, kCommon, "--help, --help-all",
                  "this page; all options"),
      switch_flag({"help-all"}, &Options::help_all, kAlias, "", ""),
      switch_flag({"version", "V"}, &Options::version, kMore, "--version", "the version"),
  };
}

// An option of elastic jobs whose value `parse(flag, text)` reads.
template <typename Value, typename Parse>
Flag elastic_flag(Names names, Value ElasticOptions::*member, Parse parse, std::string synopsis,
                  std::string help, HelpLevel level = kMore) {
  return {std::move(names), level, std::move(synopsis), std::move(help),
          [member, parse](FlagTarget target, FlagWords& words) {
            target.job.elastic.*member = parse(words.flag(), words.value());
          }};
}

std::uint32_t parse_size(const std::string& flag, const std::string& text) {
  return static_cast<std::uint32_t>(parse_count(flag, text));
}

std::uint32_t parse_most(const std::string& flag, const std::string& text) {
  return static_cast<std::uint32_t>(parse_limit(flag, text));
}

std::vector<Flag> elastic_flags() {
  using Elastic = ElasticOptions;
  return {
      {{"elastic"},
       kCommon,
       "--elastic MIN:MAX",
       "ranks come and go with the lines of the hosts file",
       [](FlagTarget target, FlagWords& words) {
         apply_elastic(words.flag(), words.value(), target.job.elastic);
       }},
      elastic_flag({"min-np", "min-num-proc"}, &Elastic::min, parse_size, "", "", kAlias),
      elastic_flag({"max-np", "max-num-proc"}, &Elastic::max, parse_size, "", "", kAlias),
      elastic_flag({"prepare"}, &Elastic::prepare, parse_text, "--prepare COMMAND",
                   "run it on each host before its first rank; another code than 0 keeps\nthe host "
                   "out of an elastic job, and ends any other"),
      plain_flag(
          {"prepare-only-file"},
          [](FlagTarget target) { target.job.elastic.prepare_only_file = true; }, kMore,
          "--prepare-only-file",
          "a host is let in when somebody makes prepare_data_success_HOST\nbeside the hosts file"),
      elastic_flag({"prepare-timeout"}, &Elastic::prepare_timeout, parse_duration,
                   "--prepare-timeout TIME", "how long it may take (default: 1h)"),
      elastic_flag({"discovery-interval"}, &Elastic::discovery_interval, parse_duration,
                   "--discovery-interval TIME",
                   "how often --host-discovery is asked for other hosts (default: 5 s)"),
      elastic_flag({"spares"}, &Elastic::spares, parse_most, "--spares N",
                   "ranks beyond MAX that wait, started, to take a lost one's place"),
      plain_flag(
          {"resume"}, [](FlagTarget target) { target.job.elastic.resumes = true; }, kMore,
          "--resume",
          "go on with the elastic job of this hosts file whose launcher has ended;\nwith --job: in "
          "the folders of the last job of that name"),
      elastic_flag({"elastic-window"}, &Elastic::window, parse_duration, "--elastic-window TIME",
                   "changes of the hosts file within TIME are made together (default: 2 s)"),
      elastic_flag({"elastic-timeout"}, &Elastic::timeout, parse_duration, "--elastic-timeout TIME",
                   "how long to wait with fewer ranks than MIN (default: 10m)"),
      elastic_flag({"drain-timeout"}, &Elastic::drain_timeout, parse_duration,
                   "--drain-timeout TIME",
                   "how long a rank that is to leave may take to end its step (default: 30 s)"),
      {{"cooldown", "blacklist-cooldown-range"},
       kMore,
       "--cooldown A:B",
       "a host that failed is left alone for A, twice as long each time, at\nmost B (default: "
       "1s:5m)",
       [](FlagTarget target, FlagWords& words) {
         std::string text = words.value();
         if (words.name() != "cooldown") text += " " + words.value();
         apply_cooldown(words.flag(), text, target.job.elastic);
       }},
      elastic_flag({"max-changes", "reset-limit"}, &Elastic::max_changes, parse_most,
                   "--max-changes N",
                   "take nobody in or out after N changes; a death then ends the job"),
  };
}

std::vector<Flag> job_file_flags() {
  using Job = JobFileOptions;
  const auto job_flag = [](const char* name, auto apply, std::string synopsis, std::string help,
                           HelpLevel level = kMore) {
    return Flag{{name},
                level,
                std::move(synopsis),
                std::move(help),
                [apply](FlagTarget target, FlagWords& words) { apply(target.job.job, words); }};
  };
  const auto text_of = [](FlagWords& words) { return parse_text(words.flag(), words.value()); };
  return {
      job_flag(
          "job", [=](Job& job, FlagWords& words) { job.file = text_of(words); }, "--job FILE",
          "run the job that a file describes (docs/jobs.md)", kCommon),
      job_flag(
          "name", [=](Job& job, FlagWords& words) { job.name = text_of(words); }, "--name NAME",
          "with --job: what the job is called"),
      job_flag(
          "set", [=](Job& job, FlagWords& words) { job.sets.push_back(text_of(words)); },
          "--set KEY=VALUE", "with --job: another value for a key, such as limits.time=1h"),
      job_flag(
          "mount",
          [=](Job& job, FlagWords& words) {
            const ExportedVariable mount = parse_mount(words.flag(), words.value());
            job.mounts[mount.name] = *mount.value;
          },
          "--mount NAME=DIR", "with --job: where what its file mounts as NAME is"),
      job_flag(
          "secret", [=](Job& job, FlagWords& words) { job.secrets.push_back(text_of(words)); },
          "--secret NAME[=@FILE]",
          "with --job: a secret's value, from the launcher's environment or\na file"),
      job_flag(
          "detach",
          [](Job& job, FlagWords& words) {
            words.no_value();
            job.is_detached = true;
          },
          "--detach", "with --job: return when the ranks have started"),
      job_flag(
          "no-wait",
          [](Job& job, FlagWords& words) {
            words.no_value();
            job.has_no_wait = true;
          },
          "--no-wait", "with --detach: return at once"),
  };
}

std::vector<Flag> all_flags() {
  std::vector<Flag> flags = host_flags();
  append(flags, rank_flags());
  append(flags, environment_flags());
  append(flags, output_flags());
  append(flags, binding_flags());
  append(flags, elastic_flags());
  append(flags, job_file_flags());
  append(flags, run_flags());
  return flags;
}

}  // namespace

FlagWords::FlagWords(std::span<const std::string> arguments) : arguments_(arguments) {
  const std::string& word = arguments.front();
  const std::size_t equals = word.find('=');
  has_inline_value_ = equals != std::string::npos;
  flag_ = word.substr(0, equals);
}

std::string FlagWords::name() const {
  std::string name = flag_.substr(has_one_dash() ? 1 : 2);
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

std::string FlagWords::value() {
  if (has_inline_value_ && !std::exchange(took_inline_value_, true)) {
    return arguments_.front().substr(flag_.size() + 1);
  }
  if (used_ == arguments_.size()) throw UsageError(flag_ + " needs a value");
  return arguments_[used_++];
}

void FlagWords::no_value() const {
  if (has_inline_value_) throw UsageError(flag_ + " takes no value");
}

const std::vector<Flag>& known_flags() {
  static const std::vector<Flag> flags = all_flags();
  return flags;
}

const Flag* find_flag(const std::string& name) {
  for (const Flag& flag : known_flags()) {
    if (std::find(flag.names.begin(), flag.names.end(), name) != flag.names.end()) return &flag;
  }
  return nullptr;
}

std::string nearest_flag(const std::string& name) {
  std::vector<std::string> names;
  for (const Flag& flag : known_flags())
    names.insert(names.end(), flag.names.begin(), flag.names.end());
  const std::string nearest = nearest_of(name, names);
  return nearest.empty() ? "" : "--" + nearest;
}

}  // namespace chainmail::launch
