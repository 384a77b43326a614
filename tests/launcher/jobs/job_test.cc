// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Whole jobs on this machine: exit codes, messages, environment, output.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/wait.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <thread>

#include "tests/launcher/jobs/run_launcher.h"

namespace chainmail::launch {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(ExitCode, ZeroWhenAllRanksEndWell) {
  const Result result = run_script({"-H", "localhost:3"}, "exit 0");
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(result.err, "");
}

TEST(ExitCode, FirstFailureEndsTheJobAndIsExplained) {
  const Result result = run_script(
      {"-H", "localhost:2"},
      "if [ $RANK = 1 ]; then for i in $(seq 30); do echo line $i >&2; done; exit 3; fi; sleep 60");
  EXPECT_EQ(result.code, 3);
  EXPECT_THAT(result.err, HasSubstr("launcher: rank 1 on host localhost exited with code 3"));
  EXPECT_THAT(result.err, HasSubstr("  | line 30"));
  EXPECT_THAT(result.err, HasSubstr("  | line 11\n"));
  EXPECT_THAT(result.err, Not(HasSubstr("  | line 10\n"))) << "only the last 20 lines";
}

TEST(ExitCode, SignalOfARank) {
  const Result result = run_script({"-H", "localhost:2"}, "[ $RANK = 0 ] && kill -9 $$; sleep 60");
  EXPECT_EQ(result.code, 137);
  EXPECT_THAT(result.err, HasSubstr("rank 0 on host localhost was killed by signal 9 (Killed)"));
}

TEST(ExitCode, ProgramNotFound) {
  const Result with_slash = run_launcher({"-n", "1", "./no-such-program"});
  EXPECT_EQ(with_slash.code, 127);
  EXPECT_THAT(with_slash.err, HasSubstr("host localhost: ./no-such-program"));
  const Result in_path = run_launcher({"-n", "1", "no-such-program"});
  EXPECT_EQ(in_path.code, 127);
  EXPECT_THAT(in_path.err, HasSubstr("not in PATH"));
}

TEST(ExitCode, ProgramNotExecutable) {
  const Result result = run_launcher({"-n", "1", "/etc/passwd"});
  EXPECT_EQ(result.code, 126);
  EXPECT_THAT(result.err, HasSubstr("/etc/passwd: Permission denied"));
}

TEST(ExitCode, TimeLimit) {
  const Result result = run_launcher({"-H", "localhost:2", "--timeout", "0.5", "sleep", "60"});
  EXPECT_EQ(result.code, 124);
  EXPECT_THAT(result.err, HasSubstr("time limit of 0.5 s"));
}

TEST(ExitCode, ATimeLimitOfZeroIsNone) {
  for (const char* option : {"--timeout", "--stall-timeout", "--start-timeout"}) {
    const Result result = run_script({"-n", "1", option, "0"}, "sleep 0.3; echo up");
    EXPECT_EQ(result.code, 0) << option << result.err;
    EXPECT_EQ(result.out, "up\n");
  }
}

TEST(ExitCode, UsedUpProcessorTimeIsNobodysKill) {
  const Result result = run_script({"-n", "1"}, "ulimit -t 1; while :; do :; done");
  EXPECT_EQ(result.code, 137);
  EXPECT_THAT(result.err, HasSubstr("it had used up its limit of 1 s of CPU time (ulimit -t)"));
  const Result other = run_script({"-n", "1"}, "ulimit -t 100; kill -9 $$");
  EXPECT_THAT(other.err, HasSubstr("the launcher did not send it"));
}

TEST(ExitCode, BadUsage) {
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{},
                                             {"--nonsense", "true"},
                                             {"-n", "3", "-H", "localhost:2", "true"},
                                             {"-H", "n1:x", "true"},
                                             {"-H", "./no/such/file", "true"},
                                             {"--rsh", "'", "true"}}) {
    const Result result = run_launcher(arguments);
    EXPECT_EQ(result.code, 2) << result.err;
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  }
}

TEST(ExitCode, BadUsageOfALaterHostStartsNothing) {
  // Only ssh knows users; the first host needs no remote shell and would start at once.
  std::string name = (std::filesystem::temp_directory_path() / "chainmail-user.XXXXXX").string();
  ASSERT_NE(mkdtemp(name.data()), nullptr);
  const std::string started = name + "/started";
  const Result result = run_launcher(
      {"-H", "localhost,n0,bob@n1", "--rsh", "sh -c 'touch " + started + "' %h", "true"});
  EXPECT_EQ(result.code, 2) << result.err;
  EXPECT_THAT(result.err, HasSubstr("user and port of host n1"));
  EXPECT_FALSE(std::filesystem::exists(started)) << "the shell for n0 was started";
  std::filesystem::remove_all(name);
}

TEST(ExitCode, UnknownHostAndMissingRemoteShell) {
  const Result unknown = run_launcher({"-H", "no-such-host.invalid", "true"});
  EXPECT_EQ(unknown.code, 125);
  EXPECT_THAT(unknown.err, HasSubstr("no-such-host.invalid"));
  // As they are named, whichever is given up first.
  const Result three = run_launcher({"-H", "c.invalid,a.invalid,b.invalid", "true"});
  EXPECT_THAT(
      three.err,
      testing::AllOf(testing::ContainsRegex("unknown host c.invalid(.|\n)*host a.invalid"),
                     testing::ContainsRegex("unknown host a.invalid(.|\n)*host b.invalid")));
  const Result no_shell = run_launcher({"-H", "n1", "--rsh", "no-such-shell", "true"});
  EXPECT_EQ(no_shell.code, 125);
  EXPECT_THAT(no_shell.err, HasSubstr("cannot run no-such-shell"));
}

TEST(ExitCode, RankThatStopsIsNotWaitedForEver) {
  const Result result =
      run_script({"-H", "localhost:2"}, "[ $RANK = 1 ] && kill -STOP $$; sleep 60");
  EXPECT_EQ(result.code, 128 + 19);
  EXPECT_THAT(result.err, HasSubstr("rank 1 on host localhost has been stopped by a signal"));
}

// A folder with stand-ins for remote shells in PATH: they write down their words, drop those that
// are their own, and run the rest.
class Starter : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = (std::filesystem::temp_directory_path() / "chainmail-starter.XXXXXX").string();
    ASSERT_NE(mkdtemp(folder_.data()), nullptr);
    path_ = std::getenv("PATH");
    setenv("PATH", (folder_ + ":" + path_).c_str(), 1);
  }
  void TearDown() override {
    setenv("PATH", path_.c_str(), 1);
    for (const std::string& name : names_) unsetenv(name.c_str());
    std::filesystem::remove_all(folder_);
  }
  void set(const std::string& name, const std::string& value) {
    setenv(name.c_str(), value.c_str(), 1);
    names_.push_back(name);
  }
  void set_slurm_job() {
    set("SLURM_JOB_ID", "7");
    set("SLURM_JOB_NODELIST", "far[1-2]");
    set("SLURM_TASKS_PER_NODE", "2(x2)");
    set("SLURM_JOB_NUM_NODES", "2");
    set("SLURM_NTASKS", "4");
  }
  void install(const std::string& name) {
    const std::string file = folder_ + "/" + name;
    std::ofstream(file) << "#!/bin/sh\necho " << name << " \"$*\" >>" << folder_ << "/words\n"
                        << "while [ \"$1\" != /bin/sh ]; do shift; done\nexec \"$@\"\n";
    std::filesystem::permissions(file, std::filesystem::perms::owner_all);
  }
  // One line per start, sorted.
  std::vector<std::string> started() const {
    std::ifstream file(folder_ + "/words");
    std::ostringstream text;
    text << file.rdbuf();
    return sorted_lines(text.str());
  }

  std::string folder_;
  std::string path_;
  std::vector<std::string> names_;
};

TEST_F(Starter, OfSlurm) {
  install("srun");
  install("ssh");
  set_slurm_job();
  const Result result = run_launcher({"printenv", "RANK"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(sorted_lines(result.out), (std::vector<std::string>{"0", "1", "2", "3"}));
  const std::string words = " --overlap --cpu-bind=none --mpi=none --quiet --unbuffered /bin/sh";
  EXPECT_EQ(started(),
            (std::vector<std::string>{"srun --nodes=1 --ntasks=1 --nodelist=far1" + words,
                                      "srun --nodes=1 --ntasks=1 --nodelist=far2" + words}));
}

TEST_F(Starter, OfGridEngineIsNotForThisMachine) {
  install("qrsh");
  install("ssh");
  std::ofstream(folder_ + "/hosts") << "localhost 1 all.q@localhost UNDEFINED\n"
                                    << "far1 1 all.q@far1 UNDEFINED\n"
                                    << "far2 2 all.q@far2 UNDEFINED\n";
  set("PE_HOSTFILE", folder_ + "/hosts");
  set("JOB_ID", "7");
  set("NSLOTS", "4");
  const Result result = run_launcher({"printenv", "RANK"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(sorted_lines(result.out), (std::vector<std::string>{"0", "1", "2", "3"}));
  EXPECT_EQ(started(), (std::vector<std::string>{"qrsh -inherit -V far1 /bin/sh",
                                                 "qrsh -inherit -V far2 /bin/sh"}));
}

TEST_F(Starter, OfLsf) {
  install("blaunch");
  install("ssh");
  set("LSB_JOBID", "7");
  set("LSB_MCPU_HOSTS", "far1 1 far2 1");
  const Result result = run_launcher({"printenv", "RANK"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(sorted_lines(result.out), (std::vector<std::string>{"0", "1"}));
  EXPECT_EQ(started(), (std::vector<std::string>{"blaunch far1 /bin/sh", "blaunch far2 /bin/sh"}));
}

TEST_F(Starter, GivenByTheUserWins) {
  install("srun");
  set_slurm_job();
  const Result result = run_launcher({"-H", "far2:1", "--rsh", "env HOST=%h", "printenv", "HOST"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.out, "far2\n");
  EXPECT_EQ(started(), std::vector<std::string>());
}

TEST_F(Starter, WordsForSshMeanSsh) {
  install("srun");
  install("ssh");
  set_slurm_job();
  const Result words = run_launcher({"-H", "far1:1", "--rsh-args", "-p 2222", "true"});
  EXPECT_EQ(words.code, 0) << words.err;
  const Result user = run_launcher({"-H", "bob@far2:1", "true"});
  EXPECT_EQ(user.code, 0) << user.err;
  ASSERT_EQ(started().size(), 2U);
  for (const std::string& line : started()) EXPECT_EQ(line.substr(0, 4), "ssh ") << line;
  EXPECT_THAT(started(), testing::Contains(HasSubstr(" -p 2222 ")));
  EXPECT_THAT(started(), testing::Contains(HasSubstr(" -l bob ")));
}

TEST_F(Starter, WordsForSshAlsoAskForCores) {
  install("ssh");
  const Result result =
      run_launcher({"-H", "far1:*", "--rsh-args", "-p 2222", "--dry-run", "true"});
  EXPECT_EQ(result.code, 0) << result.err;
  ASSERT_EQ(started().size(), 1U);
  EXPECT_THAT(started().front(), HasSubstr("ssh -p 2222 "));
}

TEST(Environment, EveryRankKnowsItsPlace) {
  const Result result = run_script(
      {"-H", "localhost:2,127.0.0.1:1"},
      "echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $NODE_RANK $CHAINMAIL_GENERATION");
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(sorted_lines(result.out),
            (std::vector<std::string>{"0 3 0 2 0 0", "1 3 1 2 0 0", "2 3 0 1 1 0"}));
}

TEST(Environment, OmpFollowsTheCoresUnlessSet) {
  unsetenv("OMP_NUM_THREADS");
  unsetenv("OMP_WAIT_POLICY");
  const std::string script = "echo $OMP_NUM_THREADS $OMP_WAIT_POLICY";
  EXPECT_EQ(run_script({"-H", "localhost:64"}, script).out.substr(0, 10), "1 passive\n");
  EXPECT_EQ(
      run_script({"-n", "1", "-x", "OMP_NUM_THREADS=7", "-x", "OMP_WAIT_POLICY=active"}, script)
          .out,
      "7 active\n");
}

TEST(Environment, RanksHaveDisjointCores) {
  const Result plan = run_launcher({"--dry-run", "-n", "1"});
  ASSERT_EQ(plan.code, 0);
  if (std::thread::hardware_concurrency() < 2) {
    GTEST_SKIP() << "needs two cores";
  }
  const Result result =
      run_script({"-H", "localhost:2"}, "grep Cpus_allowed_list /proc/self/status");
  const auto lines = sorted_lines(result.out);
  ASSERT_EQ(lines.size(), 2U) << result.err;
  EXPECT_NE(lines[0], lines[1]);
}

TEST(Environment, TorchrunVariablesOnRequest) {
  const std::string script = "echo $MASTER_ADDR:${MASTER_PORT:+port}";
  unsetenv("MASTER_ADDR");
  unsetenv("MASTER_PORT");
  EXPECT_EQ(run_script({"-n", "1", "--torchrun-env"}, script).out, "127.0.0.1:port\n");
  EXPECT_EQ(run_script({"-n", "1"}, script).out, ":\n");
}

TEST(Environment, MissingVariableIsMentioned) {
  const Result result = run_launcher({"-n", "1", "-x", "NO_SUCH_VARIABLE", "true"});
  EXPECT_EQ(result.code, 0);
  EXPECT_THAT(result.err, HasSubstr("-x NO_SUCH_VARIABLE"));
}

TEST(Output, TagsEveryLine) {
  const Result result =
      run_script({"-H", "localhost:2", "--tag-output"}, "printf 'a\\nb\\n'; echo e >&2");
  EXPECT_EQ(sorted_lines(result.out),
            (std::vector<std::string>{"[localhost/0] a", "[localhost/0] b", "[localhost/1] a",
                                      "[localhost/1] b"}));
  EXPECT_EQ(sorted_lines(result.err),
            (std::vector<std::string>{"[localhost/0] e", "[localhost/1] e"}));
}

TEST(Output, IsWholeAndInOrderFromEightRanks) {
  // About 1 MiB per rank.
  const Result result =
      run_script({"-H", "localhost:8"},
                 "awk -v r=$RANK 'BEGIN { pad = sprintf(\"%080d\", 0); for (i = 0; i < 12000; "
                 "i++) print r, i, pad }'");
  EXPECT_EQ(result.code, 0) << result.err;
  std::vector<int> next(8, 0);
  std::istringstream lines(result.out);
  int rank = 0;
  int number = 0;
  std::string pad;
  while (lines >> rank >> number >> pad) {
    ASSERT_GE(rank, 0);
    ASSERT_LT(rank, 8);
    ASSERT_EQ(number, next[static_cast<std::size_t>(rank)]++) << "rank " << rank;
    ASSERT_EQ(pad.size(), 80U);
  }
  EXPECT_EQ(next, std::vector<int>(8, 12000));
}

TEST(Output, BytesArriveUnchanged) {
  const Result result = run_script({"-n", "1"}, "printf 'tab\\there\\r\\n\\303\\266 no end'");
  EXPECT_EQ(result.out, "tab\there\r\n\xc3\xb6 no end");
}

TEST(Input, IsEmptyWhereTheLaunchersIs) {
  EXPECT_EQ(run_script({"-n", "1"}, "cat; echo end").out, "end\n");
}

TEST(Output, FilesPerRank) {
  namespace fs = std::filesystem;
  std::string name = (fs::temp_directory_path() / "chainmail-output.XXXXXX").string();
  ASSERT_NE(mkdtemp(name.data()), nullptr);
  const Result result = run_script({"-H", "localhost:2", "--tag-output", "--output", name + "/o"},
                                   "echo out $RANK; echo err $RANK >&2");
  EXPECT_EQ(result.code, 0) << result.err;
  const auto content = [&](const std::string& path) {
    std::ifstream file(name + "/o/" + path);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  EXPECT_EQ(content("rank.0/stdout"), "out 0\n");
  EXPECT_EQ(content("rank.1/stderr"), "err 1\n");
  fs::remove_all(name);
  EXPECT_EQ(run_launcher({"-n", "1", "--output", "/proc/nowhere", "true"}).code, 125);
}

TEST(Output, FullDiskIsSaidOnceAndFailsTheJob) {
  namespace fs = std::filesystem;
  std::string name = (fs::temp_directory_path() / "chainmail-output.XXXXXX").string();
  ASSERT_NE(mkdtemp(name.data()), nullptr);
  fs::create_directories(name + "/rank.0");
  fs::create_symlink("/dev/full", name + "/rank.0/stdout");
  const Result result =
      run_script({"-n", "1", "--output", name}, "for i in 1 2 3; do echo $i; sleep 0.1; done");
  EXPECT_EQ(result.code, 125) << "no rank failed, but output is missing";
  EXPECT_EQ(result.err, "launcher: cannot write " + name +
                            "/rank.0/stdout: No space left on device; output is lost\n");
  EXPECT_EQ(result.out, "1\n2\n3\n") << "the other target has all";
  EXPECT_EQ(run_script({"-n", "1", "--output", name}, "echo 1; exit 4").code, 4);
  fs::remove_all(name);
}

TEST(Start, InstantlyEndingRanks) {
  for (int round = 0; round < 20; ++round) {
    const Result result = run_script({"-H", "localhost:32"}, "echo $RANK");
    ASSERT_EQ(result.code, 0) << result.err;
    const auto lines = sorted_lines(result.out);
    ASSERT_EQ(lines.size(), 32U) << "round " << round;
    ASSERT_EQ(std::set<std::string>(lines.begin(), lines.end()).size(), 32U);
  }
}

TEST(Start, LongCommandLinesAndLargeEnvironments) {
  // Longer than a frame of the channel.
  for (int i = 0; i < 12; ++i) {
    setenv(("CHAINMAIL_TEST_LARGE_" + std::to_string(i)).c_str(), std::string(100000, 'x').c_str(),
           1);
  }
  const Result result = run_script({"-n", "1"}, "echo ${#CHAINMAIL_TEST_LARGE_11}");
  for (int i = 0; i < 12; ++i) unsetenv(("CHAINMAIL_TEST_LARGE_" + std::to_string(i)).c_str());
  EXPECT_EQ(result.out, "100000\n") << result.err;
}

TEST(DryRun, StartsNothing) {
  const Result text = run_launcher({"-H", "n1:2,n2:1", "--dry-run", "-n", "3"});
  EXPECT_EQ(text.code, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("hosts from: host list n1:2,n2:1"));
  EXPECT_THAT(text.out, HasSubstr("rank 2 on n2, local rank 0"));
  const Result json = run_launcher({"-H", "bob@n1:2,n2:1", "--dry-run", "--json", "false"});
  EXPECT_EQ(json.code, 0);
  EXPECT_THAT(json.out, HasSubstr("\"user\": \"bob\""));
  EXPECT_THAT(json.out, HasSubstr("\"max_slots\": null"));
}

TEST(DryRun, ShowsWhoStartsWhom) {
  const std::vector<std::string> tree = {"-H", "localhost,n1,n2,n3,n4", "--tree", "2"};
  std::vector<std::string> arguments = tree;
  arguments.insert(arguments.end(), {"--dry-run", "true"});
  const std::string text = run_launcher(arguments).out;
  EXPECT_THAT(text, HasSubstr("n2  slots=1\n"));
  EXPECT_THAT(text, HasSubstr("n3  slots=1  (started from n1)\n"));
  EXPECT_THAT(text, HasSubstr("n4  slots=1  (started from n1)\n"));
  arguments.insert(arguments.begin(), "--json");
  EXPECT_THAT(run_launcher(arguments).out, HasSubstr("\"started_from\": \"n1\""));
  // Above 64 hosts by itself, where the remote shell is ssh.
  std::string hosts = "h0";
  for (int i = 1; i < 65; ++i) hosts += ",h" + std::to_string(i);
  EXPECT_THAT(run_launcher({"-H", hosts, "--dry-run", "true"}).out, HasSubstr("(started from h7)"));
  for (const std::vector<std::string>& star :
       {std::vector<std::string>{"-H", hosts, "--tree", "no", "--dry-run", "true"},
        {"-H", hosts, "--rsh", "kubectl exec -i %h --", "--dry-run", "true"},
        {"-H", hosts.substr(3), "--dry-run", "true"}}) {
    EXPECT_THAT(run_launcher(star).out, Not(HasSubstr("started from")));
  }
}

/// Of a command line for the shell; `LAUNCHER` in it stands for the launcher. Its code and stderr.
Result run_in_shell(std::string command) {
  for (std::size_t at = 0; (at = command.find("LAUNCHER", at)) != std::string::npos;) {
    command.replace(at, 8, CHAINMAIL_TEST_LAUNCHER);
  }
  FILE* pipe = popen(("exec 3>&1; { " + command + "; } 2>&3 >/dev/null").c_str(), "r");
  Result result;
  std::array<char, 4096> block{};
  while (const std::size_t count = fread(block.data(), 1, block.size(), pipe)) {
    result.err.append(block.data(), count);
  }
  const int status = pclose(pipe);
  result.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

TEST(StandardStreams, WhatIsLostIsNoSuccess) {
  for (const char* words : {"--help", "--version", "--dry-run true", "--dry-run --json true"}) {
    const Result result = run_in_shell(std::string("LAUNCHER ") + words + " >/dev/full");
    EXPECT_EQ(result.code, 125) << words;
    EXPECT_THAT(result.err, HasSubstr("cannot write standard output")) << words;
  }
}

TEST(Limits, AreNamed) {
  const Result folder = run_in_shell("cd $(mktemp -d) && rmdir $PWD && LAUNCHER -n 1 true");
  EXPECT_EQ(folder.code, 2);
  EXPECT_THAT(folder.err, HasSubstr("the working directory cannot be found"));
  const Result file = run_in_shell("ulimit -f 10; LAUNCHER -n 1 --preload /bin/echo hi");
  EXPECT_EQ(file.code, 125);
  EXPECT_THAT(file.err, HasSubstr("File too large"));
  EXPECT_EQ(run_in_shell("ulimit -s 64; LAUNCHER -H localhost:1 -n 1 true").code,
            run_in_shell("ulimit -s 64; true").code);
}

// Which the launcher raises for itself before it opens files for each rank, and files to send.
TEST(Limits, OnOpenFilesAreNotWhatTheLauncherStopsAt) {
  const Result output = run_in_shell(
      "d=$(mktemp -d); (ulimit -Sn 40; LAUNCHER -H localhost:24 -n 24 --output $d/o true);"
      " code=$?; rm -r $d; exit $code");
  EXPECT_EQ(output.code, 0) << output.err;
  const Result files = run_in_shell(
      "d=$(mktemp -d); cd $d; f=; for i in $(seq 60); do : > f$i; f=$f,f$i; done;"
      " (ulimit -Sn 40; LAUNCHER -n 1 --preload-files ${f#,} true); code=$?; cd /; rm -r $d;"
      " exit $code");
  EXPECT_EQ(files.code, 0) << files.err;
}

TEST(StandardStreams, ThatAreClosedAreNotTakenForSomethingElse) {
  const std::string rank =
      "for fd in 0 1 2; do"
      " [ $(readlink /proc/$CHAINMAIL_TEST_PID/fd/$fd) = /dev/null ] || exit 4;"
      " done; exit 3";
  setenv("CHAINMAIL_TEST_SCRIPT", rank.c_str(), 1);
  const int status = std::system("export CHAINMAIL_TEST_PID=$$; exec " CHAINMAIL_TEST_LAUNCHER
                                 R"( -n 1 sh -c "$CHAINMAIL_TEST_SCRIPT" <&- >&- 2>&-)");
  unsetenv("CHAINMAIL_TEST_SCRIPT");
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 3);
}

}  // namespace
}  // namespace chainmail::launch
