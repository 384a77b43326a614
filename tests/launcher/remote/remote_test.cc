// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include <elf.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstring>

#include "launcher/job/options.h"
#include "launcher/remote/agent_image.h"
#include "launcher/remote/bootstrap.h"
#include "launcher/remote/rsh_command.h"
#include "launcher/remote/start_failure.h"

namespace chainmail::launch {
namespace {

using testing::AnyOf;
using testing::HasSubstr;
using testing::Not;

Host host(const std::string& name, const std::string& user = "") {
  Host host;
  host.name = name;
  host.user = user;
  return host;
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

TEST(RemoteShell, AsksForAShellAndNothingElse) {
  Host named = host("n1", "bob");
  named.port = 2222;
  const std::string ssh = joined(remote_shell_command({"ssh", "-F", "conf"}, named));
  EXPECT_THAT(ssh, testing::StartsWith("ssh -F conf -o BatchMode=yes "));
  EXPECT_THAT(ssh, testing::EndsWith(" -T -x -p 2222 -l bob -- n1 /bin/sh"));
  EXPECT_THAT(ssh, Not(HasSubstr("StrictHostKeyChecking")));
  // One of the user's configuration would take the place of /bin/sh.
  EXPECT_THAT(ssh, HasSubstr(" -o RemoteCommand=none "));
  EXPECT_EQ(joined(remote_shell_command({"qrsh", "-inherit"}, host("n1"))),
            "qrsh -inherit n1 /bin/sh");
  EXPECT_EQ(joined(remote_shell_command({"kubectl", "exec", "-i", "%h", "--"}, host("n1"))),
            "kubectl exec -i n1 -- /bin/sh");
  EXPECT_EQ(joined(remote_shell_command({"/usr/bin/ssh"}, host("fe80::1%eth0"))).substr(0, 12),
            "/usr/bin/ssh");
}

TEST(RemoteShell, RefusesNamesThatCouldBeOptionsOrCommands) {
  for (const char* name : {"-oProxyCommand=touch x",
                           "-n1",
                           "",
                           "n1;id",
                           "n1 n2",
                           "$(id)",
                           "`id`",
                           "n1\nid",
                           "n1|id",
                           "n1&id",
                           "n1>x",
                           "n1'",
                           "n1\"",
                           "n1\\",
                           "n1*",
                           "~n1",
                           "n1#",
                           "n1!",
                           "{n1}",
                           "n1(",
                           "n1\xc3\xa4"}) {
    EXPECT_THROW((void)remote_shell_command({"ssh"}, host(name)), UsageError) << name;
    EXPECT_THROW((void)remote_shell_command({"sh", "-c", "%h"}, host(name)), UsageError) << name;
  }
  for (const char* user : {"-oProxyCommand=id", "bob;id", "$(id)", "b b", "bob\n"}) {
    EXPECT_THROW((void)remote_shell_command({"ssh"}, host("n1", user)), UsageError) << user;
  }
  EXPECT_THROW((void)remote_shell_command({"srun", "-w", "%h"}, host("n1", "bob")), UsageError);
}

TEST(RemoteShell, ShowsHowToLogInByHand) {
  EXPECT_EQ(login_line({"ssh", "-F", "my conf"}, host("n1", "bob"), "true"),
            "ssh -F 'my conf' -l bob n1 true");
  EXPECT_EQ(login_line({"ip", "netns", "exec", "%h"}, host("n1"), "true"), "ip netns exec n1 true");
}

TEST(Bootstrap, QuotesForAShell) {
  EXPECT_EQ(shell_quoted("it's $(id)"), "'it'\\''s $(id)'");
  EXPECT_EQ(shell_quoted(""), "''");
}

TEST(Bootstrap, IsOneCompoundCommandThatNeverSpellsItsRequest) {
  const std::string script = bootstrap_script(
      {"chainmail-01", "/opt/it's here/launcher", "chainmail-agent/1/1/ab", "x86_64", 17, "5 17"});
  EXPECT_EQ(script.substr(0, 2), "{\n");
  EXPECT_EQ(script.substr(script.size() - 2), "}\n");
  // qrsh may never start when more than a pipe holds is written before it has.
  EXPECT_LT(script.size(), 8192U);
  // A shell that shows what it reads must not look like one that asks for the image.
  EXPECT_THAT(script, Not(HasSubstr(image_request("chainmail-01"))));
  EXPECT_THAT(script, HasSubstr("'/opt/it'\\''s here/launcher'"));
}

TEST(AgentImage, ChecksumIsThatOfCksum) {
  EXPECT_EQ(posix_checksum(""), 4294967295U);
  EXPECT_EQ(posix_checksum("123456789"), 930766865U);
  EXPECT_EQ(posix_checksum(std::string(70000, 'x')), posix_checksum(std::string(70000, 'x')));
  EXPECT_NE(posix_checksum(std::string(70000, 'x')), posix_checksum(std::string(70001, 'x')));
}

std::string elf_with(std::initializer_list<std::pair<std::size_t, std::size_t>> segments) {
  Elf64_Ehdr head{};
  std::memcpy(head.e_ident, ELFMAG, SELFMAG);
  head.e_ident[EI_CLASS] = ELFCLASS64;
  head.e_phoff = sizeof head;
  head.e_phentsize = sizeof(Elf64_Phdr);
  head.e_phnum = static_cast<Elf64_Half>(segments.size());
  std::string bytes(reinterpret_cast<const char*>(&head), sizeof head);
  for (const auto& [offset, size] : segments) {
    Elf64_Phdr segment{};
    segment.p_offset = offset;
    segment.p_filesz = size;
    bytes.append(reinterpret_cast<const char*>(&segment), sizeof segment);
  }
  return bytes;
}

TEST(AgentImage, EndsWithTheLastSegment) {
  EXPECT_EQ(loadable_bytes(elf_with({{0, 500}, {4000, 1000}}), 9000), 5000U);
  EXPECT_EQ(loadable_bytes(elf_with({{4000, 1000}, {0, 500}}), 5000), 5000U);
  // Never less than the headers themselves.
  EXPECT_EQ(loadable_bytes(elf_with({{0, 10}}), 5000), sizeof(Elf64_Ehdr) + sizeof(Elf64_Phdr));
}

TEST(AgentImage, NamesWhatLoadsIt) {
  const AgentImage own = read_agent_image("/proc/self/exe");
  EXPECT_THAT(own.loader, testing::MatchesRegex("/lib.*/ld-linux.*"));
  EXPECT_EQ(loader_of("#!/bin/sh\n" + std::string(100, ' ')), "");
  std::string image = elf_with({{200, 5}});
  const Elf64_Word type = PT_INTERP;
  std::memcpy(image.data() + sizeof(Elf64_Ehdr), &type, sizeof type);
  EXPECT_EQ(loader_of(image), "") << "it lies behind what is known";
  image.resize(200);
  EXPECT_EQ(loader_of(image + std::string("/ld\0x", 5)), "/ld");
}

TEST(AgentImage, TakesNothingForGrantedAboutTheFile) {
  EXPECT_FALSE(loadable_bytes("", 0));
  EXPECT_FALSE(loadable_bytes("#!/bin/sh\nexit 0\n" + std::string(100, ' '), 117));
  const std::string good = elf_with({{0, 500}, {4000, 1000}});
  EXPECT_FALSE(loadable_bytes(good, 4999));                              // cut off
  EXPECT_FALSE(loadable_bytes(good.substr(0, good.size() - 1), 9000));   // headers cut off
  EXPECT_FALSE(loadable_bytes(elf_with({{~std::size_t{0}, 2}}), 9000));  // sum overflows
  EXPECT_FALSE(loadable_bytes(elf_with({{2, ~std::size_t{0}}}), 9000));
  std::string far = good;
  const Elf64_Off offset = ~Elf64_Off{0} - 10;
  std::memcpy(far.data() + offsetof(Elf64_Ehdr, e_phoff), &offset, sizeof offset);
  EXPECT_FALSE(loadable_bytes(far, 9000));
}

TEST(AgentImage, OwnProgramCanBeRead) {
  const AgentImage image = read_agent_image("/proc/self/exe");
  EXPECT_EQ(image.bytes->substr(0, 4), "\177ELF");
  EXPECT_THAT(image.checksum, testing::EndsWith(" " + std::to_string(image.bytes->size())));
  EXPECT_THAT(agent_identity(),
              testing::MatchesRegex("chainmail-agent/[^/ ]+/[0-9]+[.][0-9]+/[0-9a-z]+"));
}

struct ShellCase {
  const char* name;
  const char* error_output;
  int exit_code;
  const char* says;
};

TEST(StartFailure, EachCauseHasASentenceOfItsOwn) {
  const ShellCase cases[] = {
      {"name", "ssh: Could not resolve hostname n1: Name or service not known\r\n", 255,
       "unknown host n1: check its spelling"},
      {"name service", "ssh: Could not resolve hostname n1: Temporary failure in name resolution",
       255, "the name service does not answer for host n1"},
      {"unknown key",
       "No ED25519 host key is known for n1 and you have requested strict checking.\n"
       "Host key verification failed.",
       255,
       "not known here; run this once, compare the fingerprint that it shows and say yes: "
       "ssh -F conf -p 2222 -l bob n1 true"},
      {"changed key",
       "@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @\n"
       "Host key verification failed.",
       255, "is not the one that is known"},
      {"login", "bob@n1: Permission denied (publickey).", 255,
       "try: ssh-copy-id bob@n1, then: ssh -F conf -p 2222 -l bob n1 true"},
      {"no shell", "This account is currently not available.", 1, "gives no shell"},
      {"refused", "ssh: connect to host n1 port 2222: Connection refused", 255,
       "is up but refuses connections to port 2222"},
      {"route", "ssh: connect to host n1 port 22: No route to host", 255, "no route to host n1"},
      {"silent", "ssh: connect to host n1 port 22: Connection timed out", 255,
       "host n1 does not answer: is it up"},
      {"full", "kex_exchange_identification: read: Connection reset by peer", 255, "MaxStartups"},
      {"machine", "chainmail: machine aarch64, but this launcher is a program for x86_64", 125,
       "host n1: machine aarch64, but this launcher is a program for x86_64; install Chainmail "
       "built for that machine at /opt/launcher"},
      {"noexec", "chainmail: no folder for the agent: /tmp forbids programs (noexec);", 125,
       "host n1: no folder for the agent: /tmp forbids programs (noexec); set TMPDIR"},
      {"damaged", "chainmail: the agent arrived damaged in /tmp: cksum 1 2 instead of 3 4", 125,
       "arrived damaged in /tmp"},
      {"libc", "/tmp/x/launcher: /lib/libc.so.6: version `GLIBC_2.34' not found", 1,
       "the C library on host n1 is older"},
      {"format", "/bin/sh: 40: exec: /tmp/x/launcher: Exec format error", 126, "cannot be run"},
      {"no tools", "/bin/sh: 1: head: not found", 127, "head, mktemp, cksum"},
      {"no input", "", 0, "must pass standard input on"},
      {"start-up files", "", -1, "what do its login shell's start-up files wait for?"},
      {"unknown", "something else", 3, "the agent on host n1 did not start: ssh exited with"},
  };
  std::vector<std::string> seen;
  for (const ShellCase& one : cases) {
    StartFailure failure;
    failure.host = host("n1", "bob");
    failure.host.port = 2222;
    failure.remote_shell = {"ssh", "-F", "conf"};
    failure.launcher_path = "/opt/launcher";
    failure.exit = "exited with code " + std::to_string(one.exit_code);
    failure.exit_code = one.exit_code;
    failure.error_output = one.error_output;
    const std::string text = explain(failure);
    EXPECT_THAT(text, HasSubstr(one.says)) << one.name;
    // What was printed there is shown as it came.
    const std::string first =
        failure.error_output.substr(0, failure.error_output.find_first_of("\r\n"));
    if (!first.empty()) {
      EXPECT_THAT(text, HasSubstr("\n  | " + first)) << one.name;
    }
    const std::string sentence = text.substr(0, text.find('\n'));
    EXPECT_THAT(seen, Not(testing::Contains(sentence))) << one.name;
    seen.push_back(sentence);
  }
}

// In the words of kubectl 1.30 and its API server.
TEST(StartFailure, OfKubectlSaysWhetherThePodMayCome) {
  struct Case {
    const char* error_output;
    int exit_code;
    const char* says;
    bool may_pass;
  };
  const Case cases[] = {
      {"Error from server (NotFound): pods \"n1\" not found", 1, "there is no pod n1", true},
      {"Error from server (NotFound): namespaces \"x\" not found", 1, "no such namespace", false},
      {"error: unable to upgrade connection: container not found (\"worker\")", 1,
       "the container of pod n1 does not run", true},
      {"Error from server (BadRequest): pod n1 does not have a host assigned", 1,
       "the container of pod n1 does not run", true},
      {"error: cannot exec into a container in a completed pod; current phase is Failed", 1,
       "the container of pod n1 does not run", true},
      {"error: Internal error occurred: error executing command in container: container is not "
       "running",
       1, "the container of pod n1 does not run", true},
      {"Error from server: error dialing backend: dial tcp 10.0.0.5:10250: connect: connection "
       "refused",
       1, "the node of pod n1 does not answer", true},
      {"The connection to the server 10.96.0.1:443 was refused - did you specify the right host or "
       "port?",
       1, "does not reach the API server", true},
      {"Unable to connect to the server: dial tcp 10.96.0.1:443: i/o timeout", 1,
       "does not reach the API server", true},
      {"Error from server (Forbidden): pods \"n1\" is forbidden: User \"u\" cannot create resource "
       "\"pods/exec\" in API group \"\" in the namespace \"default\"",
       1, "get and create on pods/exec", false},
      {"error: You must be logged in to the server (Unauthorized)", 1, "the login expired", false},
      {"", 0, "was cut before the agent spoke", true},
      {"", -1, "do the API server and the pod's node answer", true},
      {"OCI runtime exec failed: exec: \"/bin/sh\": stat /bin/sh: no such file or directory\n"
       "command terminated with exit code 127",
       127, "a command was not found on host n1", false},
      {"chainmail: no folder for the agent: /tmp forbids programs (noexec);", 1, "no folder",
       false},
      {"Error from server (BadRequest): container w is not valid for pod n1", 1,
       "no container of the name", false},
      {"Error from server: etcdserver: request timed out", 1, "the API server could not", true},
      {"Error from server (TooManyRequests): the server has received too many requests", 1,
       "the API server could not", true},
      {"error: something new", 1, "did not start: env exited", true},
  };
  for (const Case& one : cases) {
    StartFailure failure;
    failure.host = host("n1");
    failure.remote_shell = {"env", "A=b", "/opt/bin/kubectl", "-n", "x", "exec", "-i", "%h", "--"};
    failure.exit = "exited with code " + std::to_string(one.exit_code);
    failure.exit_code = one.exit_code;
    failure.error_output = one.error_output;
    EXPECT_THAT(explain(failure), HasSubstr(one.says)) << one.error_output;
    EXPECT_EQ(is_out_of_reach(failure), one.may_pass) << one.error_output;
  }
}

// What is wrong with kubectl itself does not pass.
TEST(StartFailure, OfKubectlThatCannotBeUsedIsFinal) {
  for (const char* said :
       {"The connection to the server localhost:8080 was refused - did you specify the right host "
        "or port?",
        "error: context \"x\" does not exist", "error: unknown flag: --foo",
        "error: invalid configuration: no configuration has been provided",
        "Unable to connect to the server: getting credentials: exec: executable aws not found",
        "Unable to connect to the server: tls: failed to verify certificate: x509: certificate "
        "signed by unknown authority"}) {
    StartFailure failure;
    failure.host = host("n1");
    failure.remote_shell = {"kubectl", "exec", "-i", "%h", "--"};
    failure.exit_code = 1;
    failure.error_output = said;
    EXPECT_FALSE(is_out_of_reach(failure)) << said;
    EXPECT_THAT(explain(failure), AnyOf(HasSubstr("as it is called or set up"),
                                        HasSubstr("does not know the cluster")))
        << said;
  }
}

TEST(StartFailure, OfKubectlByOtherNames) {
  for (const char* name : {"/opt/bin/kubectl-1.30", "kubectl.exe", "kubectl1.30", "oc", "k"}) {
    StartFailure failure;
    failure.host = host("n1");
    failure.remote_shell = {name, "exec", "-i", "%h", "--"};
    failure.exit_code = 1;
    failure.error_output = "Error from server (Forbidden): pods \"n1\" is forbidden: User \"u\"";
    EXPECT_THAT(explain(failure), HasSubstr("may not exec in pod n1")) << name;
    EXPECT_FALSE(is_out_of_reach(failure)) << name;
    // One that is cut says nothing that it could be known by.
    failure.exit_code = 0;
    failure.error_output.clear();
    EXPECT_EQ(is_out_of_reach(failure), failure.remote_shell[0] != "k") << name;
  }
}

TEST(StartFailure, OfKubectlWithoutItsInput) {
  StartFailure failure;
  failure.host = host("n1");
  failure.remote_shell = {"kubectl", "exec", "%h", "--"};
  failure.exit_code = 0;
  EXPECT_THAT(explain(failure), HasSubstr("must pass standard input on"));
  EXPECT_FALSE(is_out_of_reach(failure));
}

TEST(StartFailure, OfSshToAUserWhoseNameIsAProgramsIsNotOfKubectl) {
  StartFailure failure;
  failure.host = host("n1");
  failure.remote_shell = {"ssh", "-l", "oc", "-i", "key"};
  failure.exit_code = 0;
  EXPECT_FALSE(is_out_of_reach(failure));
  EXPECT_THAT(explain(failure), Not(HasSubstr("pod ")));
}

TEST(StartFailure, OfAnSshdThatIsTooBusyToGreetIsNoSilentHost) {
  StartFailure failure;
  failure.host = host("n1");
  failure.remote_shell = {"ssh"};
  failure.exit = "exited with code 255";
  failure.exit_code = 255;
  failure.error_output =
      "Connection timed out during banner exchange\nConnection to 10.0.0.1 port 22 timed out";
  EXPECT_THAT(explain(failure), HasSubstr("host n1 closed the connection before the login"));
}

TEST(StartFailure, ShowsTheHint) {
  StartFailure failure;
  failure.host = host("n1");
  failure.remote_shell = {"ssh"};
  failure.exit = "exited with code 3";
  failure.exit_code = 3;
  failure.error_output = "something else";
  failure.hint = "a hint";
  EXPECT_THAT(explain(failure), HasSubstr("try: ssh n1 true; a hint\n  | something else"));
}

TEST(StartFailure, OfASchedulersStarterNamesSsh) {
  StartFailure failure;
  failure.host = host("n1");
  failure.remote_shell = {"/opt/sge/bin/qrsh", "-inherit", "-V"};
  failure.exit = "exited with code 1";
  failure.exit_code = 1;
  failure.error_output = "error: executing task of job 7 failed";
  EXPECT_THAT(explain(failure),
              HasSubstr("try: /opt/sge/bin/qrsh -inherit -V n1 true; where ssh gets there, --rsh "
                        "ssh does without it\n  | error:"));
}

TEST(StartFailure, OnlyWhatPassesIsTriedAgain) {
  for (const char* busy :
       {"kex_exchange_identification: Connection closed by remote host",
        "ssh_exchange_identification: read: Connection reset by peer",
        "Connection closed by 10.0.0.1 port 22", "Connection reset by 10.0.0.1 port 22",
        "Connection timed out during banner exchange\nConnection to 10.0.0.1 port 22 timed out",
        "banner exchange: Connection to 10.0.0.1 port 22: Broken pipe", "Exceeded MaxStartups",
        "Not allowed at this time", "sh: 1: Cannot fork: Resource temporarily unavailable",
        "\"System is booting up. Unprivileged users are not permitted to log in yet.\""}) {
    EXPECT_EQ(worthwhile_tries(busy), 10) << busy;
  }
  EXPECT_EQ(worthwhile_tries("ssh: n1: Temporary failure in name resolution"), 3);
  for (const char* final :
       {"bob@n1: Permission denied (publickey).", "Host key verification failed.",
        "ssh: connect to host n1 port 22: Connection refused",
        "ssh: connect to host n1 port 22: Connection timed out",
        "ssh: connect to host jump port 22: Connection refused\r\n"
        "kex_exchange_identification: Connection closed by remote host\r\n"
        "Connection closed by UNKNOWN port 65535",
        "ssh: Could not resolve hostname n1: Name or service not known"}) {
    EXPECT_EQ(worthwhile_tries(final), 1) << final;
  }
}

TEST(Starters, ThoseOfTheSchedulerWhereTheyAreInstalled) {
  const auto all = [](const std::string&) { return true; };
  const auto none = [](const std::string&) { return false; };
  const std::vector<Host> hosts = {host("n1"), host("n2")};
  EXPECT_EQ(default_remote_shell(Scheduler::kNone, hosts, all), "ssh");
  EXPECT_EQ(default_remote_shell(Scheduler::kGridEngine, hosts, all), "qrsh -inherit -V");
  EXPECT_THAT(default_remote_shell(Scheduler::kSlurm, hosts, all), testing::StartsWith("srun "));
  EXPECT_EQ(default_remote_shell(Scheduler::kLsf, hosts, all), "blaunch");
  EXPECT_EQ(default_remote_shell(Scheduler::kPbs, hosts, all), "ssh");
  for (const Scheduler scheduler : {Scheduler::kGridEngine, Scheduler::kSlurm, Scheduler::kLsf}) {
    EXPECT_EQ(default_remote_shell(scheduler, hosts, none), "ssh");
  }
}

TEST(Starters, SshWhereTheSchedulersDoNotReachAllHosts) {
  const auto all = [](const std::string&) { return true; };
  EXPECT_EQ(default_remote_shell(Scheduler::kSlurm, {host("n1"), host("n2", "bob")}, all), "ssh");
  Host with_port = host("n1");
  with_port.port = 2222;
  EXPECT_EQ(default_remote_shell(Scheduler::kGridEngine, {with_port}, all), "ssh");
}

TEST(Starters, SrunIsToldWhatTheAgentNeeds) {
  Host plain = host("n1");
  EXPECT_EQ(joined(remote_shell_command({"srun", "-N1", "-n1", "-w", "%h"}, plain)),
            "srun --unbuffered -N1 -n1 -w n1 /bin/sh");
  EXPECT_EQ(joined(remote_shell_command({"env", "A=b", "/opt/slurm/bin/srun", "-w", "%h"}, plain)),
            "env A=b /opt/slurm/bin/srun --unbuffered -w n1 /bin/sh");
  EXPECT_EQ(joined(remote_shell_command({"srun", "-u", "-w", "%h"}, plain)),
            "srun -u -w n1 /bin/sh");
  Host member = plain;
  member.component = 1;
  member.gpus = 3;
  EXPECT_EQ(joined(remote_shell_command({"srun", "-w", "%h"}, member)),
            "srun --unbuffered --het-group=1 --gpus=3 -w n1 /bin/sh");
  EXPECT_EQ(joined(remote_shell_command({"srun", "--het-group=0", "--gres=gpu:1", "-w%h"}, member)),
            "srun --unbuffered --het-group=0 --gres=gpu:1 -wn1 /bin/sh");
  member.gpus = 0;
  EXPECT_EQ(joined(remote_shell_command({"srun", "-w", "%h"}, member)),
            "srun --unbuffered --het-group=1 --gres=none -w n1 /bin/sh");
  EXPECT_EQ(joined(remote_shell_command({"qrsh", "-inherit"}, member)), "qrsh -inherit n1 /bin/sh");
  EXPECT_EQ(login_line({"srun", "-w", "%h"}, member, "true"),
            "srun --unbuffered --het-group=1 --gres=none -w n1 true");
}

TEST(Starters, HaveNoVariablesThatChangeWhatSrunDoes) {
  setenv("SLURM_LABELIO", "1", 1);
  setenv("SLURM_GPUS", "4", 1);
  setenv("SLURM_UNBUFFEREDIO", "0", 1);
  setenv("SLURM_JOB_ID", "7", 1);
  const std::vector<std::string> variables = starter_environment();
  for (const char* name : {"SLURM_LABELIO", "SLURM_GPUS", "SLURM_UNBUFFEREDIO", "SLURM_JOB_ID"}) {
    unsetenv(name);
  }
  EXPECT_THAT(variables, testing::Contains("SLURM_JOB_ID=7"));
  EXPECT_THAT(variables, testing::Contains("SLURM_UNBUFFEREDIO=1"));
  EXPECT_THAT(variables, testing::Contains(testing::StartsWith("PATH=")));
  EXPECT_THAT(variables, Not(testing::Contains(testing::StartsWith("SLURM_LABELIO="))));
  EXPECT_THAT(variables, Not(testing::Contains(testing::StartsWith("SLURM_GPUS="))));
  EXPECT_THAT(variables, Not(testing::Contains("SLURM_UNBUFFEREDIO=0")));
}

TEST(Starters, AreLookedForInPath) {
  EXPECT_TRUE(is_in_path("sh"));
  EXPECT_FALSE(is_in_path("no-such-starter"));
}

}  // namespace
}  // namespace chainmail::launch
