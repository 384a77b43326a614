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
#include <system_error>

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

// Every folder is full.
constexpr char kNoFolder[] = "printf '#!/bin/sh\\nexit 1\\n' >bin/mktemp; chmod 755 bin/mktemp";

class RemoteTrust : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (geteuid() != 0) {
      GTEST_SKIP() << "skipped: needs root, to have files of other users";
    }
    if (std::system("command -v setpriv >/dev/null") != 0) {
      GTEST_SKIP() << "skipped: no setpriv";
    }
    const std::string look = std::string("command -v ") + GetParam() + " >/dev/null";
    if (std::system(look.c_str()) != 0) {
      GTEST_SKIP() << "skipped: no " << GetParam();
    }
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
    const bool in_namespace = variables.find("IN_NAMESPACE") != std::string::npos;
    const std::string command =
        "D=" + folder + " PATH=" + folder + "/bin:$PATH " + variables + " setpriv --reuid " + user +
        " --regid " + user + " --clear-groups " + (in_namespace ? "unshare -Ur " : "") +
        GetParam() + " <" + folder + "/script >" + folder + "/out 2>" + folder + "/err";
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
      {"a name with blanks and quotes", "mkdir 'opt/ a \" b'; program 'opt/ a \" b/x '",
       "opt/ a \" b/x ", "opt/ a \" b/x "},
      {"a line break", "mkdir 'opt/a\nb'; planted 'opt/a\nb/x'", "opt/a\nb/x", nullptr,
       "a path with a line break"},
      {"a line break in what a link leads to",
       "mkdir 'opt/a\n-rwxr-xr-x 1 0 0 0 x'; planted 'opt/a\n-rwxr-xr-x 1 0 0 0 x/x'; ln -s "
       "opt/a*/x a; chown -h 65534 a opt/a*",
       "a", nullptr, "a path with a line break"},
      {"a link to somebody's link to root's file",
       "program opt/launcher; ln -s opt/launcher a; chown -h 65534 a; ln -s a b", "b",
       "opt/launcher"},
      {"a link to somebody's link to somebody's file",
       "planted opt/x; chown 65534 opt/x; ln -s opt/x a; chown -h 65534 a; ln -s a b", "b", nullptr,
       "/opt/x belongs to uid 65534"},
      {"in somebody's folder in one like /tmp",
       "mkdir opt/a; planted opt/a/x; chmod 1777 opt; chown 65534 opt/a", "opt/a/x", nullptr,
       "/opt/a belongs to uid 65534"},
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

TEST_P(RemoteTrust, SaysWhichFolderIsMissing) {
  const auto reasons = [this](const std::string& value) {
    return run({"missing", kNoFolder, "none", nullptr}, "HOME=/none/at/all TMPDIR=" + value).err;
  };
  const std::string folder = root_ + "/" + std::to_string(count_ + 1);
  EXPECT_THAT(reasons(folder + "/opt/missing/deeper"),
              HasSubstr(" " + folder + "/opt/missing cannot be found;"));
  EXPECT_THAT(reasons("tmp"), HasSubstr(" 'tmp' is not an absolute path;"));
  EXPECT_THAT(reasons("./-tmp"), HasSubstr(" './-tmp' is not an absolute path;"));
}

// On systems without readlink -f nothing makes a path absolute.
TEST_P(RemoteTrust, TakesNoRelativePath) {
  const Case one{
      "relative",
      "chmod 777 opt; printf '#!/bin/sh\nexit 1\n' >bin/readlink; chmod 755 bin/readlink", "none",
      nullptr};
  const std::string folder = root_ + "/" + std::to_string(count_ + 1);
  EXPECT_THAT(run(one, "TMPDIR=opt env -C " + folder).err, HasSubstr("arrived damaged in /tmp:"));
  EXPECT_THAT(run({"links",
                   "printf '#!/bin/sh\nexit 1\n' >bin/readlink; chmod 755 bin/readlink; "
                   "planted opt/x; ln -s opt/x a",
                   "a", nullptr})
                  .err,
              HasSubstr(" is not a regular file or a folder (lrwx"));
}

// The launcher as it is built: it holds what the script looks for, and nothing is sent.
TEST_P(RemoteTrust, RunsTheInstalledLauncher) {
  const std::string folder = root_ + "/" + std::to_string(++count_);
  const std::string launcher = folder + "/launcher";
  std::filesystem::create_directory(folder);
  std::filesystem::copy_file(CHAINMAIL_TEST_LAUNCHER, launcher);
  std::filesystem::permissions(launcher, std::filesystem::perms{0755});
  std::filesystem::permissions(folder, std::filesystem::perms{0755});
  ASSERT_EQ(std::system((launcher + " --agent-id >" + folder + "/identity").c_str()), 0);
  std::string identity = contents(folder + "/identity");
  identity.pop_back();
  const auto answer = [&](const std::string& wanted, const std::string& more = "") {
    std::ofstream(folder + "/script")
        << bootstrap_script({"m1", launcher, wanted, this_machine(), 5, "5 17"});
    (void)!std::system(
        (more + GetParam() + " <" + folder + "/script >" + folder + "/out 2>" + folder + "/err")
            .c_str());
    return contents(folder + "/out");
  };
  EXPECT_THAT(answer(identity), AllOf(HasSubstr("<m1>"), Not(HasSubstr("<image-for-m1>"))))
      << contents(folder + "/err");
  EXPECT_EQ(contents(folder + "/err"), "");
  EXPECT_THAT(answer(identity, "setpriv --reuid 61234 --regid 61234 --clear-groups "),
              AllOf(HasSubstr("<m1>"), Not(HasSubstr("<image-for-m1>"))))
      << contents(folder + "/err");
  EXPECT_THAT(answer(identity + "0"), AllOf(Not(HasSubstr("<m1>")), HasSubstr("<image-for-m1>")));
}

// In a user namespace root of the outside and everybody else there have one number.
TEST_P(RemoteTrust, StartsInAUserNamespace) {
  if (std::system("setpriv --reuid 61234 --clear-groups unshare -Ur true 2>/dev/null") != 0) {
    GTEST_SKIP() << "skipped: users may make no user namespaces";
  }
  const auto sent_to = [this](const char* setup, const std::string& variables = "") {
    return run({"namespace", setup, "opt/launcher", nullptr, nullptr, 61234},
               variables + " IN_NAMESPACE=yes");
  };
  EXPECT_THAT(sent_to("").err, HasSubstr("arrived damaged in /tmp:"));
  // The folder in /tmp may be anybody's.
  const Outcome planted = sent_to("planted opt/launcher");
  EXPECT_EQ(planted.planted, "");
  EXPECT_THAT(planted.err, AllOf(HasSubstr(root_ + " belongs to uid 65534"),
                                 HasSubstr("arrived damaged in /tmp:")));
  const std::string folder = root_ + "/" + std::to_string(count_ + 1);
  EXPECT_THAT(sent_to("chmod 1777 opt; chown 65533 opt", "TMPDIR=" + folder + "/opt").err,
              HasSubstr("arrived damaged in /tmp:"));
}

// Somebody changes the link all the time.
TEST_P(RemoteTrust, WhatIsSwappedMeanwhileIsNotRun) {
  const std::string swapper =
      "program opt/launcher; mkdir a; planted a/x; ln -s x a/launcher; chown -hR 65534 a\n"
      "cat >swap <<'END'\n"
      "while [ -e x ]; do ln -sfn ../opt/launcher launcher; ln -sfn x launcher; done\n"
      "END\n"
      "cd a; timeout 60 setpriv --reuid 65534 --clear-groups sh ../swap >/dev/null 2>&1 &\n";
  const Case one{"swapped", swapper.c_str(), "a/launcher", nullptr};
  (void)run(one);
  const std::string folder = root_ + "/" + std::to_string(count_);
  for (int i = 0; i < 40; ++i) {
    (void)!std::system((std::string("D=") + folder + " " + GetParam() + " <" + folder +
                        "/script >>" + folder + "/out 2>>" + folder + "/err")
                           .c_str());
  }
  EXPECT_EQ(contents(folder + "/planted"), "");
  EXPECT_THAT(contents(folder + "/err"), HasSubstr("/a belongs to uid 65534"));
  // The swapper ends when x has gone, and may put something there until then.
  for (int i = 0; i < 500 && std::filesystem::exists(folder + "/a"); ++i) {
    std::error_code ignored;
    std::filesystem::remove(folder + "/a/x", ignored);
    std::filesystem::remove_all(folder + "/a", ignored);
    usleep(10000);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shells, RemoteTrust, testing::Values("dash", "bash", "busybox sh"), [](const auto& instance) {
      return std::string(instance.param).substr(0, std::string_view(instance.param).find(' '));
    });

}  // namespace
}  // namespace chainmail::launch
