// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What an engine is told by the script that a shell reads: with stand-ins for the engines, which
// print their words, one on each line.

#include "launcher/remote/container_script.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "launcher/job/options.h"
#include "launcher/job/text.h"
#include "launcher/remote/start_failure.h"

namespace chainmail::launch {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::Not;
using ::testing::StartsWith;

class ContainerScriptTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name =
        (std::filesystem::temp_directory_path() / "chainmail-engines.XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
    for (const char* engine : {"podman", "docker", "apptainer"}) {
      const std::filesystem::path path = folder_ / engine;
      std::ofstream(path) << "#!/bin/sh\nfor word do echo \"$word\"; done\ncat >&2\n";
      ASSERT_EQ(chmod(path.c_str(), 0700), 0);
    }
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  // The lines that the script and the engine print; what is wrong is in `error_`.
  std::vector<std::string> run(const Container& container, const std::string& path = "") {
    std::ofstream(folder_ / "script")
        << container_script({container, "job-3", "chainmail.job=7"}, "chainmail-01");
    const std::string in = folder_.string();
    const std::string command =
        "cd " + in + "; { cat script; sleep 0.2; echo 'for the shell'; } | PATH='" +
        (path.empty() ? in + ":/usr/bin:/bin" : path) + "' /bin/sh >out 2>err";
    code_ = WEXITSTATUS(std::system(command.c_str()));
    error_ = text_of("err");
    std::vector<std::string> lines = split(text_of("out"), '\n');
    lines.pop_back();
    return lines;
  }

  std::string text_of(const char* name) const {
    std::ostringstream text;
    text << std::ifstream(folder_ / name).rdbuf();
    return text.str();
  }

  static Container of(const std::string& engine) {
    Container container;
    container.engine = engine;
    container.image = "image:1";
    return container;
  }

  std::filesystem::path folder_;
  std::string error_;
  int code_ = 0;
};

std::string user() { return std::to_string(getuid()) + ":" + std::to_string(getgid()); }

std::string refusal(const Container& container) {
  try {
    check_container(container);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST_F(ContainerScriptTest, DockerRunsAShellAsThisUser) {
  Container container = of("docker");
  container.shm_size = "8g";
  container.gpus = "all";
  container.mounts = {folder_.string() + ":/data:ro"};
  EXPECT_THAT(run(container),
              ElementsAre("<shell-for-chainmail-01>", "run", "--rm", "-i", "--init", "--name",
                          "job-3", "--label", "chainmail.job=7", "--network", "host", "--user",
                          user(), "--shm-size", "8g", "--gpus", "all", "-v",
                          folder_.string() + ":/data:ro", "image:1", "/bin/sh"));
  EXPECT_EQ(error_, "for the shell\n") << "the rest of the input is the container's";
}

TEST_F(ContainerScriptTest, PodmanKeepsTheUserAndTakesDevices) {
  Container container = of("podman");
  container.gpus = "0,2";
  const std::vector<std::string> words = run(container);
  EXPECT_THAT(words, IsSupersetOf({"--device", "nvidia.com/gpu=0", "nvidia.com/gpu=2"}));
  // Root's podman refuses it.
  EXPECT_EQ(std::count(words.begin(), words.end(), "--userns=keep-id"), getuid() == 0 ? 0 : 1);
}

TEST_F(ContainerScriptTest, ApptainerIsAProcessLikeOthers) {
  Container container = of("apptainer");
  container.gpus = "1";
  container.mounts = {"/:/host"};
  EXPECT_THAT(run(container),
              ElementsAre("<shell-for-chainmail-01>", "exec", "--nv", "--env",
                          "CUDA_VISIBLE_DEVICES=1", "--bind", "/:/host", "image:1", "/bin/sh"));
  EXPECT_FALSE(keeps_containers(container));
  EXPECT_TRUE(keeps_containers(of("docker")));
}

TEST_F(ContainerScriptTest, WithoutASizeSharedMemoryIsThatOfTheHost) {
  std::ofstream(folder_ / "df")
      << "#!/bin/sh\necho Filesystem 1024-blocks Used\necho tmpfs 4096 1\n";
  ASSERT_EQ(chmod((folder_ / "df").c_str(), 0700), 0);
  EXPECT_THAT(run(of("docker")), IsSupersetOf({"--shm-size", "4096k"}));
  std::ofstream(folder_ / "df") << "#!/bin/sh\nexit 1\n";
  EXPECT_THAT(run(of("docker")), Not(Contains("--shm-size")));
}

TEST_F(ContainerScriptTest, NoWordIsReadByTheShell) {
  Container container = of("docker");
  const std::string odd = folder_.string() + "/it's $(touch bad) `touch bad` \"*\" ;";
  std::filesystem::create_directory(odd);
  container.mounts = {odd + ":/odd place"};
  container.image = "x';touch bad;'";
  EXPECT_THAT(run(container), AllOf(Contains(odd + ":/odd place"), Contains("x';touch bad;'")));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "bad"));
}

TEST_F(ContainerScriptTest, WhatAHostLacksIsSaidBeforeTheEngineIsAsked) {
  Container container = of("docker");
  container.mounts = {"/no/such/folder:/data"};
  EXPECT_THAT(run(container), ::testing::IsEmpty());
  EXPECT_EQ(code_, 125);
  EXPECT_THAT(error_, HasSubstr("chainmail: container: there is no /no/such/folder"));
  EXPECT_THAT(run(of("docker"), "/usr/sbin/none"), ::testing::IsEmpty());
  EXPECT_THAT(error_, HasSubstr("chainmail: container: docker is not installed"));
}

TEST_F(ContainerScriptTest, WhatIsLeftIsRemovedByItsLabel) {
  std::ofstream(folder_ / "podman") << "#!/bin/sh\necho \"$*\" >>calls\n"
                                       "[ \"$1\" != ps ] || printf 'a1\\nb2\\n'\n";
  std::ofstream(folder_ / "script") << removal_script(of("podman"), "chainmail.job=7");
  const std::string in = folder_.string();
  const std::string command =
      "cd " + in + "; PATH=" + in + ":/usr/bin:/bin /bin/sh <script >out 2>err";
  EXPECT_EQ(std::system(command.c_str()), 0);
  EXPECT_EQ(text_of("calls"), "ps -aq --filter label=chainmail.job=7\nkill a1 b2\nrm -f a1 b2\n");
  EXPECT_EQ(text_of("out"), "2\n");
}

TEST_F(ContainerScriptTest, WhatAnEngineCouldMisreadIsRefused) {
  EXPECT_EQ(refusal(of("podman")), "");
  EXPECT_THAT(refusal(of("lxc")), HasSubstr("podman, docker or apptainer, not 'lxc'"));
  const auto with = [](auto change) {
    Container container = of("docker");
    change(container);
    return refusal(container);
  };
  EXPECT_THAT(with([](auto& c) { c.image = "--privileged"; }), HasSubstr("no name of an image"));
  EXPECT_THAT(with([](auto& c) { c.image = "a\nb"; }), HasSubstr("no name of an image"));
  for (const char* mount : {"data:/data", "/data", "/data:data", "/a:/b:ro:z", "/a:/b:r o", ""}) {
    EXPECT_THAT(with([&](auto& c) { c.mounts = {mount}; }), HasSubstr("a mount is")) << mount;
  }
  EXPECT_EQ(with([](auto& c) { c.mounts = {"/a:/b:ro,z", "/a b:/c"}; }), "");
  for (const char* gpus : {"some", "0,", "-1", "0 1"}) {
    EXPECT_THAT(with([&](auto& c) { c.gpus = gpus; }), HasSubstr("GPUs are")) << gpus;
  }
  for (const char* size : {"g", "8gb", "-8g", "1.5g"}) {
    EXPECT_THAT(with([&](auto& c) { c.shm_size = size; }), HasSubstr("shared memory")) << size;
  }
  EXPECT_THAT(with([](auto& c) { c.name_prefix = "-x"; }), HasSubstr("names and labels"));
  EXPECT_THAT(with([](auto& c) { c.label = "a b"; }), HasSubstr("not 'a b'"));
}

TEST(ContainerFailure, SaysWhatIsWrongWithImageOrEngine) {
  Container container;
  container.engine = "podman";
  container.image = "img";
  Host host;
  host.name = "n1";
  const auto told = [&](int code, const std::string& words) {
    return explain({host,
                    {"ssh"},
                    "/l",
                    "exited with code " + std::to_string(code),
                    code,
                    words,
                    "",
                    &container});
  };
  EXPECT_THAT(told(127, "Error: crun: no such file"),
              AllOf(StartsWith("image img on host n1 has no /bin/sh"), HasSubstr("| Error: crun")));
  EXPECT_THAT(told(126, "Error: exec /bin/sh: permission denied"),
              StartsWith("image img on host n1 has no /bin/sh"));
  EXPECT_THAT(told(126, "Error: crun: setrlimit: Operation not permitted: OCI permission denied"),
              StartsWith("podman on host n1 cannot start a container of image img"));
  EXPECT_THAT(told(1, "ERROR (catatonit:2): failed to exec pid1: No such file or directory"),
              StartsWith("image img on host n1 has no /bin/sh"));
  EXPECT_THAT(told(125, "Error: initializing source"),
              StartsWith("podman on host n1 cannot start a container of image img"));
  EXPECT_THAT(told(127, "chainmail: commands are missing: cksum mktemp"),
              HasSubstr("in a container of img: commands are missing: cksum mktemp; the agent"));
  EXPECT_THAT(told(125, "chainmail: another C library: there is no /lib64/ld.so"),
              HasSubstr("it needs the GNU C library"));
  EXPECT_THAT(told(1, "/l: version `GLIBC_2.38' not found"),
              HasSubstr("use an image with a newer"));
  EXPECT_THAT(told(255, "<shell-for-chainmail-1>\nreal"), Not(HasSubstr("shell-for")));
  EXPECT_THAT(told(1, "<shell-for-chainmail-1>\n"), HasSubstr("a /bin/sh that can be run?"));
  EXPECT_THAT(told(126, "<shell-for-chainmail-1>\n"),
              StartsWith("image img on host n1 has no /bin/sh"));
  EXPECT_FALSE(is_out_of_reach({host, {"ssh"}, "/l", "", 255, "", "", &container}));
}

TEST(OutOfReach, IsWhoMayAnswerLater) {
  Host host;
  host.name = "n1";
  const auto is_out = [&](int code, const std::string& words,
                          const std::vector<std::string>& shell = {"ssh"}) {
    return is_out_of_reach({host, shell, "/l", "", code, words, ""});
  };
  EXPECT_TRUE(is_out(255, "ssh: connect to host n1 port 22: No route to host"));
  EXPECT_TRUE(is_out(255, "ssh: Could not resolve hostname n1: Name or service not known"));
  EXPECT_TRUE(is_out(-1, ""));
  EXPECT_TRUE(is_out(1, "error: unable to upgrade connection: container not found"));
  EXPECT_FALSE(is_out(255, "me@n1: Permission denied (publickey)."));
  EXPECT_FALSE(is_out(255, "Host key verification failed."));
  EXPECT_FALSE(is_out(127, "sh: not found"));
  EXPECT_FALSE(is_out(0, ""));
  EXPECT_FALSE(is_out(125, "chainmail: no folder for the agent: /tmp is full"));
  EXPECT_FALSE(is_out(1, "", {}));
}

}  // namespace
}  // namespace chainmail::launch
