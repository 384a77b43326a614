// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Options as whole jobs see them: several programs, directories, binding, standard input.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "tests/launcher/jobs/run_launcher.h"
#include "tests/support/patience.h"

namespace chainmail::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// What a shell line prints, with LAUNCHER standing for the launcher.
std::string shell(const std::string& line) {
  const std::string command =
      "LAUNCHER() { " CHAINMAIL_TEST_LAUNCHER " \"$@\"; }; { " + line + "; } 2>&1; echo code $?";
  FILE* pipe = popen(command.c_str(), "r");
  std::string out;
  std::array<char, 4096> piece{};
  for (std::size_t count = 0; (count = std::fread(piece.data(), 1, piece.size(), pipe)) > 0;) {
    out.append(piece.data(), count);
  }
  pclose(pipe);
  return out;
}

TEST(Programs, EachHasItsOwnVariablesAndDirectory) {
  const Result result =
      run_launcher({"-H",
                    "localhost:3",
                    "-genv",
                    "COMMON",
                    "c",
                    "-n",
                    "1",
                    "-x",
                    "ONE=1",
                    "sh",
                    "-c",
                    "echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE ${COMMON} ${ONE:-}",
                    ":",
                    "-n",
                    "2",
                    "-x",
                    "TWO=2",
                    "--wdir",
                    "/usr",
                    "sh",
                    "-c",
                    "echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE ${COMMON} ${ONE:-}${TWO} "
                    "$(pwd) $PWD"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(sorted_lines(result.out),
              ElementsAre("0/3 0/3 c 1", "1/3 1/3 c 2 /usr /usr", "2/3 2/3 c 2 /usr /usr"));
}

TEST(Programs, OnTwoNodesEachWithItsOwn) {
  const Result result =
      run_launcher({"-H", "localhost:1", "-n", "1", "sh", "-c", "echo a $RANK $NODE_RANK", ":",
                    "-H", "127.0.0.1:2", "sh", "-c", "echo b $RANK $NODE_RANK $LOCAL_RANK"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(sorted_lines(result.out), ElementsAre("a 0 0", "b 1 1 0", "b 2 1 1"));
}

TEST(Programs, TheMissingOneIsNamed) {
  const Result result =
      run_launcher({"-H", "localhost:2", "-n", "1", "sleep", "60", ":", "-n", "1", "./missing"});
  EXPECT_EQ(result.code, 127);
  EXPECT_THAT(result.err, HasSubstr("./missing"));
}

TEST(Mapping, ByNodeRanksTakeTurns) {
  const Result result = run_script({"-H", "localhost:2,127.0.0.1:2", "--map-by", "node"},
                                   "echo $RANK $NODE_RANK $LOCAL_RANK $LOCAL_WORLD_SIZE");
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(sorted_lines(result.out), ElementsAre("0 0 0 2", "1 1 0 2", "2 0 1 2", "3 1 1 2"));
}

TEST(Mapping, RanksOfAllNodesMeet) {
  const Result result = run_launcher(
      {"-H", "localhost:2,127.0.0.1:2", "--map-by", "node", CHAINMAIL_TEST_PROBE, "store"});
  EXPECT_EQ(result.code, 0) << result.err;
}

TEST(WorkingDirectory, HasTheNameThatTheShellHasForIt) {
  std::string name = (std::filesystem::temp_directory_path() / "chainmail-wdir.XXXXXX").string();
  ASSERT_NE(mkdtemp(name.data()), nullptr);
  std::filesystem::create_directory(name + "/real");
  std::filesystem::create_directory_symlink(name + "/real", name + "/link");
  EXPECT_EQ(shell("cd " + name + "/link && LAUNCHER -n 1 sh -c 'echo $PWD'"),
            name + "/link\ncode 0\n");
  EXPECT_EQ(shell("cd " + name + "/link && PWD=/usr LAUNCHER -n 1 sh -c 'echo $PWD'"),
            name + "/real\ncode 0\n");
  std::filesystem::remove_all(name);
}

TEST(WorkingDirectory, ThatIsMissingIsNamed) {
  const Result result = run_launcher({"-n", "1", "--wdir", "/no/such/folder", "true"});
  EXPECT_EQ(result.code, 125);
  EXPECT_THAT(result.err, HasSubstr("/no/such/folder"));
  EXPECT_THAT(result.err, HasSubstr("--wdir"));
}

TEST(Binding, IsWhatTheReportSays) {
  const Result result = run_script({"-n", "1", "--bind-to", "hwthread", "--report-bindings"},
                                   "grep Cpus_allowed_list /proc/self/status");
  EXPECT_EQ(result.code, 0) << result.err;
  const std::string cpu = result.out.substr(result.out.find_last_of("\t ") + 1);
  EXPECT_EQ(result.err, "launcher: rank 0 on host localhost is bound to processors " + cpu);
  EXPECT_EQ(cpu.find_first_of("-,"), std::string::npos) << cpu;
}

TEST(Binding, NoneIsTheWholeMachineThatTheLauncherHas) {
  const Result result = run_script({"-H", "localhost:1", "--bind-to", "none", "--report-bindings"},
                                   "grep Cpus_allowed_list /proc/self/status; "
                                   "grep Cpus_allowed_list /proc/$PPID/status");
  const auto lines = sorted_lines(result.out);
  ASSERT_EQ(lines.size(), 2U) << result.err;
  EXPECT_EQ(lines[0], lines[1]);
  EXPECT_THAT(result.err, HasSubstr("is not bound"));
}

TEST(Binding, TooFewCoresAreExplained) {
  const Result result =
      run_launcher({"-n", "1", "--map-by", "slot:pe=4000", "--bind-to", "core", "true"});
  EXPECT_EQ(result.code, 125);
  EXPECT_THAT(result.err, HasSubstr("host localhost: 1 rank with 4000 cores each"));
}

TEST(Input, GoesToRankZero) {
  EXPECT_EQ(
      shell("printf 'a\\nb' | LAUNCHER -H localhost:2 --tag-output sh -c 'cat; echo .' | sort"),
      "[localhost/0] a\n[localhost/0] b.\n[localhost/1] .\ncode 0\n");
}

TEST(Input, GoesToWhomItIsMeantFor) {
  const std::string start = "echo in | LAUNCHER -H localhost:2,127.0.0.1:1 --tag-output --stdin ";
  EXPECT_EQ(shell(start + "2 cat"), "[127.0.0.1/2] in\ncode 0\n");
  EXPECT_EQ(shell(start + "all cat | sort"),
            "[127.0.0.1/2] in\n[localhost/0] in\n[localhost/1] in\ncode 0\n");
  EXPECT_EQ(shell(start + "none cat"), "code 0\n");
  EXPECT_THAT(shell(start + "3 cat"), HasSubstr("--stdin 3: the last rank of this job is 2"));
}

TEST(Input, LargeFilesArriveWholeEverywhere) {
  std::string name = (std::filesystem::temp_directory_path() / "chainmail-input.XXXXXX").string();
  ASSERT_NE(mkdtemp(name.data()), nullptr);
  {
    std::ofstream file(name + "/data", std::ios::binary);
    for (int i = 0; i < 600000; ++i) file << i * 7919LL << '\n';
  }
  const std::string wanted = shell("cksum <" + name + "/data");
  const std::string got = shell(
      "LAUNCHER -H localhost:3 --stdin all sh -c 'sleep 0.$RANK; cksum' <" + name + "/data | uniq");
  EXPECT_EQ(got, wanted);
  std::filesystem::remove_all(name);
}

TEST(Input, ThatNobodyReadsHoldsNobodyUp) {
  EXPECT_EQ(shell("yes | LAUNCHER -n 1 sh -c 'exec <&-; sleep 0.3; echo done'"), "done\ncode 0\n");
  EXPECT_EQ(shell("yes | LAUNCHER -n 2 --oversubscribe --stdin all true"), "code 0\n");
}

TEST(Input, ThatNeverEndsHoldsNobodyUp) {
  EXPECT_EQ(shell("{ sleep 1000 & echo $!; } | "
                  "{ read pid; LAUNCHER -n 1 --timeout 60 echo done; kill $pid; }"),
            "done\ncode 0\n");
}

// A session with a terminal, in which a shell with job control runs `script`; what it printed. Once
// it has printed `when`, `typed` is typed.
std::string in_terminal(const std::string& script, const std::string& when = "",
                        const std::string& typed = "") {
  int master = -1;
  const pid_t pid = forkpty(&master, nullptr, nullptr, nullptr);
  if (pid == 0) {
    execlp("bash", "bash", "-m", "-c", script.c_str(), nullptr);
    _exit(127);
  }
  std::string out;
  const Stopwatch clock;
  const auto limit = patient(std::chrono::seconds(15));
  bool is_typed = when.empty();
  fcntl(master, F_SETFL, O_NONBLOCK);
  while (clock.elapsed() < limit) {
    std::array<char, 4096> piece{};
    const ssize_t count = read(master, piece.data(), piece.size());
    if (count > 0) out.append(piece.data(), static_cast<std::size_t>(count));
    if (count < 0 && errno != EAGAIN) break;
    if (!is_typed && out.find(when) != std::string::npos) {
      is_typed = write(master, typed.data(), typed.size()) > 0;
    }
    if (count < 0) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  kill(-pid, SIGKILL);
  close(master);
  waitpid(pid, nullptr, 0);
  return out;
}

TEST(Input, OfATerminalDoesNotStopALauncherInTheBackground) {
  const std::string out = in_terminal("stty tostop; " CHAINMAIL_TEST_LAUNCHER
                                      " -n 1 echo from the rank & wait $!; echo code $?");
  EXPECT_THAT(out, HasSubstr("from the rank\r\n"));
  EXPECT_THAT(out, HasSubstr("code 0\r\n"));
}

TEST(Input, OfATerminalIsReadOnceTheLauncherIsInTheForeground) {
  const std::string out =
      in_terminal(CHAINMAIL_TEST_LAUNCHER
                  " -n 1 sh -c 'echo ready; read line && echo got $line' & sleep 0.3; "
                  "fg; echo code $?",
                  "ready", "typed\n");
  EXPECT_THAT(out, HasSubstr("got typed\r\n"));
  EXPECT_THAT(out, HasSubstr("code 0\r\n"));
}

TEST(Restarts, TheWorldIsStartedAnewUntilItEndsWell) {
  std::string name = (std::filesystem::temp_directory_path() / "chainmail-output.XXXXXX").string();
  ASSERT_NE(mkdtemp(name.data()), nullptr);
  const Result result =
      run_script({"-H", "localhost:2", "--max-restarts", "3", "--output", name},
                 "echo world $CHAINMAIL_GENERATION; [ $CHAINMAIL_GENERATION = 2 ] || exit 5");
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("started anew (restart 1 of 3)"));
  EXPECT_THAT(result.err, HasSubstr("started anew (restart 2 of 3)"));
  EXPECT_THAT(result.err, ::testing::Not(HasSubstr("restart 3 of 3")));
  EXPECT_THAT(result.err, HasSubstr("exited with code 5"));
  std::ifstream file(name + "/rank.1/stdout");
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), "world 0\nworld 1\nworld 2\n");
  std::filesystem::remove_all(name);
}

TEST(Restarts, RanksMeetInTheNextWorldToo) {
  const Result result = run_script(
      {"-H", "localhost:2,127.0.0.1:1", "--max-restarts", "1"},
      "[ $CHAINMAIL_GENERATION = 1 ] || kill -9 $$; exec " CHAINMAIL_TEST_PROBE " store");
  EXPECT_EQ(result.code, 0) << result.err;
}

TEST(Restarts, EndWithTheLastCode) {
  const Result result =
      run_script({"-n", "1", "--max-restarts", "1"}, "exit $((3 + $CHAINMAIL_GENERATION))");
  EXPECT_EQ(result.code, 4) << result.err;
}

TEST(Restarts, DoNotHelpAProgramThatIsMissing) {
  const Result result = run_launcher({"-n", "1", "--max-restarts", "5", "./missing"});
  EXPECT_EQ(result.code, 127);
  EXPECT_THAT(result.err, ::testing::Not(HasSubstr("anew")));
}

TEST(Restarts, CountAgainstOneTimeLimit) {
  const Result result =
      run_script({"-n", "1", "--max-restarts", "1000", "--timeout", "2"}, "sleep 0.2; exit 1");
  EXPECT_EQ(result.code, 124) << result.err;
  EXPECT_THAT(result.err, HasSubstr("the time limit of 2 s has passed"));
}

TEST(Restarts, ASignalToTheLauncherEndsTheJob) {
  RunningLauncher launcher({"-n", "1", "--max-restarts", "1000", "sh", "-c", "echo up; sleep 60"});
  ASSERT_TRUE(launcher.wait_for_output("up", std::chrono::seconds(20)));
  launcher.signal(SIGTERM);
  EXPECT_EQ(launcher.wait(std::chrono::seconds(20)), 143);
  EXPECT_THAT(launcher.err(), ::testing::Not(HasSubstr("anew")));
}

TEST(Output, TimestampsAndTags) {
  const Result result = run_launcher({"-n", "1", "--timestamp", "--tag-output", "echo", "x"});
  EXPECT_THAT(result.out,
              ::testing::MatchesRegex("20[0-9-]+ [0-9:]+\\.[0-9][0-9][0-9] \\[localhost/0\\] x\n"));
}

TEST(Help, IsPrinted) {
  EXPECT_EQ(run_launcher({"--help"}).code, 0);
  EXPECT_THAT(run_launcher({"--help-all"}).out, HasSubstr("--map-by"));
}

}  // namespace
}  // namespace chainmail::launch
