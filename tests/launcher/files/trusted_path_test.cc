// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What an agent runs and writes of what it finds on its host: nothing that somebody else could have
// put there. Real files and users; needs root.

#include "launcher/files/trusted_path.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/posix_acl.h>
#include <linux/posix_acl_xattr.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "launcher/mpi/service/mpi_directories.h"

namespace chainmail::launch {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr uid_t kUser = 61234;
constexpr uid_t kOther = 65534;

struct Case {
  const char* name;
  const char* setup;  // in a folder of root's that has the empty folder opt
  const char* path;   // below it
  const char* is;     // this, below it; null: not trusted
  const char* why = "";
  uid_t user = 0;
};

// A process that goes with its scope.
struct Ended {
  const pid_t pid;
  ~Ended() {
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
  }
};

class TrustedPathTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() != 0) {
      GTEST_SKIP() << "skipped: needs root, to have files of other users";
    }
    make_root("/tmp");
  }
  void TearDown() override {
    if (!root_.empty()) fs::remove_all(root_);
  }
  void make_root(const std::string& parent) {
    TearDown();
    root_ = parent + "/chainmail-trusted.XXXXXX";
    ASSERT_NE(mkdtemp(root_.data()), nullptr);
    fs::permissions(root_, fs::perms{0755});
  }

  std::string prepare(const std::string& setup) {
    const std::string folder = root_ + "/" + std::to_string(++count_);
    fs::create_directory(folder);
    std::ofstream(root_ + "/setup")
        << "set -e; umask 022; cd " << folder << "; mkdir opt\n"
        << "program() { printf '#!/bin/sh\\necho runs\\n' >\"$1\"; chmod 755 \"$1\"; }\n"
        << setup << "\n";
    EXPECT_EQ(std::system(("sh " + root_ + "/setup").c_str()), 0) << setup;
    return folder;
  }

  template <typename Look>
  void expect(const Case& one, const Look& look) {
    SCOPED_TRACE(one.name);
    const std::string folder = prepare(one.setup);
    EXPECT_EQ(seteuid(one.user), 0);
    const TrustedPath found = look(folder + "/" + one.path);
    EXPECT_EQ(seteuid(0), 0);
    if (one.is != nullptr) {
      EXPECT_EQ(found.path, *one.is == '\0' ? folder : folder + "/" + one.is);
      EXPECT_EQ(found.why, "");
    } else {
      EXPECT_EQ(found.path, "");
      EXPECT_THAT(found.why, HasSubstr(one.why));
    }
  }

  std::string root_;
  int count_ = 0;
};

TEST_F(TrustedPathTest, ProgramsAreRootsAndTheUsers) {
  const Case cases[] = {
      {"root's", "program opt/x", "opt/x", "opt/x"},
      {"root's, for a user", "program opt/x", "opt/x", "opt/x", "", kUser},
      {"the user's", "program opt/x; chown -R 61234 opt", "opt/x", "opt/x", "", kUser},
      {"the user's, for root", "program opt/x; chown -R 61234 opt", "opt/x", nullptr,
       "/opt belongs to uid 61234, who is neither root nor this user (uid 0)"},
      {"another user's", "program opt/x; chown 61235 opt/x", "opt/x", nullptr,
       "/opt/x belongs to uid 61235, who is neither root nor this user (uid 61234)", kUser},
      {"in somebody's folder", "mkdir opt/a; program opt/a/x; chown 65534 opt", "opt/a/x", nullptr,
       "/opt belongs to uid 65534"},
      {"the group may write", "program opt/x; chmod 775 opt/x", "opt/x", nullptr,
       "/opt/x may write to it (mode 0775)"},
      {"everybody may write", "program opt/x; chmod 757 opt/x", "opt/x", nullptr,
       "/opt/x (mode 0757)"},
      {"a file's sticky bit", "program opt/x; chmod 1777 opt/x", "opt/x", nullptr,
       "everybody may write to "},
      {"the group may write to the folder", "program opt/x; chmod 775 opt", "opt/x", nullptr,
       "/opt may write to it (mode 0775)"},
      {"everybody may write to the folder", "program opt/x; chmod 777 opt", "opt/x", nullptr,
       "/opt (mode 0777)"},
      {"everybody may write further up", "mkdir -p opt/a/b; program opt/a/b/x; chmod 777 opt",
       "opt/a/b/x", nullptr, "/opt (mode 0777)"},
      {"in a folder like /tmp", "program opt/x; chmod 1777 opt", "opt/x", "opt/x"},
      {"somebody's in a folder like /tmp", "program opt/x; chmod 1777 opt; chown 65534 opt/x",
       "opt/x", nullptr, "/opt/x belongs to uid 65534"},
      {"in somebody's folder in one like /tmp",
       "mkdir opt/a; program opt/a/x; chmod 1777 opt; chown 65534 opt/a", "opt/a/x", nullptr,
       "/opt/a belongs to uid 65534"},
      {"somebody's folder like /tmp", "program opt/x; chmod 1777 opt; chown 65534 opt", "opt/x",
       nullptr, "/opt belongs to uid 65534"},
      {"a second name in a folder like /tmp", "program mine; ln mine opt/x; chmod 1777 opt",
       "opt/x", nullptr, "/opt/x has 2 names"},
      {"a second name elsewhere", "program mine; ln mine opt/x", "opt/x", "opt/x"},
      {"a link", "program opt/x; ln -s opt/x a", "a", "opt/x"},
      {"a chain of links", "program opt/x; ln -s ../b opt/a; ln -s $PWD/opt/x b; ln -s opt/a c",
       "c", "opt/x"},
      {"somebody's link to root's program", "program opt/x; ln -s opt/x a; chown -h 65534 a", "a",
       nullptr, "/a belongs to uid 65534"},
      {"a link to somebody's link to root's program",
       "program opt/x; ln -s opt/x a; chown -h 65534 a; ln -s a b", "b", nullptr,
       "/a belongs to uid 65534"},
      {"a link through somebody's link",
       "program opt/x; mkdir tmp; chmod 1777 tmp; ln -s ../opt tmp/a; chown -h 65534 tmp/a; ln -s "
       "tmp/a/x b",
       "b", nullptr, "/tmp/a belongs to uid 65534"},
      {"a link to somebody's program", "program opt/x; chown 65534 opt/x; ln -s opt/x a", "a",
       nullptr, "/opt/x belongs to uid 65534"},
      {"links in a ring", "ln -s b a; ln -s a b", "a", nullptr, "Too many levels"},
      {"a link to nothing", "ln -s opt/nothing a", "a", nullptr, "/opt/nothing: No such file"},
      {"up and down", "program opt/x; mkdir a; ln -s a b", "b/../opt/./x", "opt/x"},
      {"up out of somebody's folder", "program opt/x; mkdir a; chown 65534 a", "a/../opt/x",
       nullptr, "/a belongs to uid 65534"},
      {"blanks and quotes", "mkdir \"opt/it's \\$(id) *\"; program \"opt/it's \\$(id) */ x\"",
       "opt/it's $(id) */ x", "opt/it's $(id) */ x"},
      {"a line break", "mkdir 'opt/a\nb'; program 'opt/a\nb/x\n'", "opt/a\nb/x\n", "opt/a\nb/x\n"},
      {"a line break that looks like a list's line",
       "mkdir 'opt/a\n-rwxr-xr-x 1 0 0 0 x'; program 'opt/a\n-rwxr-xr-x 1 0 0 0 x/x'; chown 65534 "
       "opt/a*",
       "opt/a\n-rwxr-xr-x 1 0 0 0 x/x", nullptr, "belongs to uid 65534"},
      {"what is missing", "mkdir opt/a", "opt/a/b/c", nullptr, "/opt/a/b: No such file"},
      {"below a file", "program opt/x", "opt/x/y", nullptr, "/opt/x is not a folder"},
      {"a folder", "", "opt", nullptr, "/opt is not a regular file"},
      {"a pipe", "mkfifo opt/x", "opt/x", nullptr, "/opt/x is not a regular file or a folder"},
      {"no program", "echo >opt/x", "opt/x", nullptr, "/opt/x cannot be executed"},
  };
  for (const Case& one : cases) {
    expect(one, [](const std::string& path) { return trusted_program(path); });
  }
  for (const char* path : {"", "x", "./x", "../tmp/x"}) {
    EXPECT_THAT(trusted_program(path).why, HasSubstr("is not an absolute path"));
  }
}

TEST_F(TrustedPathTest, FoldersCannotBeReplaced) {
  const Case cases[] = {
      {"root's", "", "opt", "opt"},
      {"like /tmp", "chmod 1777 opt", "opt", "opt"},
      {"the user's in one like /tmp", "chmod 1777 opt; mkdir opt/a; chown 61234 opt/a", "opt/a",
       "opt/a", "", kUser},
      {"somebody's", "chown 65534 opt", "opt", nullptr, "/opt belongs to uid 65534"},
      {"everybody's", "chmod 777 opt", "opt", nullptr, "everybody may write to "},
      {"a group's", "chmod 2770 opt", "opt", nullptr, "/opt may write to it (mode 2770)"},
      {"in everybody's", "chmod 777 opt; mkdir opt/a", "opt/a", nullptr, "/opt (mode 0777)"},
      {"somebody's link to root's", "mkdir a; ln -s ../opt a/b; chown -hR 65534 a", "a/b", "opt"},
      {"a link to everybody's", "chmod 777 opt; ln -s opt a", "a", nullptr, "/opt (mode 0777)"},
      {"a link to somebody's link to everybody's",
       "chmod 777 opt; ln -s opt a; chown -h 65534 a; ln -s a b", "b", nullptr, "/opt (mode 0777)"},
      {"blanks and quotes", "mkdir \"opt/ it's \\\"\"", "opt/ it's \"", "opt/ it's \""},
      {"missing", "mkdir opt/a", "opt/a/b/c/d", nullptr, "/opt/a/b: No such file"},
      {"a file", "program opt/x", "opt/x", nullptr, "/opt/x is not a folder"},
  };
  for (const Case& one : cases) expect(one, trusted_folder);
  EXPECT_EQ(trusted_folder("/").path, "/");
  EXPECT_THAT(trusted_folder("tmp").why, HasSubstr("'tmp' is not an absolute path"));
  EXPECT_THAT(trusted_folder("").why, HasSubstr("is not an absolute path"));
}

// An entry of a list may write only where the mode shows that the group may.
TEST_F(TrustedPathTest, AccessListsShowAsTheGroups) {
  struct {
    posix_acl_xattr_header head;
    posix_acl_xattr_entry entries[5];
  } list = {{POSIX_ACL_XATTR_VERSION},
            {{ACL_USER_OBJ, 7, 0},
             {ACL_USER, 7, kOther},
             {ACL_GROUP_OBJ, 5, 0},
             {ACL_MASK, 7, 0},
             {ACL_OTHER, 5, 0}}};
  const std::string folder = prepare("program opt/x; chmod 700 opt");
  for (const char* name : {"/opt/x", "/opt"}) {
    const std::string path = folder + name;
    ASSERT_EQ(trusted_program(folder + "/opt/x").why, "");
    if (setxattr(path.c_str(), "system.posix_acl_access", &list, sizeof list, 0) != 0) {
      GTEST_SKIP() << "skipped: no access lists in /tmp";
    }
    EXPECT_THAT(trusted_program(folder + "/opt/x").why, HasSubstr(path + " may write to it"));
    ASSERT_EQ(removexattr(path.c_str(), "system.posix_acl_access"), 0);
    ASSERT_EQ(chmod(path.c_str(), 0755), 0);
  }
}

TEST_F(TrustedPathTest, WhoeverCouldReplaceTheLauncherIsTrustedWithWhatLiesBesideIt) {
  struct Beside {
    const char* name;
    const char* setup;
    const char* why;  // null: trusted
  };
  const Beside cases[] = {
      {"a tree of umask 002", "chgrp -R 61000 opt; chmod -R g+w opt", nullptr},
      {"another group's", "chgrp -R 61000 opt; chmod -R g+w opt; chgrp 61001 opt/helper",
       "/opt/helper may write to it"},
      {"of one who installs software", "chown -R 61235 opt", nullptr},
      {"of another", "chown -R 61235 opt; chown 65534 opt/helper", "/opt/helper belongs to"},
      {"in a folder like /tmp", "chmod 1777 opt; chown 65534 opt/helper",
       "/opt/helper belongs to uid 65534"},
      {"everybody may write", "chmod 777 opt", "/opt (mode 0777)"},
  };
  for (const Beside& one : cases) {
    SCOPED_TRACE(one.name);
    const std::string folder =
        prepare(std::string("program opt/launcher; program opt/helper; ") + one.setup) + "/opt/";
    EXPECT_NE(trusted_program(folder + "helper").why, "");
    const TrustedPath found = trusted_program(folder + "helper", writers_of(folder + "launcher"));
    if (one.why == nullptr) {
      EXPECT_EQ(found.path, folder + "helper") << found.why;
    } else {
      EXPECT_THAT(found.why, HasSubstr(one.why));
    }
  }
}

// Somebody changes what he can while it is looked at, many times.
TEST_F(TrustedPathTest, WhatIsSwappedMeanwhileIsNeverTrusted) {
  constexpr int kRounds = 20000;
  const std::string folder = prepare(
      "program opt/x; mkdir tmp own; chmod 1777 tmp; mkdir own/bad; program own/bad/x; ln -s "
      "../opt "
      "own/a; chown -hR 65534 own; chown 65534 own/bad/x");
  const pid_t somebody = fork();
  if (somebody == 0) {
    if (setresuid(kOther, kOther, kOther) != 0 || chdir(folder.c_str()) != 0) _exit(1);
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // another user would clear it
    while (true) {
      for (const char* target : {"../opt", "bad"}) {
        (void)symlink(target, "own/b");
        (void)rename("own/b", "own/a");
      }
      // The program, a link to root's and one to his own under one name.
      (void)symlink("../opt/x", "tmp/c");
      (void)rename("tmp/c", "tmp/x");
      (void)symlink("../own/bad/x", "tmp/c");
      (void)rename("tmp/c", "tmp/x");
      (void)rename("tmp/x", "tmp/x2");
      (void)link("own/bad/x", "tmp/x");
      (void)unlink("tmp/x2");
      (void)unlink("tmp/x");
    }
  }
  const Ended ended{somebody};
  int trusted = 0;
  for (int i = 0; i < kRounds; ++i) {
    const TrustedPath found = trusted_folder(folder + "/own/a");
    if (!found.path.empty()) {
      ++trusted;
      ASSERT_EQ(found.path, folder + "/opt");
    }
    ASSERT_EQ(trusted_program(folder + "/own/a/x").path, "");
    ASSERT_EQ(trusted_program(folder + "/tmp/x").path, "");
  }
  EXPECT_GT(trusted, 0);
  EXPECT_LT(trusted, kRounds);
}

// Run by a user in a user namespace of his own, where all others have one number.
TEST_F(TrustedPathTest, RootOfTheOutsideIsTrustedWithFoldersThatNobodyElseMade) {
  make_root("/var/lib");  // in /tmp anybody could have made it
  const std::string folder = prepare(
      "program opt/x; mkdir opt/mine tmp tmp/planted tmp/mine tmp/mine/a; program tmp/mine/x; "
      "chmod 1777 tmp tmp/planted tmp/mine/a; chown 65533 tmp/planted; chown 61234 opt/mine "
      "tmp/mine tmp/mine/x");
  const auto answers = folder + "/answers";
  const pid_t user = fork();
  if (user == 0) {
    std::ofstream out(answers);
    if (setresuid(kUser, kUser, kUser) != 0 || prctl(PR_SET_DUMPABLE, 1) != 0 ||
        unshare(CLONE_NEWUSER) != 0) {
      _exit(77);
    }
    std::ofstream("/proc/self/uid_map") << "0 61234 1";
    const Writers as_the_launcher = writers_of(folder + "/opt/x");
    out << "tmp: " << trusted_folder("/tmp").why << "\n"
        << "sticky: " << trusted_folder(folder + "/tmp").why << "\n"
        << "mine: " << trusted_folder(folder + "/opt/mine").why << "\n"
        << "in mine: " << trusted_folder(folder + "/tmp/mine/a").why << "\n"
        << "planted: " << trusted_folder(folder + "/tmp/planted").why << "\n"
        << "my program: " << trusted_program(folder + "/tmp/mine/x").why << "\n"
        << "root's program: " << trusted_program(folder + "/opt/x").why << "\n"
        << "beside: " << trusted_program(folder + "/opt/x", as_the_launcher).why << "\n"
        << std::flush;
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(user, &status, 0), user);
  if (WEXITSTATUS(status) == 77) {
    GTEST_SKIP() << "skipped: no user namespaces for users";
  }
  std::ifstream in(answers);
  std::string text((std::istreambuf_iterator<char>(in)), {});
  EXPECT_EQ(text, "tmp: \nsticky: \nmine: \nin mine: \nplanted: " + folder +
                      "/tmp/planted belongs to uid 65534, who is neither root nor this user (uid "
                      "0)\nmy program: \nroot's program: " +
                      folder +
                      "/opt/x belongs to uid 65534, who is neither root nor this user (uid "
                      "0)\nbeside: \n");
}

TEST_F(TrustedPathTest, FoldersOfMpiGoWhereNobodyCanReplaceThem) {
  const char* before = std::getenv("TMPDIR");
  const std::string kept = before != nullptr ? before : "";
  const std::string folder = prepare("mkdir own; chmod 777 opt") + "/";
  setenv("TMPDIR", (folder + "own").c_str(), 1);
  EXPECT_THAT(MpiDirectories("chainmail-m").session(), StartsWith(folder + "own/chainmail-m.mpi."));
  setenv("TMPDIR", (folder + "opt").c_str(), 1);
  {
    const MpiDirectories directories("chainmail-m");
    EXPECT_THAT(directories.session(), StartsWith("/tmp/chainmail-m.mpi."));
    EXPECT_THAT(directories.why_no_session(), HasSubstr("everybody may write to " + folder));
  }
  EXPECT_TRUE(fs::is_empty(folder + "opt"));
  before != nullptr ? setenv("TMPDIR", kept.c_str(), 1) : unsetenv("TMPDIR");
}

}  // namespace
}  // namespace chainmail::launch
