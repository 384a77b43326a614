// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What the start on another host runs of what it finds there: whatever lies at the launcher's path,
// nothing that somebody else could have put there. Real shells, files and users; needs root.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "launcher/remote/bootstrap.h"

namespace chainmail::launch {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr char kIdentity[] = "chainmail-agent/9.9.9/1/abcdef";

// Programs that stand where the launcher is looked for; $D is the case's own folder.
constexpr char kHelpers[] = R"(
set -e
cd "$D"
program() { # FILE [IDENTITY]
  printf '#!/bin/sh\n# chainmail-agent/9.9.9/1/\necho "$1" >>%s/calls\n' "'$D'" >"$1"
  printf 'case $1 in --agent-id) echo %s ;; --agent) echo "runs $0" ;; esac\n' \
    "${2:-chainmail-agent/9.9.9/1/abcdef}" >>"$1"
  chmod 755 "$1"
}
planted() { printf '#!/bin/sh\necho planted >>%s/planted\n' "'$D'" >"$1"; chmod 755 "$1"; }
: >calls
: >planted
chmod 666 calls planted
mkdir opt bin
)";

struct Case {
  const char* name;
  const char* setup;
  const char* path;              // below $D
  const char* runs;              // this, below $D; null: nothing that is there
  const char* reason = nullptr;  // why not
  uid_t user = 0;
  const char* machine = nullptr;
};

struct Outcome {
  std::string out;
  std::string err;
  std::string planted;
};

std::string contents(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

class RemoteTrust : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "skipped: needs root, to have files of other users";
    if (std::system("command -v setpriv >/dev/null") != 0) GTEST_SKIP() << "skipped: no setpriv";
    const std::string look = std::string("command -v ") + GetParam() + " >/dev/null";
    if (std::system(look.c_str()) != 0) GTEST_SKIP() << "skipped: no " << GetParam();
    std::string pattern = "/tmp/chainmail-trust.XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
    std::filesystem::permissions(root_, std::filesystem::perms{0755});
  }
  void TearDown() override {
    if (!root_.empty()) std::filesystem::remove_all(root_);
  }

  Outcome run(const Case& one, const std::string& variables = "") {
    const std::string folder = root_ + "/" + std::to_string(++count_);
    std::filesystem::create_directory(folder);
    const std::string preparation = "export D=" + folder + kHelpers + one.setup;
    std::ofstream(folder + "/setup") << preparation;
    EXPECT_EQ(std::system(("sh " + folder + "/setup").c_str()), 0) << one.name;
    Bootstrap bootstrap{"m1", folder + "/" + one.path, kIdentity, this_machine(), 5, "5 17"};
    if (one.machine != nullptr) bootstrap.machine = one.machine;
    std::ofstream(folder + "/script") << bootstrap_script(bootstrap);
    std::filesystem::permissions(folder + "/script", std::filesystem::perms{0644});
    const std::string user = std::to_string(one.user);
    // Its input ends where the agent would come.
    const std::string command = "D=" + folder + " PATH=" + folder + "/bin:$PATH " + variables +
                                " setpriv --reuid " + user + " --regid " + user +
                                " --clear-groups " + GetParam() + " <" + folder + "/script >" +
                                folder + "/out 2>" + folder + "/err";
    (void)!std::system(command.c_str());
    return {contents(folder + "/out"), contents(folder + "/err"), contents(folder + "/planted")};
  }

  static std::string this_machine() {
    FILE* pipe = popen("uname -m", "r");
    char text[64] = "";
    (void)!fgets(text, sizeof text, pipe);
    pclose(pipe);
    return std::string(text).substr(0, std::string(text).find('\n'));
  }

  void expect(const Case& one) {
    SCOPED_TRACE(one.name);
    const Outcome outcome = run(one);
    EXPECT_EQ(outcome.planted, "");
    if (one.runs != nullptr) {
      const std::string folder = root_ + "/" + std::to_string(count_) + "/";
      EXPECT_THAT(outcome.out, HasSubstr("runs " + folder + one.runs)) << outcome.err;
      EXPECT_EQ(outcome.err, "");
      return;
    }
    EXPECT_THAT(outcome.out, AllOf(HasSubstr("<image-for-m1>"), Not(HasSubstr("runs "))))
        << outcome.err;
    if (one.reason == nullptr) {
      EXPECT_THAT(outcome.err, Not(HasSubstr(kBootstrapNotes)));
    } else {
      EXPECT_THAT(outcome.err, AllOf(HasSubstr(std::string(kBootstrapNotes) + root_),
                                     HasSubstr(one.path), HasSubstr(one.reason)));
    }
  }

  std::string root_;
  int count_ = 0;
};

TEST_P(RemoteTrust, RunsNothingThatOthersCouldHaveWritten) {
  const Case cases[] = {
      {"root's", "program opt/launcher", "opt/launcher", "opt/launcher"},
      {"somebody's file", "planted opt/launcher; chown 65534 opt/launcher", "opt/launcher", nullptr,
       "/opt/launcher belongs to uid 65534, who is neither root nor this user (uid 0)"},
      {"somebody's folder", "planted opt/launcher; chown 65534 opt", "opt/launcher", nullptr,
       "/opt belongs to uid 65534"},
      {"in somebody's folder", "mkdir opt/a; planted opt/a/launcher; chown 61234 opt",
       "opt/a/launcher", nullptr, "/opt belongs to uid 61234"},
      {"the group may write to the file", "planted opt/launcher; chmod 775 opt/launcher",
       "opt/launcher", nullptr, "/opt/launcher may write to it (-rwxrwxr-x)"},
      {"everybody may write to the file", "planted opt/launcher; chmod 757 opt/launcher",
       "opt/launcher", nullptr, "everybody may write to "},
      {"a file's sticky bit helps nothing", "planted opt/launcher; chmod 1777 opt/launcher",
       "opt/launcher", nullptr, "everybody may write to "},
      {"the group may write to the folder", "planted opt/launcher; chmod 775 opt", "opt/launcher",
       nullptr, "/opt may write to it (drwxrwxr-x)"},
      {"everybody may write to the folder", "planted opt/launcher; chmod 777 opt", "opt/launcher",
       nullptr, "everybody may write to "},
      {"everybody may write further up",
       "mkdir -p opt/a/b; planted opt/a/b/launcher; chmod 777 opt", "opt/a/b/launcher", nullptr,
       "/opt (drwxrwxrwx)"},
      {"in a folder like /tmp", "program opt/launcher; chmod 1777 opt", "opt/launcher",
       "opt/launcher"},
      {"somebody's file in a folder like /tmp",
       "planted opt/launcher; chown 65534 opt/launcher; chmod 1777 opt", "opt/launcher", nullptr,
       "belongs to uid 65534"},
      {"somebody's folder like /tmp", "planted opt/launcher; chmod 1777 opt; chown 65534 opt",
       "opt/launcher", nullptr, "/opt belongs to uid 65534"},
      {"somebody's link to root's file",
       "program opt/launcher; mkdir a; ln -s ../opt/launcher a/launcher; chown -h 65534 a "
       "a/launcher",
       "a/launcher", "opt/launcher"},
      {"root's link to somebody's file",
       "planted opt/x; chown 65534 opt/x; mkdir a; ln -s ../opt/x a/launcher", "a/launcher",
       nullptr, "/opt/x belongs to uid 65534"},
      {"a link to somebody's folder", "planted opt/launcher; chown 65534 opt; ln -s opt a",
       "a/launcher", nullptr, "/opt belongs to uid 65534"},
      {"somebody's link to another program of root",
       "planted opt/x; mkdir a; ln -s ../opt/x a/launcher; chown -h 65534 a a/launcher",
       "a/launcher", nullptr},
      {"nothing", "", "opt/launcher", nullptr},
      {"another build", "program opt/launcher chainmail-agent/9.9.9/1/other", "opt/launcher",
       nullptr},
      {"a name that shells would act upon",
       "mkdir \"it's \\$(id) *\"; program \"it's \\$(id) */x\"", "it's $(id) */x",
       "it's $(id) */x"},
      {"the user's own", "program opt/launcher; chown -R 61234 opt", "opt/launcher", "opt/launcher",
       nullptr, 61234},
      {"root's, for a user", "program opt/launcher", "opt/launcher", "opt/launcher", nullptr,
       61234},
      {"another user's, for a user", "planted opt/launcher; chown 61235 opt/launcher",
       "opt/launcher", nullptr,
       "belongs to uid 61235, who is neither root nor this user (uid 61234)", 61234},
      {"the user's own, to which his group may write",
       "planted opt/launcher; chown -R 61234:61234 opt; chmod 775 opt", "opt/launcher", nullptr,
       "/opt may write to it", 61234},
  };
  for (const Case& one : cases) expect(one);
}

// The programs that the script calls stand in for what happens at the same time: each of them lets
// somebody else act first.
TEST_P(RemoteTrust, WhatIsCheckedIsWhatRuns) {
  const std::string somebody =
      "somebody() { printf '#!/bin/sh\\n%s\\nexec %s \"$@\"\\n' "
      "\"setpriv --reuid 65534 --clear-groups sh -c '$2' 2>/dev/null\" "
      "\"$(command -v $1)\" >bin/$1; chmod 755 bin/$1; }\n";
  for (const char* when : {"readlink", "ls", "grep"}) {
    SCOPED_TRACE(when);
    const std::string link =
        somebody +
        "program opt/launcher; mkdir a; planted a/x; ln -s ../opt/launcher a/launcher; "
        "chown -hR 65534 a; somebody " +
        when + " \"cd $D/a; ln -sfn x launcher\"";
    const Outcome swapped = run({"link", link.c_str(), "a/launcher", nullptr});
    EXPECT_EQ(swapped.planted, "");
    if (std::string_view(when) != "readlink") {
      EXPECT_THAT(swapped.out, HasSubstr("/opt/launcher"));
    }
    const std::string sticky =
        somebody +
        "program opt/launcher; planted opt/x; chown 65534 opt/x; chmod 1777 opt; somebody " + when +
        " \"cd $D/opt; mv -f x launcher; ln -sfn x launcher; cat x >launcher\"";
    const Outcome kept = run({"sticky", sticky.c_str(), "opt/launcher", nullptr});
    EXPECT_EQ(kept.planted, "");
    EXPECT_THAT(kept.out, HasSubstr("/opt/launcher"));
  }
}

TEST_P(RemoteTrust, AnotherMachineSaysWhyTheInstalledOneIsNotRun) {
  const Outcome outcome = run({"other", "planted opt/launcher; chown 65534 opt", "opt/launcher",
                               nullptr, nullptr, 0, "other"});
  EXPECT_EQ(outcome.planted, "");
  EXPECT_THAT(outcome.err,
              AllOf(HasSubstr(std::string(kBootstrapSays) + "machine "),
                    HasSubstr("/opt/launcher is not run: "), HasSubstr("belongs to uid 65534")));
}

TEST_P(RemoteTrust, TheAgentIsSentIntoNoFolderThatOthersCouldReplace) {
  const Case one{"folder", "chmod 777 opt; chown 61234 bin", "none", nullptr};
  const std::string folder = root_ + "/" + std::to_string(count_ + 1);
  EXPECT_THAT(run(one, "TMPDIR=" + folder + "/opt").err, HasSubstr("arrived damaged in /tmp:"));
  const std::string own = root_ + "/" + std::to_string(count_ + 1) + "/opt";
  EXPECT_THAT(run({"own", "", "none", nullptr}, "TMPDIR=" + own).err,
              HasSubstr("arrived damaged in " + own + ":"));
}

INSTANTIATE_TEST_SUITE_P(
    Shells, RemoteTrust, testing::Values("dash", "bash", "busybox sh"), [](const auto& instance) {
      return std::string(instance.param).substr(0, std::string_view(instance.param).find(' '));
    });

}  // namespace
}  // namespace chainmail::launch
