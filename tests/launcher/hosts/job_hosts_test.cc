// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/allocation/job_hosts.h"
#include "launcher/files/text_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>

#include "launcher/allocation/host_source.h"
#include "launcher/command_line/parse.h"
#include "launcher/hosts/hostfile.h"
#include "launcher/hosts/schedulers/schedulers.h"
#include "launcher/hosts/watched_hosts.h"
#include "launcher/job/environment.h"
#include "launcher/job/options.h"
#include "launcher/run/job_plan.h"
#include "tests/launcher/hosts/print_hostfile.h"
#include "tests/support/patience.h"

namespace chainmail::launch {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::ThrowsMessage;

class JobHosts : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "chainmail-job-hosts.XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    directory_ = name;
  }
  void TearDown() override { fs::remove_all(directory_); }

  std::string script(const std::string& text) const {
    const fs::path path = directory_ / "discover.sh";
    std::ofstream(path) << "#!/bin/sh\n" << text;
    fs::permissions(path, fs::perms::owner_all);
    return path;
  }
  std::string found(const std::string& text, milliseconds limit = milliseconds(10000)) const {
    try {
      return print_hostfile(discovered_hosts({script(text), "argument 1"}, {}, limit).hosts);
    } catch (const HostsError& error) {
      return error.what();
    }
  }

  fs::path directory_;
};

TEST_F(JobHosts, ADiscoveryScriptPrintsAHostfile) {
  EXPECT_EQ(found("echo n1:2; echo 'n2 slots=4'"), "n1 slots=2\nn2 slots=4\n");
  EXPECT_EQ(found("[ \"$1\" = 'argument 1' ] && echo n1"), "n1\n") << "an argument with a blank";
  // Kubernetes' MPI operator.
  EXPECT_EQ(found("echo job-worker-0.job.ns.svc:2"), "job-worker-0.job.ns.svc slots=2\n");
}

TEST_F(JobHosts, WhatADiscoveryScriptSaysOnFailureIsShown) {
  EXPECT_THAT(found("echo no credentials >&2; exit 3"),
              AllOf(HasSubstr("discover.sh exited with code 3"), HasSubstr("  | no credentials"),
                    HasSubstr("node1 slots=4")));
  EXPECT_THAT(found("kill -9 $$"), HasSubstr("was killed by signal 9"));
  EXPECT_THAT(found("true"), HasSubstr("discover.sh:1:1: no host in it"));
  EXPECT_THAT(found("echo n1 slots=x"), HasSubstr("output of "));
  EXPECT_THAT(found("printf '\\033[2J' >&2; exit 1"), HasSubstr("| ?[2J"));
  try {
    (void)discovered_hosts({"/nonexistent/discover"});
    FAIL() << "accepted";
  } catch (const HostsError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("/nonexistent/discover"), HasSubstr("No such file")));
  }
}

TEST_F(JobHosts, ADiscoveryScriptHasADeadlineAndLeavesNothing) {
  const fs::path pid_file = directory_ / "pid";
  EXPECT_THAT(found("sleep 1000 & echo $! > " + pid_file.string() + "; wait",
                    std::chrono::ceil<milliseconds>(patient(milliseconds(500)))),
              HasSubstr("had not ended in time"));
  pid_t child = 0;
  std::ifstream(pid_file) >> child;
  ASSERT_GT(child, 0);
  // The kernel takes a moment; init or a subreaper may leave a zombie.
  for (int i = 0; i < 1000 && kill(child, 0) == 0; ++i) {
    std::string state;
    std::ifstream status("/proc/" + std::to_string(child) + "/stat");
    std::getline(status, state);
    if (state.find(") Z ") != std::string::npos) return;
    usleep(5000);
  }
  EXPECT_NE(kill(child, 0), 0) << "the script's child still runs";
}

TEST_F(JobHosts, ADiscoveryScriptThatLeavesSomebodyWithItsOutputIsToldSo) {
  EXPECT_THAT(
      found("echo n1; sleep 1000 &", std::chrono::ceil<milliseconds>(patient(milliseconds(500)))),
      HasSubstr("has ended, but a process that it started keeps its output open"));
  EXPECT_THAT(
      found("sleep 1000 & exit 3", std::chrono::ceil<milliseconds>(patient(milliseconds(500)))),
      HasSubstr("exited with code 3, and a process that it started keeps its output open"));
}

TEST_F(JobHosts, ADiscoveryScriptThatNeverStopsPrintingIsStopped) {
  EXPECT_THAT(found("yes n1"), HasSubstr("printed more than 16384 KiB"));
}

TEST_F(JobHosts, DiscoveryComesBeforeTheScheduler) {
  HostRequest request;
  request.discovery = {script("echo n2:1")};
  const HostSet set = find_job_hosts(request, {{"SM_HOSTS", "[\"algo-1\"]"}}, directory_);
  EXPECT_EQ(print_hostfile(set.hosts), "n2 slots=1\n");
  EXPECT_EQ(set.scheduler, Scheduler::kSageMaker) << "its starter is still the one that works";
}

TEST_F(JobHosts, SageMakersFileIsReadWhereItsVariableIsMissing) {
  fs::create_directories(directory_ / "opt/ml/input/config");
  std::ofstream(directory_ / "opt/ml/input/config/resourceconfig.json")
      << "{\"current_host\": \"algo-2\", \"hosts\": [\"algo-1\", \"algo-2\"]}";
  const HostSet set = find_job_hosts({}, {}, directory_);
  EXPECT_EQ(print_hostfile(set.hosts), "algo-1\nalgo-2\n");
  EXPECT_EQ(set.scheduler, Scheduler::kSageMaker);
}

// What /etc has on the machine that runs this does not matter: other variables are not set.
TEST_F(JobHosts, TheSystemsHostfileIsFollowedAndNothingIsWrittenBesideIt) {
  fs::create_directories(directory_ / "etc/chainmail");
  const std::string path = directory_ / "etc/chainmail/hosts";
  std::ofstream(path) << "master slots=2\ni-1 slots=2\ni-2 slots=2\n";
  HostSet set = find_job_hosts({}, {}, directory_);
  EXPECT_EQ(set.file, path);
  EXPECT_TRUE(set.is_systems);
  EXPECT_EQ(set.own_file(), "");
  EXPECT_FALSE(hosts_in_file(path).is_systems) << "a file of the user's, who named it";
  EXPECT_EQ(hosts_in_file(path).own_file(), path);
}

TEST_F(JobHosts, OpenMpisHostfileIsTheSystemsWhereOursNamesNobody) {
  fs::create_directories(directory_ / "etc/chainmail");
  fs::create_directories(directory_ / "etc/openmpi");
  std::ofstream(directory_ / "etc/chainmail/hosts") << "# nobody yet\n";
  std::ofstream(directory_ / "etc/openmpi/openmpi-default-hostfile") << "n1 slots=2\n";
  const HostSet set = find_job_hosts({}, {}, directory_);
  EXPECT_EQ(print_hostfile(set.hosts), "n1 slots=2\n");
  EXPECT_TRUE(set.is_systems);
}

TEST_F(JobHosts, AnElasticJobBeginsWithFewOnTheSystemsHosts) {
  const auto first = [](bool is_systems, const char* sizes) {
    HostSet set;
    for (const char* name : {"localhost", "i-1", "i-2"}) {
      Host& host = set.hosts.emplace_back();
      host.name = name;
      host.slots = 2;
      host.has_slots = true;
    }
    set.is_systems = is_systems;
    const std::vector<std::string> words = {"--elastic", sizes, "true"};
    Options options = parse_options(words);
    (void)place_ranks(options, set);
    return options.ranks.value_or(0);
  };
  EXPECT_EQ(first(true, "2:8"), 2) << "the others join, and are not base";
  EXPECT_EQ(first(false, "2:8"), 6);
  EXPECT_EQ(first(true, "3:8:2"), 4);
  EXPECT_THROW((void)first(true, "7:8"), UsageError);
}

TEST_F(JobHosts, AllCoresOfThisMachineAreCounted) {
  HostRequest request;
  request.list_or_file = "localhost:*";
  const HostSet set = find_job_hosts(request, {}, directory_);
  EXPECT_FALSE(set.hosts.at(0).all_cores);
  EXPECT_EQ(set.hosts.at(0).slots, this_machine().hosts.at(0).slots);
}

TEST_F(JobHosts, AllCoresOfOtherHostsAreAskedOfThem) {
  HostRequest request;
  request.list_or_file = "n1:*,n2:2,n3:*";
  // A login shell that prints before, and two hosts of different size.
  const std::string shell = directory_ / "nproc";
  std::ofstream(shell) << "#!/bin/sh\n[ \"$HOST\" = n1 ] && echo 12 || echo 3\n";
  fs::permissions(shell, fs::perms::owner_all);
  request.remote_shell = {script("echo welcome\nHOST=$1\nexport HOST\nPATH=" + directory_.string() +
                                 ":$PATH\nshift\nexec \"$@\"\n")};
  const HostSet set = find_job_hosts(request, {}, directory_);
  EXPECT_EQ(print_hostfile(set.hosts), "n1 slots=12\nn2 slots=2\nn3 slots=3\n");
}

TEST_F(JobHosts, AnElasticJobsHostsAreNotAskedForTheirCores) {
  HostRequest request;
  request.hostfile = directory_ / "hosts";
  std::ofstream(request.hostfile) << "n1\nn2:*\n";
  request.rules = kWatchedHostsRules;
  request.remote_shell = {script("touch " + (directory_ / "asked").string())};
  EXPECT_THAT([&] { (void)find_job_hosts(request, {}, directory_); },
              ThrowsMessage<HostfileError>(HasSubstr("hosts:2:1: host n2 has '*' slots")));
  EXPECT_FALSE(fs::exists(directory_ / "asked"));
}

TEST_F(JobHosts, AHostThatDoesNotTellItsCoresIsNamed) {
  HostRequest request;
  request.list_or_file = "n1:*";
  request.remote_shell = {script("echo no route to host >&2; exit 255")};
  try {
    (void)find_job_hosts(request, {}, directory_);
    FAIL() << "accepted";
  } catch (const HostsError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("host n1:*"), HasSubstr("exited with code 255"),
                                    HasSubstr("no route to host"), HasSubstr("n1:8")));
  }
}

TEST_F(JobHosts, AllHostsThatDoNotTellTheirCoresAreNamedInTheirOrder) {
  HostRequest request;
  request.list_or_file = "bad1:*,n2:*,bad3:*,bad4:*";
  request.remote_shell = {
      script("case $1 in bad1) sleep 0.3 ;; esac\n"
             "case $1 in bad*) echo down >&2; exit 255 ;; esac\necho chainmail-cores=2\n")};
  try {
    (void)find_job_hosts(request, {}, directory_);
    FAIL() << "accepted";
  } catch (const HostsError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("host bad1:*"), HasSubstr("; the same for bad3:* ("),
                                    HasSubstr("), bad4:* ("), Not(HasSubstr("n2"))));
  }
}

TEST_F(JobHosts, HostsThatAreBusyAreAskedForTheirCoresAgain) {
  HostRequest request;
  request.list_or_file = "n1:*,n2:*";
  const std::string folder = directory_.string();
  request.remote_shell = {script("if mkdir " + folder + "/$1 2>/dev/null; then\n" +
                                 "echo Connection closed by 10.0.0.1 port 22 >&2; exit 255\nfi\n" +
                                 "echo chainmail-cores=2\n")};
  EXPECT_EQ(print_hostfile(find_job_hosts(request, {}, directory_).hosts),
            "n1 slots=2\nn2 slots=2\n");
}

TEST_F(JobHosts, ManyHostsAreNotAskedForTheirCoresAllAtOnce) {
  HostRequest request;
  for (int i = 0; i < 60; ++i) {
    request.list_or_file += (i == 0 ? "" : ",") + ("h" + std::to_string(i)) + ":*";
  }
  const std::string folder = directory_.string();
  // How many run beside this one.
  request.remote_shell = {script("mkdir " + folder + "/$1\nls " + folder + " | grep -c ^h >>" +
                                 folder + "/most\nsleep 0.2\nrmdir " + folder +
                                 "/$1\necho chainmail-cores=2\n")};
  (void)find_job_hosts(request, {}, directory_);
  int most = 0;
  std::ifstream counts(directory_ / "most");
  for (int count = 0; counts >> count;) most = std::max(most, count);
  EXPECT_LE(most, 32);
}

TEST_F(JobHosts, ChosenSlotsAreRemembered) {
  HostRequest request;
  request.list_or_file = "n1:4,n2:4";
  request.include = "n2:1,3@n1";
  const HostSet set = find_job_hosts(request, {}, directory_);
  ASSERT_EQ(set.hosts.size(), 2U);
  EXPECT_TRUE(set.hosts[0].chosen_slots.empty());
  EXPECT_EQ(set.hosts[1].chosen_slots, (std::vector<int>{1, 3}));
}

TEST_F(JobHosts, ChosenSlotsAreTheDevicesOfTheRanks) {
  Host host;
  Environment variables;
  add_variables_of(host, variables);
  EXPECT_TRUE(variables.empty()) << "all slots, all devices";
  host.chosen_slots = {1, 3};
  add_variables_of(host, variables);
  EXPECT_EQ(variables["CUDA_VISIBLE_DEVICES"], "1,3");
  variables["CUDA_VISIBLE_DEVICES"] = "7";
  add_variables_of(host, variables);
  EXPECT_EQ(variables["CUDA_VISIBLE_DEVICES"], "7") << "-x comes first";
}

TEST_F(JobHosts, GpusOfASlurmJobAreReadFromScontrol) {
  const auto gpus = parse_slurm_gpus(
      "JobId=8 JobName=a Nodes=x\n"
      "   TRES=cpu=4,node=2,billing=4\n"
      "     Nodes=n[1-2] CPU_IDs=0-1 Mem=0 GRES=gpu:2(IDX:0-1)\n"
      "     Nodes=n3 CPU_IDs=0-1 Mem=0 "
      "GRES=gpu:a100:1(IDX:0),gpu:v100:2(IDX:1,3),shard:8(IDX:0-7)\r\n"
      "     Nodes=n4 CPU_IDs=0-1 Mem=0 GRES=\n"
      "     Nodes=n[5 CPU_IDs=0-1 Mem=0 GRES=gpu:1(IDX:0)\n"
      "     Nodes=n6 GRES=gpu:x(((,gpu:-1,gpu:99999999999,gpu:,,)\n");
  const std::map<std::string, int> wanted = {{"n1", 2}, {"n2", 2}, {"n3", 3}, {"n4", 0}, {"n6", 0}};
  EXPECT_EQ(gpus, wanted);
  EXPECT_TRUE(parse_slurm_gpus("").empty());
}

TEST_F(JobHosts, WhatAJobHasOnAHostIsKnownWhereTheUserNamesIt) {
  HostRequest request;
  request.list_or_file = "n2:1";
  const Environment slurm = {{"SLURM_JOB_NODELIST", "n[1-2]"},
                             {"SLURM_JOB_CPUS_PER_NODE", "4,2"},
                             {"SLURM_DISTRIBUTION", "cyclic"}};
  const HostSet set = find_job_hosts(request, slurm, directory_);
  EXPECT_EQ(set.hosts.at(0).processors, 2);
  EXPECT_TRUE(set.takes_turns);
}

TEST_F(JobHosts, AFileNamedLikeAHostOfTheJobIsARiddle) {
  const fs::path before = fs::current_path();
  fs::current_path(directory_);
  std::ofstream("n1") << "n7\n";
  HostRequest request;
  request.list_or_file = "n1";
  const Environment slurm = {{"SLURM_JOB_NODELIST", "n[1-2]"}};
  EXPECT_THROW((void)find_job_hosts(request, slurm, directory_), UsageError);
  EXPECT_EQ(find_job_hosts(request, {}, directory_).source, "hostfile n1");
  fs::current_path(before);
}

TEST_F(JobHosts, AnEndlessFileIsRefused) {
  try {
    (void)read_host_text("/dev/zero", "hostfile");
    FAIL() << "accepted";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("longer than 16 MiB"));
  }
}

}  // namespace
}  // namespace chainmail::launch
