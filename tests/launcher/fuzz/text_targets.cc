// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "base/error.h"
#include "launcher/command_line/parse.h"
#include "launcher/hosts/host_filter.h"
#include "launcher/hosts/hostfile.h"
#include "launcher/hosts/schedulers/schedulers.h"
#include "launcher/hosts/watched_hosts.h"
#include "launcher/jobs/commands/shown_text.h"
#include "launcher/jobs/folder/job_record.h"
#include "tests/launcher/fuzz/fuzz_targets.h"
#include "tests/launcher/hosts/corpus.h"
#include "tests/launcher/hosts/print_hostfile.h"

namespace chainmail::launch {
namespace {

constexpr const char* kWhere = "text";

// What may stand on a remote shell's command line.
bool is_harmless(const std::string& word) {
  return !word.empty() && word.front() != '-' && std::all_of(word.begin(), word.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           std::string_view("._-:%").find(c) != std::string_view::npos;
  });
}

bool is_same(const Host& one, const Host& other) {
  return one.name == other.name && one.slots == other.slots && one.has_slots == other.has_slots &&
         one.all_cores == other.all_cores && one.max_slots == other.max_slots &&
         one.user == other.user && one.port == other.port;
}

void check_hosts(const std::vector<Host>& hosts) {
  promise(!hosts.empty(), "at least one host");
  for (const Host& host : hosts) {
    promise(is_harmless(host.name), "a harmless name");
    promise(host.user.empty() || is_harmless(host.user), "a harmless user");
    promise(host.slots >= 1 && host.slots <= kMaxSlotsPerHost, "slots in range");
  }
  const std::vector<Host> again = parse_hostfile(print_hostfile(hosts), "printed");
  promise(std::equal(hosts.begin(), hosts.end(), again.begin(), again.end(), is_same),
          "what is printed reads as the same hosts");
}

void check_message(const std::exception& error) {
  const std::string_view message = error.what();
  promise(!message.empty() && message.size() < 2000, "a message of bearable length");
  for (const char c : message)
    promise(c >= ' ' && c < 0x7f, "a message without control characters");
}

// No hosts are allowed, and kept by nobody.
std::vector<Host> parse_some_watched_hosts(std::string_view text) {
  std::vector<Host> hosts = parse_watched_hosts(text, kWhere);
  promise(text.empty() || text.back() == '\n', "a whole last line");
  for (const Host& host : hosts) promise(!host.all_cores, "a number of slots");
  return hosts.empty() ? parse_hostfile("n1\n", kWhere) : hosts;
}

// A parser of hosts by name, its kind in the corpus, and how it is called.
template <typename Parse>
FuzzTarget hosts_target(const std::string& name, const std::string& kind, Parse parse) {
  return {name,
          [parse](std::string_view text) {
            try {
              check_hosts(parse(text));
            } catch (const HostsError& error) {
              check_message(error);
            }
          },
          {},
          kind};
}

template <typename Parse>
FuzzTarget refusing_target(const std::string& name, const std::string& kind, Parse parse) {
  FuzzTarget target =
      hosts_target(name, kind, [](std::string_view) { return std::vector<Host>(); });
  target.run = [parse](std::string_view text) {
    try {
      parse(text);
    } catch (const HostsError& error) {
      check_message(error);
    } catch (const UsageError& error) {
      promise(*error.what() != '\0', "a message");
    }
  };
  return target;
}

// Lines "NAME=value".
Environment variables_in(std::string_view text) {
  Environment variables;
  (void)for_each_line(text, "", [&](const Cursor&, std::string_view line) {
    const std::size_t equals = line.find('=');
    if (equals == std::string_view::npos) return;
    variables[std::string(line.substr(0, equals))] = std::string(line.substr(equals + 1));
  });
  return variables;
}

void run_slurm_job(std::string_view text) {
  for (const Host& host : slurm_hosts(variables_in(text))) {
    promise(is_harmless(host.name), "a harmless name");
    promise(host.slots >= 1, "slots in range");
  }
}

void run_slurm_nodes(std::string_view text) {
  const auto names = expand_slurm_nodes(text, kWhere);
  promise(!names.empty() && names.size() <= kMaxHosts, "a bounded number of names");
  for (const std::string& name : names) promise(is_harmless(name), "a harmless name");
}

void run_slurm_counts(std::string_view text) {
  const auto counts = expand_slurm_counts(text, kWhere);
  promise(!counts.empty() && counts.size() <= kMaxHosts, "a bounded number of counts");
  for (const int count : counts) promise(count >= 1 && count <= kMaxSlotsPerHost, "a count");
}

void run_choices(std::string_view text) {
  const auto hosts = parse_hostfile("n1 slots=4\nn2 slots=2\nn3.example.org slots=2\nn4\n", kWhere);
  for (const HostChoice& choice : parse_host_pickers(text, kWhere)) {
    promise(is_harmless(choice.name), "a harmless name");
    promise(std::is_sorted(choice.slots.begin(), choice.slots.end()), "slots in order");
  }
  for (const auto& filter : {include_hosts, exclude_hosts}) {
    try {
      check_hosts(filter(hosts, text));
    } catch (const UsageError&) {
    }
  }
}

// One word per line.
void run_options(std::string_view text) {
  std::vector<std::string> words;
  for (const Token& line : separated_by('\n', text)) words.emplace_back(line.text);
  const Options options = parse_options(words);
  promise(!options.ranks || *options.ranks >= 1, "at least one rank");
}

FuzzTarget options_target() {
  FuzzTarget target = refusing_target("options", "", run_options);
  target.seeds = {"-n\n4\n./program\n-n\n7", "-H\nh1:4,h2:4\n--per-node=2\n-x\nA=b\nprogram",
                  "--hostfile\nhosts\n--rsh\nssh -F conf\n--timeout\n1.5h\n--grace=10m\np",
                  "--dry_run\n--json\n-np=8\n--include\nn1:0\n--exclude\nn2\np", "--help"};
  return target;
}

FuzzTarget split_target() {
  FuzzTarget target = refusing_target("split_command", "", [](std::string_view text) {
    promise(!split_command(std::string(text)).empty(), "a word");
  });
  target.seeds = {"ssh -F 'a b'", "a\\ b \"c 'd'\" ''", "ip netns exec %h"};
  return target;
}

FuzzTarget slurm_job_target() {
  FuzzTarget target = refusing_target("slurm_job", "", run_slurm_job);
  target.seeds = {
      "SLURM_JOB_NODELIST=n[1-2]\nSLURM_TASKS_PER_NODE=4,2\nSLURM_JOB_CPUS_PER_NODE=4,2\n"
      "SLURM_NTASKS=6",
      "SLURM_JOB_NODELIST=n[1-4]\nSLURM_TASKS_PER_NODE=4(x3),8\nSLURM_JOB_CPUS_PER_NODE=4(x3),8",
      "SLURM_HET_SIZE=2\nSLURM_JOB_NODELIST_HET_GROUP_0=n1\nSLURM_JOB_NODELIST_HET_GROUP_1=g[1-2]"};
  return target;
}

void run_job_record(std::string_view text) {
  try {
    const JobRecord record = record_of(text);
    promise(is_job_id(record.id), "an id");
    const std::string json = json_of(record);
    promise(json_of(record_of(json)) == json, "what is written reads as the same record");
  } catch (const SystemError& error) {
    promise(*error.what() != '\0', "a message");
  }
}

FuzzTarget job_record_target() {
  JobRecord record;
  record.id = "a-abcdef";
  record.name = "a";
  record.exit_code = 3;
  record.hosts = {{"n1", 2, "used"}};
  record.outputs = {{"MODEL", "/m"}};
  record.warnings = {"one"};
  return {"job_record", run_job_record, {json_of(record)}, ""};
}

void run_shown_text(std::string_view text) {
  const std::string shown = shown_text(text);
  promise(shown_text(shown) == shown, "what is shown can be shown");
  for (const char c : shown) promise(c < 0 || (c >= ' ' && c != 0x7f), "no control character");
  promise(columns_of(cut_to(shown, 7)) <= 7, "what is cut is short");
  promise(table_text({{std::string(text), "x"}}).ends_with("  x\n"), "a line of a table");
}

}  // namespace

void promise(bool is_kept, const char* what) {
  if (is_kept) return;
  std::fprintf(stderr, "broken promise: %s\n", what);
  std::abort();
}

std::vector<FuzzTarget> text_fuzz_targets() {
  using Text = std::string_view;
  return {
      hosts_target("hostfile", "hostfile", [](Text t) { return parse_hostfile(t, kWhere); }),
      hosts_target("hostfile_strict", "strict",
                   [](Text t) { return parse_hostfile(t, kWhere, {true}); }),
      hosts_target("watched_hosts", "strict", parse_some_watched_hosts),
      hosts_target("host_list", "list", [](Text t) { return parse_host_list(t, kWhere); }),
      hosts_target("grid_engine", "pe_hostfile",
                   [](Text t) { return parse_pe_hostfile(t, kWhere); }),
      refusing_target("slurm_nodes", "slurm_nodes", run_slurm_nodes),
      refusing_target("slurm_counts", "slurm_counts", run_slurm_counts),
      slurm_job_target(),
      hosts_target("pbs", "pbs", [](Text t) { return parse_pbs_nodefile(t, kWhere); }),
      hosts_target("lsf_counts", "lsf_counts", [](Text t) { return parse_lsf_counts(t, kWhere); }),
      hosts_target("lsf_names", "lsf_names", [](Text t) { return parse_lsf_names(t, kWhere); }),
      hosts_target("azure", "azure", [](Text t) { return parse_azure_list(t, kWhere, ','); }),
      hosts_target("batch_ai", "batch_ai",
                   [](Text t) { return parse_batch_ai_workers(t, kWhere); }),
      hosts_target("sagemaker", "sagemaker",
                   [](Text t) { return parse_sagemaker_hosts(t, kWhere); }),
      hosts_target("sagemaker_config", "sagemaker_config",
                   [](Text t) { return parse_sagemaker_config(t, kWhere); }),
      refusing_target("host_filter", "include", run_choices),
      options_target(),
      split_target(),
      job_file_fuzz_target(),
      job_record_target(),
      {"shown_text", run_shown_text, {"m\xc3\xbcller\x1b[2J\xc2\x9b\xe2\x80\xae"}, ""},
  };
}

std::vector<FuzzTarget> all_fuzz_targets(const std::string& corpus_path) {
  std::vector<FuzzTarget> targets = text_fuzz_targets();
  for (FuzzTarget& target : frame_fuzz_targets()) targets.push_back(std::move(target));
  const std::vector<CorpusCase> corpus = read_corpus(corpus_path);
  for (FuzzTarget& target : targets) {
    for (const CorpusCase& one : corpus) {
      if (one.kind == target.corpus_kind) target.seeds.push_back(one.text);
    }
  }
  return targets;
}

}  // namespace chainmail::launch
