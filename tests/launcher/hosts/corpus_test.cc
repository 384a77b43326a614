// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Every text of corpus.txt: the plan or the message that it must give, and that what is printed
// reads as the same hosts.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <random>
#include <sstream>

#include "launcher/allocation/job_hosts.h"
#include "launcher/command_line/parse.h"
#include "launcher/hosts/host_filter.h"
#include "launcher/hosts/hostfile.h"
#include "launcher/hosts/schedulers/schedulers.h"
#include "launcher/placement/placement.h"
#include "tests/launcher/hosts/corpus.h"
#include "tests/launcher/hosts/print_hostfile.h"
#include "tests/launcher/placement/place_ranks.h"

namespace chainmail::launch {
namespace {

using ::testing::HasSubstr;

constexpr const char* kWhere = "text";

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

template <typename T>
std::vector<std::string> one_line(const std::vector<T>& values) {
  std::ostringstream line;
  for (std::size_t i = 0; i < values.size(); ++i) line << (i == 0 ? "" : " ") << values[i];
  return {line.str()};
}

using Parser = std::function<std::vector<Host>(const std::string&)>;

const std::map<std::string, Parser>& host_parsers() {
  const auto filtered = [](auto filter) {
    return [filter](const std::string& text) {
      return filter(parse_hostfile("n1 slots=4\nn2 slots=2\nn3.example.org slots=2\nn4\n", "hosts"),
                    text);
    };
  };
  static const std::map<std::string, Parser> parsers = {
      {"hostfile", [](const auto& text) { return parse_hostfile(text, kWhere); }},
      {"strict", [](const auto& text) { return parse_hostfile(text, kWhere, {true}); }},
      {"list", [](const auto& text) { return parse_host_list(text, kWhere); }},
      {"pe_hostfile", [](const auto& text) { return parse_pe_hostfile(text, kWhere); }},
      {"pbs", [](const auto& text) { return parse_pbs_nodefile(text, kWhere); }},
      {"pbs_smp", [](const auto& text) { return parse_pbs_nodefile(text, kWhere, 4); }},
      {"lsf_counts", [](const auto& text) { return parse_lsf_counts(text, kWhere); }},
      {"lsf_names", [](const auto& text) { return parse_lsf_names(text, kWhere); }},
      {"azure", [](const auto& text) { return parse_azure_list(text, kWhere, ','); }},
      {"azure_nodes", [](const auto& text) { return parse_azure_list(text, kWhere, ';'); }},
      {"batch_ai", [](const auto& text) { return parse_batch_ai_workers(text, kWhere); }},
      {"sagemaker", [](const auto& text) { return parse_sagemaker_hosts(text, kWhere); }},
      {"sagemaker_config", [](const auto& text) { return parse_sagemaker_config(text, kWhere); }},
      {"include", filtered(include_hosts)},
      {"exclude", filtered(exclude_hosts)},
  };
  return parsers;
}

// What kind of hosts, or a list of words, comes out of a case that is no whole job.
std::vector<std::string> outcome_of(const CorpusCase& one) {
  if (one.kind == "slurm_nodes") return one_line(expand_slurm_nodes(one.text, kWhere));
  if (one.kind == "slurm_counts") return one_line(expand_slurm_counts(one.text, kWhere));
  return lines_of(print_hostfile(host_parsers().at(one.kind)(one.text)));
}

// A file for the variable that wants one.
class CaseFile {
 public:
  CaseFile() {
    std::string name =
        (std::filesystem::temp_directory_path() / "chainmail-corpus.XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp");
    directory_ = name;
  }
  CaseFile(const CaseFile&) = delete;
  CaseFile& operator=(const CaseFile&) = delete;
  ~CaseFile() { std::filesystem::remove_all(directory_); }
  std::string write(const std::string& text) const {
    const std::string path = directory_ / "hosts";
    std::ofstream(path) << text;
    return path;
  }

 private:
  std::filesystem::path directory_;
};

struct Planned {
  HostSet hosts;
  std::string ranks;
};

Planned plan_of(const CorpusCase& one, const CaseFile& file) {
  Environment variables = one.variables;
  if (!one.file_variable.empty()) variables[one.file_variable] = file.write(one.text);
  std::vector<std::string> arguments = one.arguments;
  arguments.emplace_back("./program");
  const Options options = parse_options(arguments);
  HostRequest request;
  request.list_or_file = options.hosts;
  request.hostfile = options.hostfile;
  request.rules.refuses_repeats = options.hostfile_strict;
  request.include = options.include;
  request.exclude = options.exclude;
  Planned planned;
  planned.hosts = find_job_hosts(request, variables, "/nonexistent");
  const Placement placement =
      place_ranks(planned.hosts.hosts, {options.ranks, options.per_node, options.oversubscribe});
  for (const int count : placement.ranks_of_node) {
    planned.ranks += (planned.ranks.empty() ? "" : ",") + std::to_string(count);
  }
  return planned;
}

void check_job(const CorpusCase& one, const CaseFile& file) {
  const Planned planned = plan_of(one, file);
  std::vector<std::string> hosts;
  for (const std::string& line : one.expected) {
    if (line.rfind("source ", 0) == 0) {
      EXPECT_EQ("source " + planned.hosts.source, line);
    } else if (line.rfind("ranks ", 0) == 0) {
      EXPECT_EQ("ranks " + planned.ranks, line);
    } else if (line.rfind("note ", 0) == 0) {
      EXPECT_THAT(planned.hosts.notes, ::testing::Contains(line.substr(5)));
    } else {
      hosts.push_back(line);
    }
  }
  if (hosts.empty()) return;
  EXPECT_EQ(lines_of(print_hostfile(planned.hosts.hosts)), hosts);
}

void check_refusal(const CorpusCase& one, const std::exception& error) {
  const std::string message = error.what();
  std::string reason = one.refusal;
  const std::size_t blank = reason.find(' ');
  const std::string place = reason.substr(0, blank);
  if (place.find_first_not_of("0123456789:") == std::string::npos &&
      place.find(':') != std::string::npos) {
    reason = reason.substr(blank + 1);
    const auto* located = dynamic_cast<const HostfileError*>(&error);
    ASSERT_NE(located, nullptr) << "no place in: " << message;
    EXPECT_EQ(std::to_string(located->line()) + ":" + std::to_string(located->column()), place);
    EXPECT_THAT(message, HasSubstr(":" + place + ": "));
  }
  EXPECT_THAT(message, HasSubstr(reason));
  for (const char c : message) EXPECT_GE(static_cast<unsigned char>(c), ' ') << "control character";
}

std::vector<CorpusCase> corpus() { return read_corpus(CHAINMAIL_HOSTS_CORPUS); }

TEST(Corpus, EachTextGivesItsPlanOrItsMessage) {
  const CaseFile file;
  for (const CorpusCase& one : corpus()) {
    SCOPED_TRACE(one.name());
    try {
      if (one.kind == "job") {
        check_job(one, file);
      } else {
        EXPECT_EQ(outcome_of(one), one.expected);
      }
      EXPECT_TRUE(one.refusal.empty()) << "accepted";
    } catch (const std::runtime_error& error) {
      if (one.refusal.empty()) {
        ADD_FAILURE() << "refused: " << error.what();
      } else {
        check_refusal(one, error);
      }
    }
  }
}

TEST(Corpus, HoldsEveryKindOfTextGoodAndBad) {
  std::map<std::string, int> good;
  std::map<std::string, int> bad;
  for (const CorpusCase& one : corpus()) ++(one.refusal.empty() ? good : bad)[one.kind];
  for (const auto& [kind, parser] : host_parsers()) {
    EXPECT_GE(good[kind], 1) << kind;
    if (kind == "pbs_smp" || kind == "azure_nodes") continue;  // as pbs and azure
    EXPECT_GE(bad[kind], 1) << kind;
  }
  int all = 0;
  for (const auto& kinds : {good, bad}) {
    for (const auto& [kind, count] : kinds) all += count;
  }
  EXPECT_GE(all, 150);
}

// What print_hostfile can say of a host; the rest comes from elsewhere.
std::string everything_printed(const std::vector<Host>& hosts) {
  std::ostringstream out;
  for (const Host& host : hosts) {
    out << host.name << " " << host.slots << " " << host.has_slots << host.all_cores << " "
        << host.max_slots.value_or(0) << " " << host.user << " " << host.port.value_or(0) << "\n";
  }
  return out.str();
}

void expect_fixed_point(const std::vector<Host>& hosts) {
  const std::string printed = print_hostfile(hosts);
  const std::vector<Host> again = parse_hostfile(printed, "printed");
  EXPECT_EQ(everything_printed(again), everything_printed(hosts)) << printed;
  EXPECT_EQ(print_hostfile(again), printed);
}

TEST(Corpus, WhatIsPrintedReadsAsTheSameHosts) {
  int checked = 0;
  for (const CorpusCase& one : corpus()) {
    const auto parser = host_parsers().find(one.kind);
    if (parser == host_parsers().end() || !one.refusal.empty()) continue;
    SCOPED_TRACE(one.name());
    expect_fixed_point(parser->second(one.text));
    ++checked;
  }
  EXPECT_GT(checked, 70);
}

class RandomHosts {
 public:
  explicit RandomHosts(unsigned seed) : random_(seed) {}

  std::vector<Host> hosts() {
    std::vector<Host> all(1 + below(5));
    for (std::size_t i = 0; i < all.size(); ++i) {
      Host& host = all[i];
      host.name = name() + std::to_string(i);  // no host twice
      host.has_slots = below(2) == 0;
      if (host.has_slots) host.slots = 1 + static_cast<int>(below(1024));
      host.all_cores = host.has_slots && below(4) == 0;
      if (host.all_cores) host.slots = 1;
      if (below(3) == 0)
        host.max_slots =
            host.slots + static_cast<int>(below(1025 - static_cast<std::size_t>(host.slots)));
      if (below(3) == 0) host.user = word("abcxyz_.-019");
      if (below(3) == 0) host.port = 1 + static_cast<int>(below(65535));
    }
    return all;
  }

 private:
  std::size_t below(std::size_t limit) { return random_() % limit; }
  std::string word(const std::string& letters) {
    std::string out(1, "abcXYZ019_."[below(11)]);
    for (std::size_t length = below(12); length > 0; --length)
      out += letters[below(letters.size())];
    return out;
  }
  std::string name() {
    switch (below(5)) {
      case 0:
        return "fd00::1:";
      case 1:
        return "10.0.0.";
      case 2:
        return "fe80::1%eth";
      default:
        return word("abcABC019-_.");
    }
  }

  std::mt19937 random_;
};

TEST(Corpus, RandomHostsSurvivePrintingAndReading) {
  RandomHosts random(20260808);
  for (int round = 0; round < 2000 && !::testing::Test::HasFailure(); ++round) {
    expect_fixed_point(random.hosts());
  }
}

}  // namespace
}  // namespace chainmail::launch
